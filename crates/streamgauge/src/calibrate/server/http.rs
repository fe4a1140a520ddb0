//! HTTP/1.1: reads requests and sends each to its delivery.

use std::ops::Range;
use std::rc::Rc;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::session::Session;
use super::{dash, endless, file, hls, push, whep};
use crate::calibrate::player::{Player, SEGMENT};
use crate::calibrate::stream::TICKS;

/// Longest head of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;
/// Longest body of a request, in bytes: an offer of WHEP.
const MAX_BODY: usize = 64 << 10;
/// Most header fields of a request.
const MAX_FIELDS: usize = 64;

/// A request.
struct Request {
    method: String,
    /// The path, without the slash at its start.
    name: String,
    query: String,
    fields: Vec<(String, String)>,
}

impl Request {
    /// Parses the head of a request.
    fn parse(head: &[u8]) -> anyhow::Result<Self> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        ensure!(request.parse(head)?.is_complete(), "head of a request that is cut off");
        let (Some(method), Some(target)) = (request.method, request.path) else {
            bail!("request without a method or path")
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let field = |field: &httparse::Header<'_>| {
            (field.name.to_owned(), String::from_utf8_lossy(field.value).into_owned())
        };
        Ok(Self {
            method: method.to_owned(),
            name: path.trim_start_matches('/').to_owned(),
            query: query.to_owned(),
            fields: request.headers.iter().map(field).collect(),
        })
    }

    /// How many bytes of a body follow.
    fn body(&self) -> anyhow::Result<usize> {
        let is_length = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("content-length");
        let Some((_, length)) = self.fields.iter().find(is_length) else { return Ok(0) };
        let length = length.trim().parse().context("Content-Length")?;
        ensure!(length <= MAX_BODY, "a body of more than {MAX_BODY} bytes");
        Ok(length)
    }
}

/// Serves one connection.
pub(super) async fn serve(mut socket: TcpStream, session: Rc<Session>) -> anyhow::Result<()> {
    let mut unread = Vec::new();
    loop {
        let Some(end) = head(&mut socket, &mut unread).await? else { return Ok(()) };
        let head: Vec<u8> = unread.drain(..end).collect();
        let request = Request::parse(&head)?;
        let length = request.body()?;
        while unread.len() < length {
            ensure!(socket.read_buf(&mut unread).await? > 0, "closed within a body");
        }
        let body: Vec<u8> = unread.drain(..length).collect();
        if session.script.player != Player::Whep {
            session.asked();
        }
        if !answer(&session, &mut socket, &request, &body).await? {
            return Ok(());
        }
    }
}

/// Reads up to the end of a head; returns its length. `None`: the viewer has hung up between requests.
async fn head(socket: &mut TcpStream, unread: &mut Vec<u8>) -> anyhow::Result<Option<usize>> {
    loop {
        if let Some(at) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
            return Ok(Some(at + 4));
        }
        ensure!(unread.len() < MAX_HEAD, "head of more than {MAX_HEAD} bytes");
        if socket.read_buf(unread).await? == 0 {
            return Ok(None);
        }
    }
}

/// Answers a request; returns whether another one may follow.
async fn answer(
    session: &Rc<Session>,
    socket: &mut TcpStream,
    request: &Request,
    body: &[u8],
) -> anyhow::Result<bool> {
    let number = |prefix: &str| -> Option<u32> {
        request.name.strip_prefix(prefix)?.strip_suffix(".m4s")?.parse().ok()
    };
    match (request.method.as_str(), request.name.as_str()) {
        ("GET", "live.mp4") => endless::mp4(session, socket).await.map(|()| false),
        ("GET", "live.flv") => endless::flv(session, socket).await.map(|()| false),
        ("GET", "film.mp4") => file::serve(session, socket).await.map(|()| false),
        ("GET", "push") => push::serve(session, socket, &request.fields).await.map(|()| false),
        ("POST", "whep") => {
            let answer = whep::begin(session, body).await?;
            let head = "201 Created\r\nContent-Type: application/sdp\r\nLocation: whep/1";
            send(socket, head, answer.as_bytes()).await
        }
        // Its viewer ends the session by DTLS, too.
        ("DELETE", "whep/1") => send(socket, "200 OK", b"").await,
        ("GET", "media.m3u8") => {
            let text = hls::playlist(session, &request.query).await;
            send(socket, "200 OK", text.as_bytes()).await
        }
        ("GET", "manifest.mpd") => send(socket, "200 OK", dash::manifest(session).as_bytes()).await,
        ("GET", "init.mp4") => send(socket, "200 OK", &session.stream.header()?).await,
        ("GET", _) => {
            // Parts and segments of HLS have numbers, segments of DASH have times.
            let segment = number("s").or_else(|| Some(number("t")? / (SEGMENT * TICKS)));
            let pieces = match (number("p"), segment) {
                (Some(part), _) => part..part.saturating_add(1),
                (_, Some(segment)) => {
                    let each = SEGMENT / session.script.player.piece();
                    let first = segment.saturating_mul(each);
                    first..first.saturating_add(each)
                }
                _ => return refuse(socket).await,
            };
            media(session, socket, pieces).await
        }
        _ => refuse(socket).await,
    }
}

/// Sends pieces as one answer, each when it comes.
async fn media(
    session: &Session,
    socket: &mut TcpStream,
    pieces: Range<u32>,
) -> anyhow::Result<bool> {
    let pieces = pieces.start..pieces.end.min(session.script.pieces());
    if pieces.is_empty() {
        return refuse(socket).await;
    }
    session.delay().await;
    let chunks = pieces.clone().map(|piece| session.chunk(piece));
    let chunks = chunks.collect::<anyhow::Result<Vec<_>>>()?;
    if session.script.player != Player::Dash {
        // The hint of a part, and a segment that is whole, are answered once they are there.
        session.wait_for(pieces.end - 1).await;
    }
    let length: usize = chunks.iter().map(Vec::len).sum();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    socket.write_all(head.as_bytes()).await?;
    for (piece, chunk) in pieces.zip(&chunks) {
        session.wait_for(piece).await;
        session.send(socket, chunk).await?;
    }
    Ok(true)
}

/// Sends an answer at once. Another request may follow.
async fn send(socket: &mut TcpStream, head: &str, body: &[u8]) -> anyhow::Result<bool> {
    let length = body.len();
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\n\r\n");
    socket.write_all(&[head.as_bytes(), body].concat()).await?;
    Ok(true)
}

async fn refuse(socket: &mut TcpStream) -> anyhow::Result<bool> {
    send(socket, "404 Not Found", b"").await
}
