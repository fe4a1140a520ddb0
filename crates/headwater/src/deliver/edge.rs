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
pub(super) struct Edges(Rc<RefCell<HashMap<*const Track, Edge>>>);

struct Edge {
    /// Keeps the address, by which the track is known, from becoming another's.
    _track: Weak<Track>,
    window: Rc<watch::Sender<Arc<Window>>>,
}

impl Edges {
    /// The track's window, and whatever it becomes. To be used on this event loop.
    ///
    /// What is received is at least as new as the window was when this was called, and its sender
    /// is gone when the track is.
    pub(super) fn follow(&self, track: &Arc<Track>) -> watch::Receiver<Arc<Window>> {
        let address = Arc::as_ptr(track);
        if let Some(edge) = self.0.borrow().get(&address) {
            update(&edge.window, track.window());
            return edge.window.subscribe();
        }
        let mut windows = track.subscribe();
        let newest = Arc::clone(&windows.borrow_and_update());
        let (sender, receiver) = watch::channel(newest);
        let window = Rc::new(sender);
        let edge = Edge { _track: Arc::downgrade(track), window: Rc::clone(&window) };
        self.0.borrow_mut().insert(address, edge);
        let listed = Listed { edges: self.clone(), address };
        spawn_local(relay(windows, window, listed));
        receiver
    }
}

/// Tells the loop what becomes of a track, as long as somebody there wants to know.
async fn relay(
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
    edges: Edges,
    address: *const Track,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.edges.0.borrow_mut().remove(&self.address);
    }
}
