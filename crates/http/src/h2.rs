//! Connections of HTTP/2 (RFC 9113), with hyper. Each request is answered like one of the control
//! plane's connections.
//!
//! A peer's use of memory is limited: by the 64 KiB that TLS holds of a connection, by its number of
//! streams, and for each stream by one head, two blocks of its payload, and [`SEND`]. The flow
//! control of a stream makes its payload wait for the peer, so a payload that is not read delays no
//! other stream. A payload is given up when the peer took less than a block of it (16 KiB) in
//! `Config::stall_timeout`.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::spawn_local;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::content::Progress;
use crate::counters::count;
use crate::gather::Gather;
use crate::io::{Io, Stream};
use crate::net::{LogId, Permit, Timer};
use crate::shared::Shared;
use crate::{Handler, control};

/// Concurrent requests per connection (RFC 9113 6.5.2 recommends no fewer).
const STREAMS: u32 = 100;

/// Bytes of a payload that wait for the kernel, in addition to the block being sent.
const SEND: usize = 32 << 10;

/// How many bytes of request payloads a peer may send before they are read: per stream, and per
/// connection. Media requests have no payload.
const WINDOWS: (u32, u32) = (64 << 10, 128 << 10);

/// Most requests that a peer may cancel before the server sees them, and most requests that end
/// with a protocol error. A peer above either limit is disconnected (CVE-2023-44487,
/// CVE-2025-8671).
const RESETS: (usize, usize) = (20, 100);

/// Time after which a silent peer is pinged, and time for its answer.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// How long the orderly end of an idle connection may take.
const FAREWELL: Duration = Duration::from_secs(2);

tokio::task_local! {
    /// Progress of the payload that a stream's task sends.
    static PROGRESS: Rc<Progress>;
}

/// Serves a connection to its end.
pub(crate) async fn drive<S: Stream, H: Handler>(
    stream: S,
    peer: SocketAddr,
    permit: Permit,
    shared: Rc<Shared<H>>,
) {
    count(&shared.tally().http2, 1);
    let io = Io::new(stream, Bytes::new(), peer, shared.config.stall_timeout, permit);
    let io = io.counted(shared.own_tally());
    let stalled = io.stalled();
    let streams = Streams {
        shared: Rc::clone(&shared),
        peer,
        stalled: Rc::clone(&stalled),
        activity: Rc::new(Activity::new()),
    };
    let activity = Rc::clone(&streams.activity);
    let service = service_fn(|request| {
        let shared = Rc::clone(&shared);
        async move {
            let progress = PROGRESS.with(Rc::clone);
            // hyper and the stream's task move the future several times.
            let answer = Box::pin(control::answer(&shared, peer, request, progress, None));
            Ok::<_, Infallible>(answer.await)
        }
    });
    let io = Gather::new(io);
    // The size of a head counts names and values, and 32 bytes for each field (RFC 9113 6.5.2).
    let head = u32::try_from(shared.config.max_head).unwrap_or(u32::MAX);
    let mut connection = pin!(
        hyper::server::conn::http2::Builder::new(streams)
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(head)
            .max_send_buf_size(SEND)
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .max_pending_accept_reset_streams(RESETS.0)
            .max_local_error_reset_streams(RESETS.1)
            .keep_alive_interval(PING.0)
            .keep_alive_timeout(PING.1)
            .serve_connection(TokioIo::new(io.clone()), service)
    );
    let config = &shared.config;
    let result = tokio::select! {
        result = gathered(connection.as_mut(), &io, &activity) => result,
        () = shared.worker.drain.begun() => {
            connection.as_mut().graceful_shutdown();
            gathered(connection, &io, &activity).await
        }
        () = activity.idle(config.head_timeout, config.idle_timeout) => {
            connection.as_mut().graceful_shutdown();
            activity.rest();
            tokio::select! {
                result = gathered(connection, &io, &activity) => result,
                // The peer may have made another request before it heard of the end.
                () = activity.idle(FAREWELL, FAREWELL) => return debug!(%peer, "closed: idle"),
            }
        }
    };
    control::lost(&shared, peer, &stalled, result);
}

/// Runs a connection to its end, and sends what each of its turns wrote.
async fn gathered<S: Stream, F: Future>(
    mut connection: Pin<&mut F>,
    io: &Gather<S>,
    activity: &Activity,
) -> F::Output {
    poll_fn(|cx| {
        let result = connection.as_mut().poll(cx);
        io.poll_send(cx);
        activity.sends(io.is_waiting());
        result
    })
    .await
}

/// Runs the tasks of a connection's streams.
struct Streams<H> {
    shared: Rc<Shared<H>>,
    peer: SocketAddr,
    /// Whether the connection has stalled.
    stalled: Rc<Cell<bool>>,
    activity: Rc<Activity>,
}

impl<H> Clone for Streams<H> {
    fn clone(&self) -> Self {
        Self {
            shared: Rc::clone(&self.shared),
            peer: self.peer,
            stalled: Rc::clone(&self.stalled),
            activity: Rc::clone(&self.activity),
        }
    }
}

impl<H: Handler, F: Future<Output = ()> + 'static> Executor<F> for Streams<H> {
    fn execute(&self, future: F) {
        let (this, task) = (self.clone(), self.shared.task());
        let open = Open::new(&self.activity);
        let progress = Progress::new(&self.stalled);
        let run = PROGRESS.scope(Rc::clone(&progress), async move {
            let _held = (task, open);
            let timeout = this.shared.config.stall_timeout;
            // Dropping the future resets the stream.
            if !watch(future, &progress, timeout).await {
                count(&this.shared.tally().stalled, 1);
                warn!(peer = %this.peer, "response ended: the peer took less than 16 KiB in {timeout:?}");
            }
        });
        spawn_local(LogId::current().scope(run));
    }
}

/// Runs a stream's task to its end. Returns false if the peer took less than a block of its payload
/// in `timeout`.
async fn watch(future: impl Future<Output = ()>, progress: &Progress, timeout: Duration) -> bool {
    let mut future = pin!(future);
    let mut timer = None;
    poll_fn(|cx| {
        if future.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        let Some(since) = progress.waiting() else { return Poll::Pending };
        let timer = timer.get_or_insert_with(|| Timer::new(timeout));
        timer.poll(since + timeout, cx).map(|()| {
            progress.stall();
            false
        })
    })
    .await
}

/// Records when a connection has streams, or bytes that wait for the peer.
struct Activity {
    open: Cell<usize>,
    /// Whether bytes wait for the peer. Those of a stream may wait after its task has ended.
    sends: Cell<bool>,
    /// When the last stream or wait ended; at first, when the connection began.
    since: Cell<Instant>,
    served: Cell<bool>,
}

impl Activity {
    fn new() -> Self {
        Self {
            open: Cell::new(0),
            sends: Cell::new(false),
            since: Cell::new(Instant::now()),
            served: Cell::new(false),
        }
    }

    /// Tells whether bytes wait for the peer.
    fn sends(&self, sends: bool) {
        if self.sends.replace(sends) && !sends {
            self.rest();
        }
    }

    /// Begins the idle time.
    fn rest(&self) {
        self.since.set(Instant::now());
    }

    fn is_busy(&self) -> bool {
        self.open.get() > 0 || self.sends.get()
    }

    /// Ready when the connection has been idle for too long.
    async fn idle(&self, first: Duration, between: Duration) {
        loop {
            let timeout = if self.served.get() { between } else { first };
            let now = Instant::now();
            let since = if self.is_busy() { now } else { self.since.get() };
            if since + timeout <= now {
                return;
            }
            tokio::time::sleep_until(since + timeout).await;
        }
    }
}

/// An open stream of a connection.
struct Open(Rc<Activity>);

impl Open {
    fn new(activity: &Rc<Activity>) -> Self {
        activity.open.set(activity.open.get() + 1);
        activity.served.set(true);
        Self(Rc::clone(activity))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.rest();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hyper::body::Body as _;

    use super::*;
    use crate::content::Content;
    use crate::counters::{Counters, OwnTally};
    use crate::net::{Drain, Gate};

    /// Serves a stream whose peer takes a block before each of these pauses. Returns after how long
    /// the peer was found to take nothing, if it was.
    async fn lasts(timeout: Duration, pauses: &[Duration]) -> Option<Duration> {
        let began = Instant::now();
        let progress = Progress::new(&Rc::default());
        let counters = Arc::new(Counters::new(Arc::new(Gate::new(1, None)), 1));
        let body = crate::Body::Pieces(vec![Bytes::from_static(&[7; 1 << 20]).into()]);
        let (tally, drain) = (OwnTally::new(&counters, 0), Drain::default().begun());
        let peer = (std::net::Ipv4Addr::LOCALHOST, 1).into();
        let mut payload = Content::media(body, peer, Rc::clone(&progress), tally, drain);
        let takes = async {
            for pause in pauses {
                let block = poll_fn(|cx| pin!(&mut payload).poll_frame(cx)).await;
                assert!(block.unwrap().unwrap().into_data().unwrap().len() < 1 << 20);
                tokio::time::sleep(*pause).await;
            }
        };
        (!watch(takes, &progress, timeout).await).then(|| began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_goes_on_while_its_peer_takes_a_block_in_time() {
        const TIMEOUT: Duration = Duration::from_secs(12);
        let pauses = [TIMEOUT * 3 / 4; 20];
        assert_eq!(lasts(TIMEOUT, &pauses).await, None);
        let last = [&pauses[..], &[Duration::from_secs(3600)]].concat();
        let ended = lasts(TIMEOUT, &last).await.unwrap() - TIMEOUT * 3 / 4 * 20;
        assert!((TIMEOUT..TIMEOUT * 5 / 4).contains(&ended), "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_idles_from_its_beginning_or_from_the_end_of_its_last_stream() {
        const FIRST: Duration = Duration::from_secs(5);
        const BETWEEN: Duration = Duration::from_secs(60);
        let began = Instant::now();
        Activity::new().idle(FIRST, BETWEEN).await;
        assert_eq!(began.elapsed(), FIRST);

        let (began, activity) = (Instant::now(), Rc::new(Activity::new()));
        let streams = async {
            tokio::time::sleep(FIRST / 2).await;
            let open = [(); 2].map(|()| Open::new(&activity));
            for open in open {
                // A stream may last longer than either time-out.
                tokio::time::sleep(BETWEEN * 2).await;
                drop(open);
            }
            Instant::now()
        };
        let ((), ended) = tokio::join!(activity.idle(FIRST, BETWEEN), streams);
        assert_eq!(began.elapsed(), FIRST / 2 + BETWEEN * 5);
        assert_eq!(ended.elapsed(), BETWEEN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_does_not_idle_while_bytes_wait_for_its_peer() {
        let (began, activity) = (Instant::now(), Activity::new());
        let waits = async {
            for _ in 0..2 {
                activity.sends(true);
                tokio::time::sleep(FAREWELL * 3).await;
                activity.sends(false);
                tokio::time::sleep(FAREWELL / 2).await;
            }
        };
        let ((), ()) = tokio::join!(activity.idle(FAREWELL, FAREWELL), waits);
        assert_eq!(began.elapsed(), FAREWELL * 15 / 2);
    }
}
