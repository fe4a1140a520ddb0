//! Sends bytes to a server and reads its answers.

use std::fmt;
use std::io::{Read, Write};
use std::ops::Range;
use std::time::Duration;

/// The longest that an answer may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Request after every case. Its answer shows that the connection goes on and that requests and
/// answers are in step.
const MARKER: &[u8] = b"GET /vod/marker HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

pub(crate) trait Socket: Read + Write {}

impl<S: Read + Write> Socket for S {}

/// A server's answers to a case.
pub(crate) struct Exchange {
    pub(crate) answers: Vec<Answer>,
    /// Whether the server closed the connection after the last of them.
    pub(crate) closed: bool,
}

/// The parts of an answer in which two servers can agree.
#[derive(PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head_only: bool,
    /// The content of a 200 or 206.
    pub(crate) content: Option<Content>,
    /// `Content-Range` of a 416, or whether a 304 or 204 has a `Content-Length` above 0.
    said: Option<String>,
}

/// The parts of a file in an answer.
#[derive(PartialEq, Eq)]
pub(crate) struct Content {
    /// Length of the whole file.
    pub(crate) length: usize,
    /// Ranges and their bytes, in order. An answer to HEAD has no bytes.
    pub(crate) parts: Vec<(Range<usize>, Vec<u8>)>,
    /// `Accept-Ranges` of a 200.
    accepts: Option<String>,
}

impl Exchange {
    /// The outcome of the request at `index`.
    pub(crate) fn outcome(&self, index: usize) -> Outcome<'_> {
        let kept = index + 1 < self.answers.len() || !self.closed;
        Outcome { answer: self.answers.get(index), kept }
    }
}

/// The outcome of a request.
#[derive(PartialEq, Eq)]
pub(crate) struct Outcome<'a> {
    pub(crate) answer: Option<&'a Answer>,
    /// Whether the connection went on after it.
    pub(crate) kept: bool,
}

impl Outcome<'_> {
    /// A text such as `200 kept`, `400 closed`, `none closed`.
    pub(crate) fn verdict(&self) -> String {
        let status = self.answer.map_or("none".to_owned(), |answer| answer.status.to_string());
        format!("{status} {}", if self.kept { "kept" } else { "closed" })
    }

    /// The offsets that were sent, whatever their order and division.
    pub(crate) fn covered(&self) -> Vec<Range<usize>> {
        let content = self.answer.and_then(|answer| answer.content.as_ref());
        let mut ranges: Vec<_> =
            content.iter().flat_map(|content| &content.parts).map(|part| part.0.clone()).collect();
        ranges.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<usize>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }
}

impl fmt::Debug for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict())?;
        if let Some(answer) = self.answer {
            if let Some(said) = &answer.said {
                write!(f, " [{said}]")?;
            }
            if let Some(content) = &answer.content {
                let ranges: Vec<_> = content.parts.iter().map(|(range, _)| range).collect();
                write!(f, " {ranges:?} of {} {:?}", content.length, content.accepts)?;
            }
        }
        Ok(())
    }
}

/// Sends a case and reads to the end of the connection. `heads` tells for each request whether it
/// is HEAD.
pub(crate) fn exchange(mut socket: Box<dyn Socket>, case: &[u8], heads: &[bool]) -> Exchange {
    // A server that closes early need not have read everything.
    let _ = socket.write_all(&[case, MARKER].concat());
    let mut bytes = Vec::new();
    if let Err(error) = socket.read_to_end(&mut bytes) {
        let timed_out = error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!timed_out, "not closed: {:?}", String::from_utf8_lossy(case));
    }
    let (mut answers, mut rest) = (Vec::new(), &bytes[..]);
    while !rest.is_empty() {
        let head_only = heads.get(answers.len()).copied().unwrap_or(false);
        match answer(&mut rest, head_only) {
            Some(answer) => answers.extend(answer),
            None => panic!("no answer: {:?}", String::from_utf8_lossy(rest)),
        }
    }
    let closed = !bytes.ends_with(b"\r\n\r\nmarker\n");
    if !closed {
        answers.pop();
    }
    Exchange { answers, closed }
}

/// Takes an answer off the front of `rest`. An interim answer gives `Some(None)`.
fn answer(rest: &mut &[u8], head_only: bool) -> Option<Option<Answer>> {
    if !rest.starts_with(b"HTTP/1.1 ") {
        // HTTP/0.9 has no head.
        let body = std::mem::take(rest).to_vec();
        let parts = vec![(0..body.len(), body.clone())];
        let content = Some(Content { length: body.len(), parts, accepts: None });
        return Some(Some(Answer { status: 9, head_only, content, said: None }));
    }
    let end = rest.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let (head, after) = rest.split_at(end);
    *rest = after;
    let head = std::str::from_utf8(head).ok()?;
    let status: u16 = head.get(9..12)?.parse().ok()?;
    if status < 200 {
        return Some(None);
    }
    let fields = fields(head);
    let field = |name| one(&fields, name);
    let length = field("content-length").map(|length| length.parse::<usize>());
    let length = length.transpose().ok()?;
    let no_body = head_only || matches!(status, 204 | 304);
    let size = if no_body { 0 } else { length? };
    let body = rest.get(..size)?.to_vec();
    *rest = &rest[size..];
    let mut said = None;
    let content = match status {
        200 => {
            let length = length?;
            let parts = vec![(0..length, body)];
            Some(Content { length, parts, accepts: field("accept-ranges") })
        }
        206 => Some(match field("content-range") {
            Some(range) => {
                let (range, total) = content_range(&range)?;
                assert_eq!(Some(range.len()), length, "{head}");
                Content { length: total, parts: vec![(range, body)], accepts: None }
            }
            None if head_only => Content { length: 0, parts: Vec::new(), accepts: None },
            None => multipart(&field("content-type")?, &body)?,
        }),
        416 => {
            said = field("content-range");
            None
        }
        204 | 304 => {
            said = field("content-length").filter(|length| length != "0");
            None
        }
        _ => None,
    };
    Some(Some(Answer { status, head_only, content, said }))
}

fn fields(head: &str) -> Vec<(String, String)> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect()
}

/// The value of a field that must not be repeated.
fn one(fields: &[(String, String)], name: &str) -> Option<String> {
    let mut found = fields.iter().filter(|field| field.0 == name);
    let value = found.next().map(|field| field.1.clone());
    assert!(found.next().is_none(), "{name} twice: {fields:?}");
    value
}

/// `bytes FIRST-LAST/LENGTH`
fn content_range(value: &str) -> Option<(Range<usize>, usize)> {
    let (range, length) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?..last.parse::<usize>().ok()? + 1, length.parse().ok()?))
}

/// The parts of `multipart/byteranges` (RFC 9110 14.6).
fn multipart(content_type: &str, mut body: &[u8]) -> Option<Content> {
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=")?;
    let (mut parts, mut total) = (Vec::new(), 0);
    let delimiter = format!("--{boundary}");
    body = body.strip_prefix(b"\r\n").unwrap_or(body);
    loop {
        body = body.strip_prefix(delimiter.as_bytes())?;
        if body == b"--\r\n" {
            return Some(Content { length: total, parts, accepts: None });
        }
        let end = body.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = std::str::from_utf8(&body[..end]).ok()?;
        let (range, length) = content_range(&one(&fields(head), "content-range")?)?;
        total = length;
        let bytes = body.get(end..end + range.len())?.to_vec();
        body = body[end + range.len()..].strip_prefix(b"\r\n")?;
        parts.push((range, bytes));
    }
}
