//! Bytes from a WebSocket client, and from a server: in any pieces they read the same, and little
//! memory is held.
#![no_main]

use headwater_fuzz::within;
use libfuzzer_sys::fuzz_target;
use protocol::push::frame::{self, MAX_MESSAGE};
use protocol::push::message::Command;
use viewer::websocket;

/// Memory of one reader: a message, a control frame, and a command read from it.
const MEMORY: usize = 256 << 10;

/// Longest message that is accepted from a server.
const MOST: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((&cut, input)) = data.split_first() else { return };
    let cut = usize::from(cut).max(1);
    let whole = client(input.chunks(input.len().max(1)));
    assert_eq!(client(input.chunks(cut)), whole);
    let whole = server(input.chunks(input.len().max(1)));
    assert_eq!(server(input.chunks(cut)), whole);
    if let Ok(text) = std::str::from_utf8(input) {
        command(text);
    }
});

/// The events in a client's bytes, and how they end.
fn client<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let mut reader = frame::Reader::default();
    let mut events = Vec::new();
    for mut piece in pieces {
        loop {
            match within(MEMORY, || reader.next(&mut piece)) {
                Ok(None) => {
                    assert!(piece.is_empty());
                    break;
                }
                Ok(Some(event)) => {
                    if let frame::Event::Text(text) = &event {
                        assert!(text.len() <= MAX_MESSAGE);
                        command(text);
                    }
                    events.push(format!("{event:?}"));
                }
                Err(violation) => {
                    events.push(violation.to_string());
                    return events;
                }
            }
        }
    }
    events
}

fn command(text: &str) {
    let most = MEMORY + 16 * text.len();
    if let Ok(command) = within(most, || Command::parse(text)) {
        assert!(command.seek.is_none_or(|seconds| seconds.is_finite() && seconds >= 0.0));
    }
}

/// The events in a server's bytes, and how they end, with the data of each message joined.
fn server<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let mut reader = websocket::Reader::new(MOST);
    let mut events = Vec::new();
    let mut message = Vec::new();
    for mut piece in pieces {
        loop {
            match reader.next(&mut piece) {
                Ok(None) => break,
                Ok(Some(websocket::Event::Data(_, bytes))) => message.extend_from_slice(bytes),
                Ok(Some(event)) => {
                    let end = matches!(event, websocket::Event::End(_));
                    events.push(format!("{event:?}"));
                    if end {
                        assert!(message.len() as u64 <= MOST);
                        events.push(format!("{message:?}"));
                        message.clear();
                    }
                }
                Err(error) => {
                    events.push(error.to_string());
                    return events;
                }
            }
        }
    }
    events
}
