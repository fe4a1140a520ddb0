//! Comparisons with other generators, on the same nginx.

use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::time::Instant;

use testkit::{Port, Program, eventually};

use super::{LIMIT, count, number, run};

/// An nginx with one process, on its own port, with a log of its answers.
pub(crate) struct Nginx {
    pub(crate) program: Program,
    pub(crate) port: Port,
    dir: tempfile::TempDir,
}

impl Nginx {
    /// Starts it. `listen` is appended to the directive with that name.
    pub(crate) fn start(listen: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display().to_string();
        let root = dir.path().join("www");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("4k"), super::server::pattern(4096)).unwrap();
        std::fs::write(root.join("1m"), super::server::pattern(1 << 20)).unwrap();
        let port = Port::find();
        let tls = if listen.contains("ssl") { certificate(dir.path()) } else { String::new() };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {path}/t;\n"))
            .concat();
        let configuration = format!(
            "error_log {path}/error.log;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ {temporary} sendfile on; tcp_nopush on; keepalive_requests 1000000000;\n\
             log_format sent '$status $bytes_sent $body_bytes_sent $request_length';\n\
             access_log {path}/access.log sent;\n\
             limit_req_zone $http_user_agent zone=each:1m rate=400r/s; limit_req_log_level info;\n\
             server {{ listen 127.0.0.1:{port} {listen}; root {path}/www; {tls} }} }}\n"
        );
        let program = testkit::nginx(dir.path(), &port, &configuration);
        Self { program, port, dir }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn log(&self) -> Vec<Vec<u64>> {
        let text = std::fs::read_to_string(self.dir.path().join("access.log")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| line.split(' ').map(|n| n.parse().unwrap()).collect()).collect()
    }

    /// Number of answered requests.
    pub(crate) fn requests(&self) -> usize {
        self.log().len()
    }

    /// Sums over the logged answers from number `from` on: answers, bytes sent, bytes of bodies,
    /// bytes of requests. Waits until nginx has logged `expected` answers.
    #[track_caller]
    pub(crate) fn sent_since(&self, from: usize, expected: usize) -> [u64; 4] {
        eventually(LIMIT, "all answers are in the log", || self.requests() >= from + expected);
        let log = self.log();
        let sum = |at: usize| log[from..].iter().map(|line| line[at]).sum();
        [(log.len() - from) as u64, sum(1), sum(2), sum(3)]
    }
}

/// Makes a certificate for localhost; returns the directives of nginx for it.
fn certificate(dir: &Path) -> String {
    let (key, certificate) = (dir.join("key.pem"), dir.join("certificate.pem"));
    testkit::certificate::make("localhost", &certificate, &key);
    format!("ssl_certificate {}; ssl_certificate_key {};", certificate.display(), key.display())
}

/// The number after `label` in another generator's output.
#[track_caller]
fn figure<T: FromStr>(output: &str, label: &str) -> T {
    let line = output.lines().find_map(|line| line.trim().strip_prefix(label));
    let line = line.unwrap_or_else(|| panic!("no {label:?} in {output}"));
    let digits: String = line.trim().chars().take_while(|c| matches!(c, '0'..='9' | '.')).collect();
    digits.parse().unwrap_or_else(|_| panic!("{label:?} is {line:?}"))
}

#[test]
fn counts_and_bytes_are_those_of_nginx_and_of_ab() {
    let nginx = Nginx::start("");
    for (path, keep, length) in [("/4k", true, 4096), ("/4k", false, 4096), ("/1m", true, 1 << 20)]
    {
        let url = nginx.url(path);
        let requests = if length > 4096 { 100 } else { 1000 };
        let number = requests.to_string();
        let before = nginx.requests();
        let mut arguments = vec![url.as_str(), "--requests", &number, "--connections", "8"];
        if !keep {
            arguments.push("--no-keepalive");
        }
        let ours = run(&arguments);
        let [answers, sent, bodies, asked] = nginx.sent_since(before, requests);
        assert_eq!(count(&ours, "/counters/responses"), answers);
        assert_eq!(count(&ours, "/counters/body_bytes"), bodies);
        assert_eq!(count(&ours, "/counters/head_bytes"), sent - bodies);
        assert_eq!(count(&ours, "/counters/sent_bytes"), asked);
        assert_eq!(count(&ours, "/counters/errors"), 0);

        let mut ab = Command::new("ab");
        ab.args(["-n", &number, "-c", "8", "-q"]);
        if keep {
            ab.arg("-k");
        }
        let output = Program::output(ab.arg(&url), LIMIT);
        let output = String::from_utf8(output).unwrap();
        // nginx may log an answer after ab has ended. The next turn counts from here on.
        nginx.sent_since(before, 2 * requests);
        assert_eq!(figure::<u64>(&output, "Complete requests:"), answers);
        assert_eq!(figure::<u64>(&output, "Failed requests:"), 0);
        assert_eq!(
            figure::<u64>(&output, "HTML transferred:"),
            count(&ours, "/counters/body_bytes")
        );
        assert_eq!(count(&ours, "/counters/body_bytes"), requests as u64 * length);
    }
}

/// nginx sets the rate here, so both generators are to have the same. A busy machine makes it less.
/// So each is compared with what nginx answered it.
#[test]
fn the_rate_of_a_closed_loop_is_nginxs_as_wrks_is() {
    /// Requests per second that nginx answers.
    const RATE: f64 = 400.0;
    const CONNECTIONS: u64 = 64;
    /// In seconds. Requests that wait at the end do not count. If the machine stands still for seconds until then,
    /// more than half of the whole time counts all the same.
    const TIME: f64 = 16.0;
    let compare = |measure: &dyn Fn(&str) -> (u64, f64)| {
        let nginx = Nginx::start("; limit_req zone=each burst=2000");
        let begun = Instant::now();
        let (responses, rate) = measure(&nginx.url("/4k"));
        let whole = begun.elapsed().as_secs_f64();
        nginx.sent_since(0, responses as usize);
        let answers = nginx.log().iter().filter(|line| line[0] == 200).count() as u64;
        // At the end, each connection may have an answer that it did not take.
        let taken = answers.saturating_sub(CONNECTIONS)..=answers;
        assert!(taken.contains(&responses), "{responses}, nginx {answers}");
        let range = *taken.start() as f64 / whole..=answers as f64 / TIME;
        assert!(range.contains(&rate), "{rate}, nginx {range:?}");
        // A tenth more, because nginx counts in milliseconds and begins with one for nothing.
        assert!(rate < RATE * 1.1, "{rate}");
    };
    let [connections, time] = [CONNECTIONS.to_string(), format!("{TIME}s")];
    compare(&|url| {
        let closed = ["--connections", &connections, "--threads", "1", "--duration", &time];
        let document = run(&[&[url], &closed[..]].concat());
        assert_eq!(count(&document, "/counters/errors"), 0);
        let responses = count(&document, "/counters/responses");
        // Each connection waits for an answer nearly all the time: it asks again at once.
        let waited = responses as f64 * number(&document, "/last_byte/mean");
        let all = CONNECTIONS as f64 * number(&document, "/elapsed");
        assert!(waited > all * 0.5, "{waited} s of {all} s");
        (responses, number(&document, "/responses_per_second"))
    });
    compare(&|url| {
        let mut wrk = Command::new("wrk");
        wrk.args(["-t", "1", "-c", &connections, "-d", &time, "-H", "User-Agent: wrk", url]);
        let output = String::from_utf8(Program::output(&mut wrk, LIMIT)).unwrap();
        let (before, _) = output.split_once(" requests in ").unwrap();
        let responses = before.rsplit(char::is_whitespace).next().unwrap().parse().unwrap();
        (responses, figure(&output, "Requests/sec:"))
    });
}

#[test]
fn a_rate_of_an_open_loop_is_exact() {
    let nginx = Nginx::start("");
    let document = run(&[&nginx.url("/4k"), "--rate", "500", "--duration", "2s"]);
    assert_eq!(nginx.sent_since(1000 - 1, 1)[0], 1);
    assert_eq!(count(&document, "/counters/responses"), 1000);
    // The last request is due 2 ms before the end.
    assert!(number(&document, "/elapsed") >= 1.998);
}
