//! One node, and what its followers share.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout};
use viewer::url::Url;

use super::fetch::{Answer, Client, Failure};
use super::ledger::{Kind, Ledger, Object, STATE};

/// How many listed objects are fetched at a time: so many that are new, and so many others.
pub(super) const AT_ONCE: usize = 8;

/// Known objects beyond this number are forgotten if no playlist has listed them for a while.
const KNOWN: usize = 20_000;
/// A playlist has to list such an object again within this time.
const LISTED: Duration = Duration::from_secs(120);

/// A node that is far ahead waits for the others until they have answered nothing more for so long.
const WAITS: Duration = Duration::from_secs(5);
/// How often it looks.
const LOOKS: Duration = Duration::from_millis(50);
/// A node that has given no good answer for so long at the end is asked for nothing more.
const SILENT: Duration = Duration::from_secs(30);

/// A node.
pub(super) struct Node {
    /// Its place among the nodes.
    pub(super) place: usize,
    /// Where the stream or file is on it.
    pub(super) url: Url,
    pub(super) client: Client,
    ledger: Rc<RefCell<Ledger>>,
    /// When the comparison began.
    began: Instant,
    /// Whether live streams are not followed any more.
    stop: watch::Receiver<bool>,
    /// Slots of objects that are new. These wait neither for other nodes nor behind objects that do.
    slots: Semaphore,
    /// Slots of all other listed objects.
    old_slots: Semaphore,
    /// How many objects all nodes had answered when it last waited for others in vain.
    in_vain: Cell<Option<u64>>,
    /// Objects that are or were fetched, and when they were listed last.
    known: RefCell<HashMap<String, Instant>>,
    /// How many listed objects are being fetched.
    under_way: Cell<usize>,
    idle: Notify,
    /// When the last good answer came, or the node waited for others.
    answered: Cell<Instant>,
    /// Whether it is asked for nothing more.
    is_given_up: Cell<bool>,
    troubles: Cell<u64>,
    trouble: RefCell<Option<String>>,
}

/// An object of a stream.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) url: Url,
    pub(super) range: Option<(u64, u64)>,
    /// Whether the node was seen to get it.
    pub(super) is_new: bool,
}

impl Node {
    pub(super) fn new(
        (place, url): (usize, Url),
        client: Client,
        ledger: Rc<RefCell<Ledger>>,
        began: Instant,
        stop: watch::Receiver<bool>,
    ) -> Self {
        Self {
            place,
            url,
            client,
            ledger,
            began,
            stop,
            slots: Semaphore::new(AT_ONCE),
            old_slots: Semaphore::new(AT_ONCE),
            in_vain: Cell::default(),
            known: RefCell::default(),
            under_way: Cell::default(),
            idle: Notify::new(),
            answered: Cell::new(began),
            is_given_up: Cell::default(),
            troubles: Cell::default(),
            trouble: RefCell::default(),
        }
    }

    /// Completes when live streams are not followed any more.
    pub(super) async fn stopped(&self) {
        // The sender lives as long as the comparison.
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
    }

    /// How often something failed, and what failed first.
    pub(super) fn troubles(&self) -> (u64, Option<String>) {
        (self.troubles.get(), self.trouble.borrow().clone())
    }

    /// The name of an object, the same on all nodes: its URL as far as it differs from the folder in
    /// which the stream is.
    pub(super) fn name_of(&self, url: &Url) -> String {
        let folder = self.url.path().rfind('/').map_or("/", |end| &self.url.path()[..=end]);
        let own = url.authority() == self.url.authority();
        match url.target().strip_prefix(folder) {
            Some(rest) if own => rest.to_owned(),
            _ if own => url.target().to_owned(),
            _ => url.to_string(),
        }
    }

    /// Notes that something failed.
    pub(super) fn fails(&self, what: &str, failure: &dyn std::fmt::Display) {
        self.troubles.set(self.troubles.get() + 1);
        self.trouble.borrow_mut().get_or_insert_with(|| format!("{what}: {failure}"));
    }

    /// Notes an answer.
    pub(super) fn record(&self, name: &str, kind: Kind, object: Object, had: Option<Instant>) {
        let had = had.map(|at| at.saturating_duration_since(self.began));
        self.ledger.borrow_mut().record(self.place, (name, kind), (0, object), had);
    }

    /// Notes a playlist or manifest in a state. The same state again says nothing new: `last` is the
    /// name of the last one, which is replaced.
    pub(super) fn record_state(
        &self,
        (name, state): (&str, String),
        object: Object,
        had: Option<Instant>,
        last: &mut Option<String>,
    ) {
        let state = format!("{name}{STATE}{state}");
        if last.as_ref() == Some(&state) {
            return;
        }
        self.ledger.borrow_mut().listed(self.place, name);
        self.record(&state, Kind::State, object, had);
        *last = Some(state);
    }

    /// Notes a range of a file.
    pub(super) fn record_range(&self, name: &str, start: u64, object: Object) {
        self.ledger.borrow_mut().record(self.place, (name, Kind::Lasting), (start, object), None);
    }

    /// Notes that the node does not have an object that another has.
    pub(super) fn absent(&self, name: &str, failure: &Failure) {
        self.ledger.borrow_mut().absent(self.place, name, &failure.to_string());
    }

    /// Fetches an object that is listed, unless it is known.
    pub(super) fn want(self: &Rc<Self>, wanted: Wanted) {
        let Some(name) = self.learn(&wanted) else { return };
        self.under_way.set(self.under_way.get() + 1);
        let node = Rc::clone(self);
        spawn_local(async move {
            let slots = if wanted.is_new { &node.slots } else { &node.old_slots };
            let slot = slots.acquire().await;
            if !wanted.is_new {
                node.wait_for_others().await;
            }
            if node.is_given_up.get() {
                node.fails(&name, &Failure::Late);
            } else if let Err(failure) = node.get(&name, &wanted, Duration::ZERO).await {
                node.fails(&name, &failure);
            }
            drop(slot);
            node.under_way.set(node.under_way.get() - 1);
            node.idle.notify_waiters();
        });
    }

    /// Fetches an object that does not exist yet, and that the node may keep back for `longer`. It may
    /// never come to be. If it is not had, it is fetched when it is listed.
    pub(super) fn await_hinted(self: &Rc<Self>, wanted: Wanted, longer: Duration) {
        let Some(name) = self.learn(&wanted) else { return };
        let node = Rc::clone(self);
        spawn_local(async move {
            // Without a slot: it must not keep others from being fetched.
            let _ = node.get(&name, &wanted, longer).await;
        });
    }

    /// Waits until all listed objects have been fetched, or the node is silent for too long.
    pub(super) async fn finish(&self) {
        let began = Instant::now();
        while self.under_way.get() > 0 {
            let _ = timeout(LOOKS, self.idle.notified()).await;
            if self.answered.get().max(began).elapsed() > SILENT {
                self.is_given_up.set(true);
            }
        }
    }

    /// Waits, if the node is far ahead of others, until these have caught up. What they have not answered waits in
    /// memory. After a wait in vain it waits for nobody until the others go on.
    pub(super) async fn wait_for_others(&self) {
        let objects = || self.ledger.borrow().objects();
        let mut last = (objects(), Instant::now());
        while self.ledger.borrow().is_far_ahead(self.place) && self.in_vain.get() != Some(last.0) {
            if last.1.elapsed() >= WAITS {
                return self.in_vain.set(Some(last.0));
            }
            sleep(LOOKS).await;
            self.answered.set(Instant::now());
            let now = objects();
            if now != last.0 {
                last = (now, Instant::now());
            }
        }
    }

    /// The name of an object that is not known yet. It is known from then on.
    pub(super) fn learn(&self, wanted: &Wanted) -> Option<String> {
        let name = object_name(&self.name_of(&wanted.url), wanted.range);
        let now = Instant::now();
        let mut known = self.known.borrow_mut();
        if known.len() > KNOWN {
            known.retain(|_, listed| now.saturating_duration_since(*listed) < LISTED);
        }
        known.insert(name.clone(), now).is_none().then_some(name)
    }

    /// Fetches an object, and notes it.
    ///
    /// # Errors
    /// There is no good answer. The object is not known, then.
    pub(super) async fn get(
        &self,
        name: &str,
        wanted: &Wanted,
        longer: Duration,
    ) -> Result<(), Failure> {
        match self.client.get(&wanted.url, wanted.range, longer).await {
            Ok(answer) => {
                self.answered.set(answer.at);
                let had = wanted.is_new.then_some(answer.at);
                self.record(name, Kind::Lasting, object(answer), had);
                Ok(())
            }
            Err(failure) => {
                self.known.borrow_mut().remove(name);
                Err(failure)
            }
        }
    }

    /// Asks for an object that another node has.
    ///
    /// # Errors
    /// This node does not have it.
    pub(super) async fn ask_for(&self, name: &str) -> Result<(), Failure> {
        self.get(name, &self.named(name)?, Duration::ZERO).await
    }

    /// What others had before anybody looked, but this node has not answered yet.
    pub(super) fn lacks_of_first(&self) -> Vec<String> {
        self.ledger.borrow().lacks_of_first(self.place)
    }

    /// Asks for an object that another node has, unless it is known. If the node does not have it, it
    /// is asked again.
    pub(super) async fn catch_up(&self, name: &str) {
        let Ok(wanted) = self.named(name) else { return };
        if self.learn(&wanted).is_some() {
            let _ = self.get(name, &wanted, Duration::ZERO).await;
        }
    }

    /// The object with a name.
    fn named(&self, name: &str) -> Result<Wanted, Failure> {
        let (path, range) = parse_name(name);
        let url = self.url.resolve(path).map_err(|error| Failure::Request(error.to_string()))?;
        Ok(Wanted { url, range, is_new: false })
    }
}

/// What is compared of an answer.
pub(super) fn object(answer: Answer) -> Object {
    let Answer { body, fields, is_growing, .. } = answer;
    Object { body, aside: String::new(), fields, is_growing }
}

/// What is compared of a text, without what may differ.
pub(super) fn text_object(answer: Answer, text: String, aside: String) -> Object {
    let Answer { fields, is_growing, .. } = answer;
    Object { body: Bytes::from(text), aside, fields, is_growing }
}

/// The name of an object, or of a range of it.
pub(super) fn object_name(name: &str, range: Option<(u64, u64)>) -> String {
    match range {
        None => name.to_owned(),
        Some((first, last)) => format!("{name} bytes={first}-{last}"),
    }
}

fn parse_name(name: &str) -> (&str, Option<(u64, u64)>) {
    let range = |text: &str| {
        let (first, last) = text.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    match name.split_once(" bytes=") {
        Some((path, bytes)) => (path, range(bytes)),
        None => (name, None),
    }
}

#[cfg(test)]
mod tests;
