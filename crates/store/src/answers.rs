//! Answers of the store, kept for a short time.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::fault::Fault;

/// Most questions that are open at the same time.
const OPEN: usize = 4096;

/// A question that was put to the store.
pub(crate) type Question<V> = Pin<Box<dyn Future<Output = Result<V, Fault>> + Send>>;

type Answer<V> = watch::Receiver<Option<Result<V, Fault>>>;

/// Answers by their names. The same question is open only once, however many wait for the answer.
///
/// An answer is good for a time. When half of it is over, the next who asks gets the answer, and the
/// store is asked again meanwhile. So an answer that is in use is always at hand, even if the store
/// is slow. Where the store does not answer, the old answer stays good.
#[derive(Debug)]
pub(crate) struct Answers<V> {
    slots: Mutex<HashMap<String, Slot<V>>>,
    runtime: Handle,
    good: Duration,
    /// How long the store may take.
    timeout: Duration,
    /// Most answers, by their weight.
    most: usize,
    weight: fn(&V) -> usize,
}

#[derive(Debug)]
struct Slot<V> {
    known: Option<(V, Instant)>,
    open: Option<Answer<V>>,
}

impl<V: Clone + Send + Sync + 'static> Answers<V> {
    pub(crate) fn new(
        runtime: Handle,
        good: Duration,
        timeout: Duration,
        most: usize,
        weight: fn(&V) -> usize,
    ) -> Self {
        Self { slots: Mutex::default(), runtime, good, timeout, most, weight }
    }

    /// The answer, if it is known. May ask the store for a newer one.
    pub(crate) fn known(
        self: &Arc<Self>,
        name: &str,
        question: impl FnOnce() -> Question<V>,
    ) -> Option<V> {
        let mut slots = self.lock();
        let slot = slots.get(name)?;
        let (value, at) = slot.known.as_ref()?;
        let (value, age) = (value.clone(), at.elapsed());
        let is_open = slot.open.is_some();
        if age >= self.good {
            return (is_open && age < self.good + self.timeout).then_some(value);
        }
        if age >= self.good / 2 && !is_open {
            self.ask(&mut slots, name, question());
        }
        Some(value)
    }

    /// Waits for the answer.
    pub(crate) fn get(
        self: &Arc<Self>,
        name: &str,
        question: impl FnOnce() -> Question<V>,
    ) -> Question<V> {
        let mut slots = self.lock();
        let open = slots.get(name).and_then(|slot| slot.open.clone());
        let answer = open.or_else(|| {
            let opened = slots.values().filter(|slot| slot.open.is_some()).take(OPEN).count();
            (opened < OPEN).then(|| self.ask(&mut slots, name, question()))
        });
        drop(slots);
        Box::pin(async move {
            let mut answer = answer.ok_or_else(|| Fault::away("too many questions are open"))?;
            let given = answer.wait_for(Option::is_some).await;
            given.ok().and_then(|given| given.clone()).unwrap_or(Err(Fault::away("it ended")))
        })
    }

    /// Forgets an answer that turned out to be wrong.
    pub(crate) fn forget(&self, name: &str) {
        if let Some(slot) = self.lock().get_mut(name) {
            slot.known = None;
        }
    }

    fn ask(
        self: &Arc<Self>,
        slots: &mut HashMap<String, Slot<V>>,
        name: &str,
        question: Question<V>,
    ) -> Answer<V> {
        let (give, answer) = watch::channel(None);
        if !slots.contains_key(name) {
            self.make_room(slots);
        }
        let slot = slots.entry(name.to_owned()).or_insert(Slot { known: None, open: None });
        slot.open = Some(answer.clone());
        let (this, name) = (Arc::clone(self), name.to_owned());
        self.runtime.spawn(async move {
            let mut given = question.await;
            let mut slots = this.lock();
            if let Some(slot) = slots.get_mut(&name) {
                slot.open = None;
                match (&given, slot.known.take()) {
                    (Ok(value), _) => slot.known = Some((value.clone(), Instant::now())),
                    (Err(Fault::Away(_)), Some((value, _))) => {
                        slot.known = Some((value.clone(), Instant::now()));
                        given = Ok(value);
                    }
                    (Err(_), _) => drop(slots.remove(&name)),
                }
            }
            drop(slots);
            let _ = give.send(Some(given));
        });
        answer
    }

    /// Drops the older half of the answers if there are too many.
    fn make_room(&self, slots: &mut HashMap<String, Slot<V>>) {
        let weight = |slot: &Slot<V>| 1 + slot.known.as_ref().map_or(0, |(v, _)| (self.weight)(v));
        let total: usize = slots.values().map(weight).sum();
        if total < self.most {
            return;
        }
        let mut ages: Vec<Instant> =
            slots.values().filter_map(|slot| Some(slot.known.as_ref()?.1)).collect();
        ages.sort_unstable();
        let Some(&middle) = ages.get(ages.len() / 2) else { return };
        slots.retain(|_, slot| {
            slot.open.is_some() || slot.known.as_ref().is_some_and(|(_, at)| *at > middle)
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Slot<V>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
