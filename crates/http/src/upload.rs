//! Payloads of requests to the control plane, with a time limit.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

/// A payload that must be complete at a deadline, however slowly it arrives. After the deadline it
/// fails with [`TimedOut`](io::ErrorKind::TimedOut).
pub(crate) struct Upload {
    payload: Incoming,
    deadline: Instant,
    /// Present while the payload is waited for.
    timer: Option<Pin<Box<Sleep>>>,
    late: Late,
}

/// Whether a payload missed its deadline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Late(Arc<AtomicBool>);

impl Late {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Upload {
    /// A payload that must be complete within `timeout` from now.
    pub(crate) fn new(payload: Incoming, timeout: Duration) -> Self {
        let deadline = Instant::now() + timeout;
        Self { payload, deadline, timer: None, late: Late::default() }
    }

    /// Tells later whether the payload missed its deadline.
    pub(crate) fn late(&self) -> Late {
        self.late.clone()
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.payload).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
        }
        // The timer is made here, because it belongs to the runtime that reads the payload.
        let deadline = self.deadline;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        std::task::ready!(timer.as_mut().poll(cx));
        self.late.0.store(true, Ordering::Release);
        Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.payload.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.payload.size_hint()
    }
}
