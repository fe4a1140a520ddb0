//! How a connection sends responses.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use socket2::SockRef;
use tokio::time::Instant;

use super::{Asked, Connection, Fault};
use crate::counters::count;
use crate::io::Stream;
use crate::net::Patience;
use crate::{Body, BodyStream, Handler, Piece, Response, Version, date, length, slice};

/// Answers to pipelined requests are collected up to this many bytes before they are sent.
const COALESCE: u64 = 64 << 10;

/// After how many bytes the other connections of the thread have their turn. The last call may send
/// more.
const BURST: usize = 512 << 10;

/// How many unsent bytes the kernel may take of a payload in files or in a window. They are not
/// copied, but they count as TCP memory. If a file is written to meanwhile, its unsent bytes go out
/// as they are then. The driver is woken when half of this is sent. A smaller limit costs more
/// wakes and calls. With this one, an answer of 1 MiB is still taken at once.
const FILES_UNSENT: u32 = 1 << 20;

/// How the end of a streamed payload is marked.
#[derive(Clone, Copy)]
enum Framing {
    /// Chunked transfer coding, RFC 9112 7.1.
    Chunked,
    /// By its length: this many bytes are left.
    Length(u64),
    /// By the end of the connection.
    Close,
}

impl Framing {
    fn of(chunked: bool) -> Self {
        if chunked { Self::Chunked } else { Self::Close }
    }
}

impl<S: Stream, H: Handler> Connection<S, H> {
    /// Sends a response, or puts it in the outbox if it is short. Returns whether the connection
    /// can be used again.
    pub(super) async fn respond(
        &mut self,
        response: Response,
        asked: Asked,
    ) -> Result<bool, Fault> {
        let has_content = response.may_have_content();
        let (mut head, body) = response.into_parts();
        date::write_line(&mut head);
        head.extend_from_slice(&self.shared.cors);
        let chunked = asked.version == Version::Http11;
        let mut keep_alive = asked.keep_alive && !self.shared.worker.drain.has_begun();
        match body.size() {
            _ if !has_content => {}
            Some(size) => {
                head.extend_from_slice(b"Content-Length: ");
                push_number(&mut head, size);
                head.extend_from_slice(b"\r\n");
            }
            None if chunked => head.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            // The end of the payload is the end of the connection.
            None => keep_alive = false,
        }
        head.extend_from_slice(match (keep_alive, asked.version) {
            (true, Version::Http11) => b"\r\n".as_slice(),
            (true, Version::Http10) => b"Connection: keep-alive\r\n\r\n",
            (false, _) => b"Connection: close\r\n\r\n",
        });
        self.outbox.push(head.into());
        if has_content && !asked.head_only {
            match body {
                Body::Empty => {}
                Body::Pieces(pieces) => {
                    self.bound_unsent(self.holds_back(&pieces))?;
                    for piece in pieces {
                        self.outbox.push_piece(piece)?;
                    }
                }
                Body::Stream(stream) => {
                    self.bound_unsent(true)?;
                    self.stream(stream, Framing::of(chunked)).await?;
                }
                Body::Sized(size, stream) => {
                    self.bound_unsent(true)?;
                    self.stream(stream, Framing::Length(size)).await?;
                }
            }
        }
        // Files are kept open for only one response at a time.
        if self.outbox.size() > COALESCE || self.outbox.has_files() {
            self.flush().await?;
            self.outbox.release();
        }
        Ok(keep_alive)
    }

    /// Whether the kernel may take only few unsent bytes of a complete payload. If its bytes are
    /// copied, they take memory in the kernel. Bytes that are sent from a file are in memory anyway
    /// and never skipped. The kernel may take more of them, so that the driver is woken less often.
    fn holds_back(&self, pieces: &[Piece]) -> bool {
        let copied = |piece: &Piece| !S::SENDS_FILES || matches!(piece, Piece::Bytes(_));
        let copied: u64 = pieces.iter().filter(|piece| copied(piece)).map(Piece::len).sum();
        // A shorter payload reaches neither limit.
        let limit = u64::from(self.shared.config.unsent_limit);
        if length(pieces) <= limit { self.bounded } else { copied > limit }
    }

    /// Sets how many unsent bytes the kernel may take: few, or as many as for files.
    pub(super) fn bound_unsent(&mut self, bounded: bool) -> io::Result<()> {
        if self.bounded != bounded {
            let limit = self.shared.config.unsent_limit;
            let most = if bounded { limit } else { limit.max(FILES_UNSENT) };
            SockRef::from(self.stream.tcp()).set_tcp_notsent_lowat(most)?;
            self.bounded = bounded;
        }
        Ok(())
    }

    /// Sends a payload piece by piece.
    async fn stream(
        &mut self,
        mut body: Box<dyn BodyStream>,
        framing: Framing,
    ) -> Result<(), Fault> {
        let sent = self.pieces(&mut *body, framing).await;
        if matches!(sent, Err(Fault::Stalled | Fault::TooSlow)) {
            body.stalled();
        }
        // An orderly end of the connection would tell that the payload is complete.
        if sent.is_err() && matches!(framing, Framing::Close) {
            let _ = self.stream.tcp().set_zero_linger();
        }
        sent
    }

    async fn pieces(
        &mut self,
        body: &mut dyn BodyStream,
        mut framing: Framing,
    ) -> Result<(), Fault> {
        let mut told = false;
        let mut drain = self.shared.worker.drain.begun();
        while !matches!(framing, Framing::Length(0)) {
            let parts = match poll_fn(|cx| Poll::Ready(body.poll_next(cx))).await {
                Poll::Ready(next) => next,
                Poll::Pending => {
                    self.flush().await?;
                    self.unless_gone(|cx| {
                        if !told && Pin::new(&mut drain).poll(cx).is_ready() {
                            told = true;
                            body.drain();
                        }
                        body.poll_next(cx)
                    })
                    .await?
                }
            };
            let Some(mut parts) = parts.transpose()? else { break };
            if let Framing::Length(left) = &mut framing {
                if *left < length(&parts) {
                    parts = slice(&parts, &(0..*left));
                }
                *left -= length(&parts);
            }
            let chunked = matches!(framing, Framing::Chunked);
            let size = length(&parts);
            // An empty chunk would end the payload.
            if size == 0 {
                continue;
            }
            if chunked {
                self.outbox.push(format!("{size:x}\r\n").into());
            }
            for piece in parts {
                self.outbox.push_streamed(piece)?;
            }
            if chunked {
                self.outbox.push(Bytes::from_static(b"\r\n"));
            }
            self.flush().await?;
            // A stream that is always ready is told here that the server drains.
            if !told && self.shared.worker.drain.has_begun() {
                told = true;
                body.drain();
            }
        }
        match framing {
            Framing::Chunked => self.outbox.push(Bytes::from_static(b"0\r\n\r\n")),
            Framing::Close | Framing::Length(0) => {}
            Framing::Length(_) => {
                let short = io::Error::new(io::ErrorKind::UnexpectedEof, "payload cut short");
                return Err(short.into());
            }
        }
        Ok(())
    }

    /// Sends everything in the outbox.
    pub(super) async fn flush(&mut self) -> Result<(), Fault> {
        let mut until = None;
        while self.outbox.size() > 0 || self.stream.holds() {
            let mut patience = None;
            let sent = poll_fn(|cx| {
                let tally = self.shared.tally();
                if self.outbox.size() > 0
                    && let Poll::Ready(sent) = self.outbox.poll_write(&mut self.stream, tally, cx)
                {
                    return Poll::Ready(sent.map_err(Fault::from));
                }
                // Each byte that the kernel takes restarts the time limit.
                if self.stream.holds()
                    && let Poll::Ready(drained) = self.stream.poll_drain(cx)
                {
                    return Poll::Ready(drained.map(|_| 0).map_err(Fault::from));
                }
                self.burst = 0;
                // A slow disk is not the peer's fault.
                if self.outbox.is_reading() {
                    patience = None;
                    return Poll::Pending;
                }
                let config = &self.shared.config;
                // Memory that is kept for a slow peer is memory that the live streams lack. The
                // looks at the peer wake this often enough.
                if self.outbox.keeps_regions() {
                    let now = Instant::now();
                    if now >= *until.get_or_insert(now + config.region_timeout) {
                        return Poll::Ready(Err(Fault::TooSlow));
                    }
                }
                let timeout = config.stall_timeout;
                let patience = patience.get_or_insert_with(|| Patience::new(timeout));
                let stalled = patience.poll(&mut self.timer, self.stream.tcp(), cx);
                stalled.map(|()| Err(Fault::Stalled))
            })
            .await?;
            count(&self.shared.tally().bytes_sent, sent as u64);
            // A socket that has just become full has little room at once. So calling again is worth
            // it only after the others.
            self.take_turns(if self.outbox.was_cut_short() { BURST } else { sent }).await;
        }
        Ok(())
    }

    /// Lets the other connections of the thread have their turn, if this one has used up its own.
    pub(super) async fn take_turns(&mut self, done: usize) {
        self.burst += done;
        if self.burst >= BURST {
            self.burst = 0;
            tokio::task::yield_now().await;
        }
    }
}

fn push_number(head: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    head.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for number in [0, 7, 10, 4096, u64::MAX] {
            let mut head = Vec::new();
            push_number(&mut head, number);
            assert_eq!(head, number.to_string().as_bytes());
        }
    }
}
