//! Sends the same thousand odd requests for the same files to headwater and to nginx, over raw
//! sockets. Status, bytes, and whether the connection goes on must agree. `table` lists the
//! exceptions and their reasons.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod exchange;
mod requests;
mod servers;
mod table;

use std::collections::BTreeSet;

use exchange::{Exchange, Outcome, exchange};
use requests::{FILES, Request, cases};
use servers::Servers;

#[test]
fn a_thousand_odd_requests() {
    let mut files = FILES.map(|(name, size)| (name, pattern(name, size))).to_vec();
    files.push(("marker", b"marker\n".to_vec()));
    let servers = Servers::start(&files);
    let (mut requests, mut used, mut wrong) = (0, BTreeSet::new(), Vec::new());
    for case in cases() {
        let (ours, theirs) = servers.ask(&case);
        if ours.answers.len() > case.len() {
            wrong.push(format!("a payload was taken for a request: {}", case[0].text()));
        }
        for (index, request) in case.iter().enumerate() {
            requests += 1;
            let (ours, theirs) = (ours.outcome(index), theirs.outcome(index));
            let mut verdict = check(&ours);
            if ours != theirs {
                match table::row(request, &ours, &theirs) {
                    Some(row) => _ = used.insert(row),
                    None => verdict = verdict.and(Err("differs".to_owned())),
                }
            }
            if let Err(what) = verdict {
                let (odd, text) = (&request.oddities, request.text());
                wrong.push(format!("{what}: {odd:?} {text}\n  ours  {ours:?}\n  nginx {theirs:?}"));
            }
            if !ours.kept || !theirs.kept {
                break;
            }
        }
    }
    let unused = (0..table::ROWS.len()).filter(|row| !used.contains(row));
    wrong.extend(unused.map(|row| format!("explains nothing: {:?}", table::ROWS[row])));
    assert!(wrong.is_empty(), "{} of {requests}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(requests >= 1000, "{requests} requests");
}

/// Checks the bytes that we sent against the file, without nginx.
fn check(ours: &Outcome<'_>) -> Result<(), String> {
    let Some(answer) = ours.answer else { return Err("no answer".to_owned()) };
    let Some(content) = &answer.content else { return Ok(()) };
    let file = FILES.iter().find(|(_, size)| *size == content.length);
    let (name, size) = file.ok_or_else(|| format!("no file of {} bytes", content.length))?;
    let bytes = pattern(name, *size);
    for (range, part) in &content.parts {
        if !answer.head_only && bytes.get(range.clone()) != Some(part) {
            return Err(format!("other bytes at {range:?} of {name}"));
        }
    }
    Ok(())
}

impl Request {
    fn text(&self) -> String {
        format!(
            "{:?}",
            String::from_utf8_lossy(&self.template).chars().take(300).collect::<String>()
        )
    }
}

impl Servers {
    /// The answers of both servers to the same requests.
    fn ask(&self, case: &[Request]) -> (Exchange, Exchange) {
        let heads: Vec<_> = case.iter().map(Request::is_head).collect();
        let bytes =
            |tag: &str| case.iter().flat_map(|request| request.bytes(tag)).collect::<Vec<_>>();
        (
            exchange(self.headwater(), &bytes(&self.tags.0), &heads),
            exchange(self.nginx(), &bytes(&self.tags.1), &heads),
        )
    }
}

/// Bytes that differ between places in a file and between files.
fn pattern(name: &str, size: usize) -> Vec<u8> {
    let seed = name.bytes().fold(7_u64, |seed, byte| seed.wrapping_mul(31) + u64::from(byte));
    testkit::noise(seed, size)
}
