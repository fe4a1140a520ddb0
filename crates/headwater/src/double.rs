//! Stand-ins for tests of rules about time: a connection without a socket, and a stream whose media
//! come as the paused clock goes on. Time passes only while the test waits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::net::Told;
use http::{Fault, Held, Outbox, Socket, Transport};
use live::{Publisher, PublisherInfo, Stream};
use media::{Sample, codec};
use tokio::time::Instant;

use crate::Origin;
use crate::config::Config;

/// The address of the peer.
pub(crate) const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// Time between two moments at which a link carries bytes.
pub(crate) const STEP: Duration = Duration::from_millis(10);

/// What the link of an attentive peer carries, in bytes a second.
pub(crate) const ALL: usize = 1 << 30;

/// Frames that a stream has when its first viewer comes. There must be whole segments before
/// viewers can choose a rendition.
const FIRST: i64 = 100;

/// A round trip in microseconds, while nothing waits.
const ROUND: u64 = 10_000;

/// A connection. The server has a clone of it; the test is its peer.
#[derive(Debug, Clone)]
pub(crate) struct Double(Rc<State>);

#[derive(Debug, Default)]
struct State {
    /// From the peer, and not read yet.
    input: RefCell<VecDeque<u8>>,
    /// In the kernel: the peer has not taken it.
    queued: RefCell<VecDeque<u8>>,
    /// Bytes that the kernel takes.
    capacity: Cell<usize>,
    /// Whether the kernel was full and has not told the server that there is room.
    is_full: Cell<bool>,
    /// What the peer has taken and the test has not looked at.
    taken: RefCell<Vec<u8>>,
    acknowledged: Cell<u64>,
    /// Time in microseconds for which something was queued.
    busy: Cell<u64>,
    is_forgotten: Cell<bool>,
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
}

impl Double {
    /// A connection whose kernel takes `capacity` bytes that the peer has not taken.
    pub(crate) fn new(capacity: usize) -> Self {
        Self(Rc::new(State { capacity: capacity.into(), ..State::default() }))
    }

    /// The peer sends this.
    pub(crate) fn say(&self, bytes: &[u8]) {
        self.0.input.borrow_mut().extend(bytes);
        wake(&self.0.reader);
    }

    /// The peer takes at most `most` bytes. As with TCP, the server learns that there is room only
    /// when a third of the kernel's bytes are gone.
    pub(crate) fn take(&self, most: usize) {
        let State { queued, taken, is_full, writer, .. } = &*self.0;
        let mut queued = queued.borrow_mut();
        let count = most.min(queued.len());
        taken.borrow_mut().extend(queued.drain(..count));
        self.0.acknowledged.set(self.0.acknowledged.get() + count as u64);
        if queued.len() <= self.0.capacity.get() * 2 / 3 && is_full.replace(false) {
            wake(writer);
        }
    }

    /// Lets a step of time pass, in which the link carries up to `rate` bytes a second.
    pub(crate) async fn carry(&self, rate: usize) {
        let waits = !self.0.queued.borrow().is_empty();
        tokio::time::sleep(STEP).await;
        if waits {
            self.0.busy.set(self.0.busy.get() + STEP.as_micros() as u64);
        }
        self.take(rate / 100);
    }

    /// What the peer has taken since this was last called.
    pub(crate) fn taken(&self) -> Vec<u8> {
        self.0.taken.take()
    }

    /// Whether the server has dropped the connection.
    pub(crate) fn is_closed(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    /// Whether the kernel was told to drop what the peer has not taken.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.0.is_forgotten.get()
    }

    /// Waits until the server has dropped the connection. Returns how long that took.
    pub(crate) async fn closed(&self) -> Duration {
        let began = Instant::now();
        while !self.is_closed() {
            assert!(began.elapsed() < Duration::from_secs(3600), "it is not closed");
            tokio::time::sleep(STEP).await;
        }
        began.elapsed()
    }

    fn write(&self, bytes: impl IntoIterator<Item = u8>) -> usize {
        let mut queued = self.0.queued.borrow_mut();
        let before = queued.len();
        let capacity = self.0.capacity.get();
        let room = if self.0.is_full.get() { 0 } else { capacity.saturating_sub(before) };
        queued.extend(bytes.into_iter().take(room));
        if queued.len() >= capacity {
            self.0.is_full.set(true);
        }
        queued.len() - before
    }

    fn poll_written(&self, written: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if written > 0 {
            return Poll::Ready(Ok(written));
        }
        *self.0.writer.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

fn wake(waker: &RefCell<Option<Waker>>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

fn bytes(parts: &[IoSlice<'_>]) -> impl Iterator<Item = u8> {
    parts.iter().flat_map(|part| part.iter().copied())
}

impl Transport for Double {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.0.input.borrow().is_empty() {
            return Poll::Ready(Ok(()));
        }
        *self.0.reader.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match io::Read::read(&mut *self.0.input.borrow_mut(), buffer)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            read => Ok(read),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(usize::from(!self.0.is_full.get()), cx).map_ok(drop)
    }

    fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.write(bytes(parts)) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            written => Ok(written),
        }
    }

    fn poll_send(
        &self,
        outbox: &mut Outbox,
        held: &Held,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Fault>> {
        held.poll_send(&mut &*self, outbox, cx)
    }

    fn poll_shutdown(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn unacknowledged(&self) -> Option<u64> {
        Some(self.0.queued.borrow().len() as u64)
    }

    fn told(&self) -> Option<Told> {
        Some(Told {
            unacknowledged: self.unacknowledged()?,
            acknowledged: self.0.acknowledged.get(),
            busy: self.0.busy.get(),
            viewer_limited: 0,
            rtt: ROUND,
            min_rtt: ROUND,
        })
    }

    fn bound_unsent(&self, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn bound(&self, bytes: usize) -> io::Result<()> {
        self.0.capacity.set(2 * bytes);
        Ok(())
    }

    fn forget(&self) {
        self.0.is_forgotten.set(true);
    }
}

impl Socket for &Double {
    fn poll_send(
        &mut self,
        parts: &[IoSlice<'_>],
        _: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll_written(self.write(bytes(parts)), cx)
    }

    fn poll_sendfile(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut bytes = vec![0; length];
        let read = File::from(file.try_clone_to_owned()?).read_at(&mut bytes, offset)?;
        bytes.truncate(read);
        self.poll_written(self.write(bytes), cx)
    }
}

/// A live stream `x` that is published as time passes, 25 frames a second in each rendition.
pub(crate) struct Source {
    pub(crate) origin: Arc<Origin>,
    publishers: Vec<(Publisher, usize)>,
    began: Instant,
    frames: i64,
}

impl Source {
    const NAMES: [&str; 3] = ["low", "medium", "high"];

    /// Begins the stream with renditions of these bit rates.
    pub(crate) fn new(config: Config, bits: &[usize]) -> Self {
        let origin = Arc::new(Origin::new(config));
        let begin = |(name, bits): (&str, &usize)| {
            let rendition = (name != Self::NAMES[0]).then(|| name.to_owned());
            let info = PublisherInfo { peer: Some(PEER), protocol: "test", rendition };
            let mut publisher = origin.registry.publish("x", info, origin.now()).unwrap();
            let avc = codec::avc::Config::parse(testkit::avc_record(31).into()).unwrap();
            publisher.track(0, media::Codec::Avc(avc), 1000, *b"und", origin.now()).unwrap();
            (publisher, bits / 8 / 25)
        };
        let publishers = Self::NAMES.into_iter().zip(bits).map(begin).collect();
        let mut source = Self { origin, publishers, began: Instant::now(), frames: 0 };
        source.publish(FIRST);
        source
    }

    /// Publishes this many frames, with a keyframe every second.
    fn publish(&mut self, frames: i64) {
        for _ in 0..frames {
            for (publisher, size) in &mut self.publishers {
                let (dts, sync) = (self.frames * 40, self.frames % 25 == 0);
                let data = vec![0; *size].into();
                let sample = Sample { dts, cts: 0, duration: 0, sync, data };
                publisher.sample(0, sample, self.origin.now()).unwrap();
            }
            self.frames += 1;
        }
    }

    /// Publishes what is due by now.
    pub(crate) fn go_on(&mut self) {
        let due = FIRST + self.began.elapsed().as_millis() as i64 / 40;
        self.publish(due - self.frames);
    }

    /// Ends the stream: its publishers leave, and do not return in time.
    pub(crate) fn end(&mut self) {
        self.publishers.clear();
        let now = self.origin.now();
        self.origin.registry.sweep(now);
        self.origin.registry.sweep(now.after(Duration::from_secs(3600)));
    }

    pub(crate) fn stream(&self) -> Arc<Stream> {
        self.origin.registry.stream("x").unwrap()
    }
}
