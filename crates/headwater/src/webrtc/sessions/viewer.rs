//! A viewer as its session and its feeds see it: both act for it, at different times.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use live::Stream;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::shared::Shared;
use crate::webrtc::end::End;
use crate::webrtc::play::feed::{Fed, Feed, Watch};
use crate::webrtc::play::output::Subscriber;
use crate::webrtc::play::{Play, Watched};

/// A viewer. Feeds send it what comes, in their own turn. Its session does the rest: what the viewer says,
/// and what waits.
pub(super) struct Viewer {
    stream: Arc<Stream>,
    /// Borrowed only between two awaits.
    pub(super) play: RefCell<Play>,
    shared: Rc<Shared>,
    /// Why it gets nothing more.
    end: Cell<Option<End>>,
    /// Tells the session that something waits, or that this is the end.
    changed: Notify,
}

impl Viewer {
    pub(super) fn new(watched: Watched, shared: &Rc<Shared>) -> Rc<Self> {
        let stream = Arc::clone(&watched.stream);
        Rc::new_cyclic(|viewer: &Weak<Self>| {
            let feeds = Rc::clone(&shared.feeds);
            let subscriber = Subscriber { feeds, viewer: viewer.clone() };
            Self {
                stream,
                play: RefCell::new(Play::new(watched, &subscriber)),
                shared: Rc::clone(shared),
                end: Cell::default(),
                changed: Notify::new(),
            }
        })
    }

    /// The stream's name.
    pub(super) fn name(&self) -> &str {
        self.stream.name()
    }

    /// Waits until the session has something to do.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Sends what may be sent now, and tells when more may, or when a report is due.
    pub(super) fn send(&self, now: Instant) -> Result<Option<Instant>, End> {
        if let Some(end) = self.end.take() {
            return Err(end);
        }
        self.send_now(now)?;
        let play = self.play.borrow();
        Ok(play.due(now).into_iter().chain(play.next_report()).min())
    }

    fn over(&self, end: End) {
        self.end.set(Some(end));
        self.changed.notify_one();
    }

    fn send_now(&self, now: Instant) -> Result<(), End> {
        let Shared { origin, transport, batch, .. } = &*self.shared;
        let now = (now, origin.now());
        self.play.borrow_mut().send(transport, &mut batch.borrow_mut(), now)
    }
}

impl Watch for Viewer {
    fn take(&self, feed: &Rc<Feed>, fed: &Fed) {
        let now = Instant::now();
        let reports = self.play.borrow().next_report();
        let got = self.play.borrow_mut().get(feed, fed, now);
        if let Err(end) = got.and_then(|()| self.send_now(now)) {
            return self.over(end);
        }
        let play = self.play.borrow();
        // The session also waits for the time of the next report, once there is one.
        if play.due(now).is_some() || reports.is_none() && play.next_report().is_some() {
            self.changed.notify_one();
        }
    }

    fn fail(&self) {
        self.over(End::Failed);
    }
}
