//! How a connection receives requests, and waits.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncWriteExt, Interest, ReadBuf};
use tokio::time::Instant;

use super::{Connection, Fault};
use crate::Handler;
use crate::io::Stream;

/// Bytes per read.
const READ: usize = 16 << 10;

/// How many bytes of unread requests a connection takes from a peer while an answer is made or
/// sent. The rest waits in the kernel.
const MAX_AHEAD: usize = 16 << 10;

/// How long a connection without any request yet may take to send one once the server drains. So a
/// client that checks whether the server is ready gets an answer.
const FIRST_REQUEST: Duration = Duration::from_millis(500);

/// How many bytes are read, and for how long, after the last response on a connection that we
/// close. Unread input would make the kernel drop the response (RFC 9112 9.6).
pub(super) const LINGER: (usize, Duration) = (1 << 20, Duration::from_secs(2));

thread_local! {
    /// Buffer for the thread's reads. A connection keeps only bytes that it cannot use at once, so
    /// an idle connection has no buffer.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// Result of waiting for input.
pub(super) enum Input {
    Received,
    Closed,
    Expired,
    Draining,
}

impl<S: Stream, H: Handler> Connection<S, H> {
    /// Reads and drops a request's payload. Returns false if it does not arrive.
    pub(super) async fn discard(&mut self, mut payload: u64) -> Result<bool, Fault> {
        loop {
            let n = payload.min(self.input.len() as u64);
            self.input.advance(n as usize);
            payload -= n;
            if payload == 0 {
                // The next head has its own time limit.
                self.head_deadline = None;
                return Ok(true);
            }
            self.flush().await?;
            let deadline = *self
                .head_deadline
                .get_or_insert_with(|| Instant::now() + self.shared.config.head_timeout);
            if !matches!(self.wait(deadline, false).await?, Input::Received) {
                return Ok(false);
            }
        }
    }

    /// Reads a request's payload. `None` if it does not arrive.
    pub(super) async fn collect(&mut self, payload: usize) -> Result<Option<Bytes>, Fault> {
        self.flush().await?;
        while self.input.len() < payload {
            let deadline = *self
                .head_deadline
                .get_or_insert_with(|| Instant::now() + self.shared.config.head_timeout);
            if !matches!(self.wait(deadline, false).await?, Input::Received) {
                return Ok(None);
            }
        }
        self.head_deadline = None;
        Ok(Some(self.input.split_to(payload).freeze()))
    }

    /// Waits until the head may be complete.
    pub(super) async fn fill(&mut self) -> Result<Input, Fault> {
        let config = &self.shared.config;
        let (max_head, head_timeout, now) = (config.max_head, config.head_timeout, Instant::now());
        let mut deadline = if !self.input.is_empty() {
            *self.head_deadline.get_or_insert(now + head_timeout)
        } else {
            self.input = BytesMut::new();
            now + if self.served { config.idle_timeout } else { head_timeout }
        };
        loop {
            let before = self.input.len();
            let input = self.wait(deadline, before == 0).await?;
            // Parsing always begins at the start of the head. A peer that sends byte by byte must
            // cause it only for the first bytes and at line ends.
            let promising = self.input.len() < 512
                || self.input.len() > max_head
                || self.input[before..].contains(&b'\n');
            if promising || !matches!(input, Input::Received) {
                return Ok(input);
            }
            // The head has begun, if not before.
            let begun = || Instant::now() + head_timeout;
            deadline = *self.head_deadline.get_or_insert_with(begun);
        }
    }

    /// Waits for input.
    async fn wait(&mut self, mut deadline: Instant, idle: bool) -> Result<Input, Fault> {
        poll_fn(|cx| {
            if let Poll::Ready(n) = self.poll_read(cx) {
                return Poll::Ready(Ok(if n? == 0 { Input::Closed } else { Input::Received }));
            }
            self.burst = 0;
            if idle && Pin::new(&mut self.drain).poll(cx).is_ready() {
                if self.served {
                    return Poll::Ready(Ok(Input::Draining));
                }
                // The connection's first request may already be on its way.
                if !std::mem::replace(&mut self.late, true) {
                    deadline = deadline.min(Instant::now() + FIRST_REQUEST);
                }
            }
            self.timer.poll(deadline, cx).map(|()| Ok(Input::Expired))
        })
        .await
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            self.input.extend_from_slice(buffer.filled());
            self.received = std::time::Instant::now();
            Poll::Ready(Ok(buffer.filled().len()))
        })
    }

    /// Waits for an answer, or for the next part of one, unless the peer is gone. Requests that the
    /// peer sends meanwhile are kept, as long as there is room.
    ///
    /// A peer that has closed its sending half may still wait for the answer (RFC 9112 9.6). A peer
    /// that has closed the connection looks the same until something is sent to it. So the driver
    /// waits in both cases: every answer takes a limited time.
    pub(super) async fn unless_gone<T>(
        &mut self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, Fault> {
        if !self.half_closed {
            let ready = poll_fn(|cx| match poll(cx) {
                Poll::Ready(ready) => Poll::Ready(Ok(Some(ready))),
                Poll::Pending => self.poll_last(cx).map(|last| last.map(|()| None)),
            });
            if let Some(ready) = ready.await? {
                return Ok(ready);
            }
            self.half_closed = true;
        }
        let mut reset = pin!(self.stream.tcp().ready(Interest::ERROR));
        poll_fn(|cx| match poll(cx) {
            Poll::Ready(ready) => Poll::Ready(Ok(ready)),
            Poll::Pending => reset.as_mut().poll(cx).map(|_| Err(Fault::Gone)),
        })
        .await
    }

    /// Ready when the peer has closed its sending half.
    fn poll_last(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.input.len() < MAX_AHEAD {
            if ready!(self.poll_read(cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }
}

/// Closes a connection in such a way that its last response arrives.
pub(super) async fn linger<S: Stream>(mut stream: S) {
    let (most, time) = LINGER;
    let end = async {
        stream.shutdown().await?;
        let mut read = 0;
        while read < most {
            let n = poll_fn(|cx| {
                SCRATCH.with_borrow_mut(|scratch| {
                    let mut buffer = ReadBuf::new(scratch);
                    ready!(Pin::new(&mut stream).poll_read(cx, &mut buffer))?;
                    Poll::Ready(io::Result::Ok(buffer.filled().len()))
                })
            })
            .await?;
            if n == 0 {
                break;
            }
            read += n;
        }
        io::Result::Ok(())
    };
    // The connection is closed now in any case.
    let _ = tokio::time::timeout(time, end).await;
}
