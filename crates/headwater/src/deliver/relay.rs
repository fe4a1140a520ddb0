//! The live edge as one event loop sees it: a new part wakes the loop once, however many wait there.
//!
//! A publisher's thread that woke each waiter would make a system call for each, and the loop go
//! round for each. So one task of the loop waits for the track, and wakes the others as its
//! neighbours, by putting them in the loop's own queue.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use live::{Track, Window};
use tokio::sync::watch;
use tokio::task::spawn_local;

/// The tracks whose newest part somebody on this event loop waits for.
#[derive(Clone, Default)]
pub(super) struct Relays(Rc<RefCell<HashMap<*const Track, Relay>>>);

struct Relay {
    /// Keeps the address, by which the track is known, from becoming another's.
    _track: Weak<Track>,
    window: Rc<watch::Sender<Arc<Window>>>,
}

impl Relays {
    /// The track's window, and whatever it becomes. To be used on this event loop.
    ///
    /// What is received is at least as new as the window was when this was called, and its sender
    /// is gone when the track is.
    pub(super) fn follow(&self, track: &Arc<Track>) -> watch::Receiver<Arc<Window>> {
        let address = Arc::as_ptr(track);
        if let Some(relay) = self.0.borrow().get(&address) {
            update(&relay.window, track.window());
            return relay.window.subscribe();
        }
        let mut windows = track.subscribe();
        let newest = Arc::clone(&windows.borrow_and_update());
        let (sender, receiver) = watch::channel(newest);
        let window = Rc::new(sender);
        let relay = Relay { _track: Arc::downgrade(track), window: Rc::clone(&window) };
        self.0.borrow_mut().insert(address, relay);
        let listed = Listed { relays: self.clone(), address };
        spawn_local(forward(windows, window, listed));
        receiver
    }
}

/// Tells the loop what becomes of a track, as long as somebody there wants to know.
async fn forward(
    mut windows: watch::Receiver<Arc<Window>>,
    window: Rc<watch::Sender<Arc<Window>>>,
    _listed: Listed,
) {
    while windows.changed().await.is_ok() && window.receiver_count() > 0 {
        update(&window, Arc::clone(&windows.borrow_and_update()));
    }
}

fn update(window: &watch::Sender<Arc<Window>>, newest: Arc<Window>) {
    window.send_if_modified(|window| {
        let is_new = !Arc::ptr_eq(window, &newest);
        *window = newest;
        is_new
    });
}

/// An edge's place in the list, given up with its task.
struct Listed {
    relays: Relays,
    address: *const Track,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.relays.0.borrow_mut().remove(&self.address);
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

    const LIMIT: Duration = Duration::from_secs(20);

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
        // A second of video: several parts.
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
        let track = Arc::clone(&registry.stream("x").unwrap().state().tracks[0]);
        let relays = Relays::default();
        let woken = Rc::new(Cell::new(0));
        let waiters: Vec<_> = (0..100)
            .map(|_| {
                let (mut windows, woken) = (relays.follow(&track), Rc::clone(&woken));
                let seen = Arc::clone(&windows.borrow_and_update());
                spawn_local(async move {
                    windows.changed().await.unwrap();
                    woken.set(woken.get() + 1);
                    assert!(!Arc::ptr_eq(&seen, &windows.borrow()));
                })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!((woken.get(), relays.0.borrow().len()), (0, 1));
        publish();
        // One who comes before the loop has noticed sees the newest all the same.
        assert!(Arc::ptr_eq(&relays.follow(&track).borrow(), &track.window()));
        for waiter in waiters {
            waiter.await.unwrap();
        }
        assert_eq!(woken.get(), 100);
        // With nobody left the next part ends it.
        publish();
        while !relays.0.borrow().is_empty() {
            tokio::task::yield_now().await;
        }
        // And so does the track's end, for those who wait as well.
        let mut windows = relays.follow(&track);
        drop((publisher, track));
        drop(registry);
        while windows.changed().await.is_ok() {}
        assert!(relays.0.borrow().is_empty());
    }
}
