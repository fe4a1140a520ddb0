//! A relay in front of an origin. It may alter what it passes on.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use testkit::http;

/// An answer on its way.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Changes a field.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        for (_, old) in self.fields.iter_mut().filter(|(n, _)| n.eq_ignore_ascii_case(name)) {
            value.clone_into(old);
        }
    }
}

/// Passes on all that is asked of an origin, after `alter` has seen the path and the answer. Serves
/// until the test ends.
pub(crate) fn start(
    origin: SocketAddr,
    alter: impl Fn(&str, &mut Answer) + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let alter = Arc::new(alter);
    thread::spawn(move || {
        while let Ok((socket, _)) = listener.accept() {
            let alter = Arc::clone(&alter);
            // A client that closes its connection does not disturb the test.
            thread::spawn(move || serve(&socket, origin, &*alter).ok());
        }
    });
    address
}

fn serve(
    mut socket: &TcpStream,
    origin: SocketAddr,
    alter: &dyn Fn(&str, &mut Answer),
) -> std::io::Result<()> {
    let mut reader = BufReader::new(socket);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut range = None;
        loop {
            let mut field = String::new();
            reader.read_line(&mut field)?;
            let Some((name, value)) = field.trim_end().split_once(':') else { break };
            if name.eq_ignore_ascii_case("range") {
                range = Some(value.trim().to_owned());
            }
        }
        let fields: Vec<_> = range.iter().map(|range| ("Range", &**range)).collect();
        let answer = http::get_with(origin, &path, &fields);
        let passed = ["etag", "content-type", "cache-control", "content-range"];
        let kept = |name: &&str| Some(((*name).to_owned(), answer.header(name)?.to_owned()));
        let mut answer = Answer {
            status: answer.status(),
            fields: passed.iter().filter_map(kept).collect(),
            body: answer.body,
        };
        alter(&path, &mut answer);
        let mut head = format!("HTTP/1.1 {} X\r\n", answer.status);
        for (name, value) in &answer.fields {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n", answer.body.len());
        socket.write_all(&[head.as_bytes(), &answer.body].concat())?;
    }
}
