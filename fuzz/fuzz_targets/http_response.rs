//! Any bytes as a server's answer. A player's client must read a body of bounded length, or report
//! that the answer is invalid, and in any case return.
#![no_main]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::rc::Rc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tokio::runtime::Builder;
use viewer::http::{Body, Client, Request};
use viewer::url::Url;
use viewer::{Asks, Clock, Lane, Options, Totals, Viewer};

/// Most bytes of a body that are collected.
const MOST: usize = 4 << 10;

fuzz_target!(|data: &[u8]| {
    // A redirect would make the client connect to any host.
    if data.windows(8).any(|bytes| bytes.eq_ignore_ascii_case(b"location")) {
        return;
    }
    let (address, answers) = server();
    answers.send(data.to_vec()).expect("the server is there");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let options = Options { patience: Duration::from_secs(2), ..Options::default() };
        let lane: Rc<Lane> = Lane::new(Clock::start(), options, Arc::new(Totals::default()));
        let viewer = Viewer::join(&lane, (0, 0), false, None);
        let mut body = Vec::new();
        let mut client = Client::new(&viewer);
        let request = Request::new(address, Asks::Playlist);
        let answer = client.get(request, Body::Text(&mut body, MOST)).await;
        assert!(body.len() <= MOST, "{} bytes", body.len());
        if let Ok(answer) = answer {
            assert_eq!(answer.bytes, body.len() as u64);
        }
    });
});

/// A server that gives each connection the next answer. It lives as long as the fuzzer.
fn server() -> &'static (Url, SyncSender<Vec<u8>>) {
    static SERVER: OnceLock<(Url, SyncSender<Vec<u8>>)> = OnceLock::new();
    SERVER.get_or_init(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (send, receive) = sync_channel::<Vec<u8>>(1);
        std::thread::spawn(move || {
            for answer in receive {
                let (mut socket, _) = listener.accept().expect("a connection");
                let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
                while !request.ends_with(b"\r\n\r\n") {
                    match socket.read(&mut buffer) {
                        Ok(size @ 1..) => request.extend_from_slice(&buffer[..size]),
                        _ => break,
                    }
                }
                let _ = socket.write_all(&answer);
                let _ = socket.shutdown(Shutdown::Write);
            }
        });
        (Url::parse(&format!("http://{address}/")).expect("an address"), send)
    })
}
