//! A WebSocket echo server made of the push endpoint's handshake and frames. Conformance tests need
//! one, and the push endpoint is none. Usage: `websocket_echo ADDRESS`; docs/push.md describes the
//! test.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it says where it is, and what went wrong"
)]

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use protocol::push::frame::{Event, Opcode, Reader, close, frame};
use protocol::push::handshake;

/// A client that is silent for this long is disconnected.
const SILENCE: Duration = Duration::from_secs(60);
const MAX_HEAD: usize = 8192;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(&address)?;
    println!("ready ws://{}", listener.local_addr()?);
    for client in listener.incoming() {
        let client = client?;
        thread::spawn(move || {
            if let Err(error) = serve(client) {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}

fn serve(mut client: TcpStream) -> io::Result<()> {
    client.set_read_timeout(Some(SILENCE))?;
    client.set_nodelay(true)?;
    let Some(after_head) = shake_hands(&mut client)? else { return Ok(()) };
    let mut reader = Reader::default();
    let mut buffer = vec![0; 64 * 1024];
    buffer[..after_head.len()].copy_from_slice(&after_head);
    let mut filled = after_head.len();
    loop {
        let mut input = &buffer[..filled];
        loop {
            let answer = match reader.next(&mut input) {
                Ok(None) => break,
                Ok(Some(Event::Text(text))) => frame(Opcode::Text, text.as_bytes()),
                Ok(Some(Event::Ping(payload))) => frame(Opcode::Pong, &payload),
                Ok(Some(Event::Pong)) => continue,
                Ok(Some(Event::Close(code))) => {
                    let payload = code.map_or(vec![], |code| code.to_be_bytes().to_vec());
                    return client.write_all(&frame(Opcode::Close, &payload));
                }
                Err(violation) => {
                    client.write_all(&close(violation.code, violation.what))?;
                    return leave(client);
                }
            };
            client.write_all(&answer)?;
        }
        filled = client.read(&mut buffer)?;
        if filled == 0 {
            return Ok(());
        }
    }
}

/// Answers the head of a request. Returns the bytes behind the head, or `None` if the request does
/// not ask for a WebSocket.
fn shake_hands(client: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let end = loop {
        if let Some(at) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at;
        }
        let mut piece = [0; 1024];
        let read = client.read(&mut piece)?;
        if read == 0 || head.len() + read > MAX_HEAD {
            return Ok(None);
        }
        head.extend_from_slice(&piece[..read]);
    };
    let text = String::from_utf8_lossy(&head[..end]);
    let fields: Vec<_> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim()))
        .collect();
    match handshake::accept(&fields) {
        Ok(accepted) => {
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {}\r\n\r\n",
                accepted.accept
            );
            client.write_all(answer.as_bytes())?;
            Ok(Some(head.split_off(end + 4)))
        }
        Err(refusal) => {
            let status = refusal.status();
            write!(client, "HTTP/1.1 {status} {refusal}\r\nContent-Length: 0\r\n\r\n")?;
            Ok(None)
        }
    }
}

/// Waits until the client closes the connection too. Otherwise bytes that it still sends would
/// reset the connection, and it would not learn the reason.
fn leave(mut client: TcpStream) -> io::Result<()> {
    client.shutdown(std::net::Shutdown::Write)?;
    io::copy(&mut client, &mut io::sink()).map(drop)
}
