//! Media pushed over WebSocket. Binary messages are CMAF: first a header, then chunks or segments,
//! each as soon as it exists. Text messages, if there are any, are the events of `headwater.v1`.

use std::io::ErrorKind;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::Value;

use super::progressive::Mp4;
use crate::socket::{Socket, write_all};
use crate::url::Url;
use crate::watchdog::Watchdog;
use crate::websocket::{Event, Handshake, Message, Reader, close, pong};
use crate::{Error, Kind, Viewer};

/// The subprotocol that the player offers. Servers that do not know it are understood too.
const PROTOCOL: &str = "headwater.v1";
/// Longest message, in bytes: a segment.
const MAX_MESSAGE: u64 = 256 << 20;
/// Longest text message, in bytes.
const MAX_TEXT: usize = 64 << 10;
/// How much of a server's error text is kept, in characters: each viewer keeps its own.
const MAX_TOLD: usize = 200;

/// Plays until the end of the stream, or until the connection is lost.
pub(super) async fn play(viewer: &Viewer, url: &Url) -> Result<(), Error> {
    let mut player = Box::pin(Player::open(viewer, url)).await.map_err(|error| error.at(url))?;
    player.run().await.map_err(|error| player.place(error).at(url))?;
    let now = viewer.now();
    viewer.stats().playback.complete(now);
    Ok(())
}

/// A connection and the state of what comes over it.
struct Player<'a> {
    viewer: &'a Viewer,
    socket: Socket,
    watchdog: Watchdog,
    reader: Reader,
    media: Mp4<'a>,
    /// Whether the server accepted the subprotocol.
    spoken: bool,
    /// A text message, as far as it has come.
    text: Vec<u8>,
    /// The frame to send next.
    answer: Vec<u8>,
    rendition: Option<Box<str>>,
    /// Whether the stream is over.
    over: bool,
}

impl<'a> Player<'a> {
    /// Connects and makes the handshake.
    async fn open(viewer: &'a Viewer, url: &Url) -> Result<Self, Error> {
        let mut socket = viewer.connect_http(url).await?;
        let mut watchdog = Watchdog::new(viewer.lane.options.patience);
        let mut handshake = Handshake::new(nonce(viewer), PROTOCOL);
        let request = handshake.request(url);
        viewer.stats().requests += 1;
        viewer.lane.totals.requests.fetch_add(1, Relaxed);
        write_all(&mut socket, &mut watchdog, request.as_bytes(), |sent| viewer.count_sent(sent))
            .await?;
        loop {
            watchdog
                .guard("waiting for the answer", Duration::ZERO, socket.readable())
                .await?
                .map_err(|error| Error::io(&error, "reading"))?;
            let mut scratch = viewer.lane.scratch();
            let size = match socket.try_read(&mut scratch) {
                Ok(0) => return Err(Error::new(Kind::Dropped, "closed before an answer")),
                Ok(size) => size,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(Error::io(&error, "reading")),
            };
            let input = scratch.get(..size).unwrap_or_default();
            let Some((taken, spoken)) = handshake.read(input)? else {
                viewer.count_overhead(size);
                continue;
            };
            viewer.count_overhead(taken);
            let mut player = Self {
                viewer,
                socket,
                watchdog,
                reader: Reader::new(MAX_MESSAGE),
                media: Mp4::new(viewer),
                spoken,
                text: Vec::new(),
                answer: Vec::new(),
                rendition: None,
                over: false,
            };
            // Messages may follow the answer at once.
            let first = player.count(input.get(taken..).unwrap_or_default());
            drop(scratch);
            return first.map_err(|error| player.place(error)).map(|()| player);
        }
    }

    async fn run(&mut self) -> Result<(), Error> {
        loop {
            if !self.answer.is_empty() {
                let answer = std::mem::take(&mut self.answer);
                let sent = write_all(&mut self.socket, &mut self.watchdog, &answer, |sent| {
                    self.viewer.count_sent(sent);
                });
                let sent = Box::pin(sent).await;
                if !self.over {
                    sent?;
                }
            }
            if self.over {
                return Ok(());
            }
            let readable = self.socket.readable();
            self.watchdog
                .guard("reading", Duration::ZERO, readable)
                .await?
                .map_err(|error| Error::io(&error, "reading"))?;
            self.read()?;
        }
    }

    fn place(&self, error: Error) -> Error {
        error.at(format_args!("byte {}", self.reader.position()))
    }

    /// Reads once and handles the bytes.
    fn read(&mut self) -> Result<(), Error> {
        let viewer = self.viewer;
        let mut scratch = viewer.lane.scratch();
        match self.socket.try_read(&mut scratch) {
            Ok(0) => Err(Error::new(Kind::Dropped, "closed by the server without a word")),
            Ok(size) => self.count(scratch.get(..size).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(Error::io(&error, "reading")),
        }
    }

    /// Handles bytes that came. All that are not media count as overhead.
    fn count(&mut self, input: &[u8]) -> Result<(), Error> {
        let mut media = 0;
        let result = self.handle(input, &mut media);
        self.viewer.count_overhead(input.len() - media);
        result
    }

    fn handle(&mut self, mut input: &[u8], came: &mut usize) -> Result<(), Error> {
        while !self.over {
            let Some(event) = self.reader.next(&mut input)? else { return Ok(()) };
            match event {
                Event::Data(Message::Binary, data) => {
                    *came += data.len();
                    self.viewer.count_media(data.len());
                    self.media.read(data)?;
                }
                Event::End(Message::Binary) => self.media.end_message()?,
                Event::Data(Message::Text, data) => {
                    if self.text.len() + data.len() > MAX_TEXT {
                        let what = format!("text of more than {MAX_TEXT} bytes");
                        return Err(Error::new(Kind::Garbage, what));
                    }
                    self.text.extend_from_slice(data);
                }
                Event::End(Message::Text) => self.event()?,
                // Only the last of several pings needs an answer (5.5.3).
                Event::Ping(payload) => self.answer = pong(payload, mask(self.viewer)),
                Event::Pong => {}
                Event::Close(code, reason) => {
                    if let Some(error) = closed(code, reason) {
                        return Err(error);
                    }
                    self.end();
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        self.over = true;
        self.answer = close(1000, mask(self.viewer));
    }

    /// Handles a text message that has come whole.
    fn event(&mut self) -> Result<(), Error> {
        let text = std::mem::take(&mut self.text);
        let text = std::str::from_utf8(&text)
            .map_err(|_| Error::new(Kind::Garbage, "text that is not UTF-8"))?;
        let event = match serde_json::from_str::<Value>(text) {
            Ok(event) => event,
            Err(error) if self.spoken => {
                return Err(Error::new(Kind::Garbage, format!("event that is not JSON: {error}")));
            }
            // Text that another server sends to its own player.
            Err(_) => return Ok(()),
        };
        let says = |key: &str| event.get(key).and_then(Value::as_str);
        match says("event").unwrap_or_default() {
            "hello" => self.rendition = says("rendition").map(Into::into),
            "rendition" => {
                let name = says("rendition").or_else(|| says("name")).unwrap_or_default();
                let before = self.rendition.replace(name.into());
                if before.is_some_and(|before| *before != *name) {
                    self.viewer.stats().switches += 1;
                }
            }
            "discontinuity" => self.media.restart(),
            "end" => self.end(),
            "error" => {
                let code = event.get("code").map(|code| match code {
                    Value::String(code) => code.clone(),
                    other => other.to_string(),
                });
                let sentence = says("message").unwrap_or_default();
                let what = format!("{} {sentence}", code.unwrap_or_default());
                let told: String = what.trim().chars().take(MAX_TOLD).collect();
                return Err(Error::new(Kind::Rejected, told));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the error that a close means; `None` if the stream is over.
fn closed(code: Option<u16>, reason: &str) -> Option<Error> {
    let kind = match code {
        None | Some(1000) => return None,
        // The server goes away, fails, restarts or is busy. It may accept another attempt.
        Some(1001 | 1011..=1013) => Kind::Dropped,
        Some(_) => Kind::Rejected,
    };
    let what = format!("closed with code {} {reason}", code.unwrap_or_default());
    Some(Error::new(kind, what.trim_end().to_owned()))
}

/// Makes bytes that no other viewer has (splitmix64). They need not be secret: the key shows that
/// the server has read it, and the mask keeps proxies from taking payloads for requests.
fn random(viewer: &Viewer) -> u64 {
    let mut mixed = viewer.lane.nonce().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn nonce(viewer: &Viewer) -> [u8; 16] {
    let wide = u128::from(random(viewer)) << 64 | u128::from(random(viewer));
    wide.to_be_bytes()
}

fn mask(viewer: &Viewer) -> [u8; 4] {
    let [a, b, c, d, ..] = random(viewer).to_be_bytes();
    [a, b, c, d]
}
