//! Shares a track's live edge within one event loop. A new part wakes the loop once, however many
//! viewers wait there.
//!
//! If the publisher's thread woke each waiter itself, each would cost a system call and a turn of
//! the loop. So one task of the loop waits for the track, and wakes the others through the loop's
//! own queue.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use http::net::Drain;
use live::{Status, Stream, Track, Window};
use tokio::sync::watch;
use tokio::task::spawn_local;

/// The tracks for whose newest part somebody on this event loop waits.
#[derive(Clone, Default)]
pub(super) struct Relays {
    tracks: Rc<RefCell<HashMap<*const Track, Relay>>>,
    drain: Drain,
}

struct Relay {
    /// Keeps the track's allocation alive: its address is the key and must not be reused.
    _track: Weak<Track>,
    window: Rc<watch::Sender<Arc<Window>>>,
}

impl Relays {
    /// Relays of the event loop that `drain` tells of the server's end.
    pub(super) fn new(drain: Drain) -> Self {
        Self { drain, ..Self::default() }
    }

    /// Follows the window of the stream's track. Use the receiver on this event loop.
    ///
    /// The first value is at least as new as the window at the time of this call. The sender is
    /// dropped when the track is, and when the server drains and nobody publishes the stream: no
    /// media come any more.
    pub(super) fn follow(
        &self,
        stream: &Arc<Stream>,
        track: &Arc<Track>,
    ) -> watch::Receiver<Arc<Window>> {
        let address = Arc::as_ptr(track);
        if let Some(relay) = self.tracks.borrow().get(&address) {
            update(&relay.window, track.window());
            return relay.window.subscribe();
        }
        let mut windows = track.subscribe();
        let newest = Arc::clone(&windows.borrow_and_update());
        let (sender, receiver) = watch::channel(newest);
        let window = Rc::new(sender);
        let relay = Relay { _track: Arc::downgrade(track), window: Rc::clone(&window) };
        self.tracks.borrow_mut().insert(address, relay);
        let listed = Listed { relays: self.clone(), address };
        // While nothing ends, the relay must not keep the stream's memory.
        let stream = Arc::downgrade(stream);
        let begun = self.drain.begun();
        let over = async move {
            begun.await;
            let Some(mut state) = stream.upgrade().map(|stream| stream.subscribe()) else { return };
            // Without a sender, the stream is gone too.
            let _ = state.wait_for(|state| state.status != Status::Live).await;
        };
        spawn_local(async move {
            tokio::select! {
                biased;
                () = forward(windows, &window) => {}
                () = over => {}
            }
            drop((listed, window));
        });
        receiver
    }
}

/// Passes on changes of a track's window while somebody on the loop follows it.
async fn forward(mut windows: watch::Receiver<Arc<Window>>, window: &watch::Sender<Arc<Window>>) {
    while windows.changed().await.is_ok() && window.receiver_count() > 0 {
        update(window, Arc::clone(&windows.borrow_and_update()));
    }
}

fn update(window: &watch::Sender<Arc<Window>>, newest: Arc<Window>) {
    window.send_if_modified(|window| {
        let is_new = !Arc::ptr_eq(window, &newest);
        *window = newest;
        is_new
    });
}

/// A relay's entry in the list. Dropping it removes the entry.
struct Listed {
    relays: Relays,
    address: *const Track,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.relays.tracks.borrow_mut().remove(&self.address);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use bytes::Bytes;
    use live::{PublisherInfo, Registry, Settings, UnixMicros};
    use media::{Codec, Sample, codec};
    use tokio::task::LocalSet;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn all_who_wait_see_each_part_and_none_is_kept_for_nobody() {
        LocalSet::new().run_until(tokio::time::timeout(LIMIT, wait())).await.unwrap();
    }

    async fn wait() {
        let (registry, now) =
            (Registry::new(Settings::default()), UnixMicros(1_700_000_000_000_000));
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = registry.publish("x", info, now).unwrap();
        let video = codec::avc::Config::parse(testkit::avc_record(31).into()).unwrap();
        publisher.track(0, Codec::Avc(video), 1000, *b"und", now).unwrap();
        let mut frame = 0_i64;
        // Publishes a second of video: several parts.
        let mut publish = || {
            for _ in 0..30 {
                let (dts, data) = (frame * 1000 / 30, Bytes::from_static(&[0; 64]));
                let sync = frame % 30 == 0;
                let now = now.after(Duration::from_millis(dts.unsigned_abs()));
                publisher.sample(0, Sample { dts, cts: 0, duration: 0, sync, data }, now).unwrap();
                frame += 1;
            }
        };
        publish();
        let stream = registry.stream("x").unwrap();
        let track = Arc::clone(&stream.state().tracks[0]);
        let relays = Relays::default();
        let woken = Rc::new(Cell::new(0));
        let waiters: Vec<_> = (0..100)
            .map(|_| {
                let (mut windows, woken) = (relays.follow(&stream, &track), Rc::clone(&woken));
                let seen = Arc::clone(&windows.borrow_and_update());
                spawn_local(async move {
                    windows.changed().await.unwrap();
                    woken.set(woken.get() + 1);
                    assert!(!Arc::ptr_eq(&seen, &windows.borrow()));
                })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!((woken.get(), relays.tracks.borrow().len()), (0, 1));
        publish();
        // A waiter that comes before the loop has noticed the change still sees the newest window.
        assert!(Arc::ptr_eq(&relays.follow(&stream, &track).borrow(), &track.window()));
        for waiter in waiters {
            waiter.await.unwrap();
        }
        assert_eq!(woken.get(), 100);
        // When nobody follows, the next part ends the relay.
        publish();
        while !relays.tracks.borrow().is_empty() {
            tokio::task::yield_now().await;
        }
        // The end of the track also ends it, for waiters too.
        let mut windows = relays.follow(&stream, &track);
        drop((publisher, track, stream));
        drop(registry);
        while windows.changed().await.is_ok() {}
        assert!(relays.tracks.borrow().is_empty());
    }

    #[tokio::test]
    async fn nobody_waits_for_a_stream_without_a_publisher_while_the_server_drains() {
        LocalSet::new().run_until(tokio::time::timeout(LIMIT, drain())).await.unwrap();
    }

    async fn drain() {
        let (registry, now) =
            (Registry::new(Settings::default()), UnixMicros(1_700_000_000_000_000));
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = registry.publish("x", info, now).unwrap();
        let video = codec::avc::Config::parse(testkit::avc_record(31).into()).unwrap();
        publisher.track(0, Codec::Avc(video), 1000, *b"und", now).unwrap();
        let stream = registry.stream("x").unwrap();
        let track = Arc::clone(&stream.state().tracks[0]);

        let drain = Drain::default();
        let relays = Relays::new(drain.clone());
        let mut windows = relays.follow(&stream, &track);
        windows.borrow_and_update();
        drain.begin();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        // The publisher may still send.
        assert!(!windows.has_changed().unwrap());
        drop(publisher);
        registry.sweep(now);
        assert!(windows.changed().await.is_err());
        // Those who come later do not wait either.
        assert!(relays.follow(&stream, &track).changed().await.is_err());
    }
}
