//! Answers of the store, kept for a short time.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    const GOOD: Duration = Duration::from_secs(4);
    const TIMEOUT: Duration = Duration::from_secs(10);

    /// A store that answers with the number of the question, when it is let to.
    struct Source {
        asked: AtomicUsize,
        gate: Semaphore,
        is_away: std::sync::atomic::AtomicBool,
    }

    impl Source {
        fn open() -> Arc<Self> {
            let (asked, is_away) = (AtomicUsize::new(0), false.into());
            Arc::new(Self { asked, gate: Semaphore::new(100), is_away })
        }

        fn question(self: &Arc<Self>) -> Question<usize> {
            let this = Arc::clone(self);
            Box::pin(async move {
                let number = this.asked.fetch_add(1, Ordering::Relaxed);
                let _turn = this.gate.acquire().await;
                match this.is_away.load(Ordering::Relaxed) {
                    true => Err(Fault::away("gone")),
                    false => Ok(number),
                }
            })
        }
    }

    fn answers(most: usize) -> Arc<Answers<usize>> {
        Arc::new(Answers::new(Handle::current(), GOOD, TIMEOUT, most, |_| 0))
    }

    async fn pass(time: Duration) {
        tokio::time::sleep(time).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_put_once_and_its_answer_is_good_for_a_time() {
        let (answers, source) = (answers(10), Source::open());
        let get = || answers.get("a", || source.question());
        let known = || answers.known("a", || source.question());
        assert_eq!(known(), None);
        let (one, other) = tokio::join!(get(), get());
        assert_eq!((one, other), (Ok(0), Ok(0)));
        pass(GOOD / 2 - Duration::from_millis(1)).await;
        assert_eq!(known(), Some(0));
        // In the second half of its time, it is asked again meanwhile.
        pass(Duration::from_millis(2)).await;
        assert_eq!(known(), Some(0));
        pass(Duration::from_millis(1)).await;
        assert_eq!((known(), source.asked.load(Ordering::Relaxed)), (Some(1), 2));
        pass(GOOD).await;
        assert_eq!(known(), None);
        assert_eq!(get().await, Ok(2));
        answers.forget("a");
        assert_eq!(known(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_slow_store_while_an_answer_is_in_use() {
        let (answers, source) = (answers(10), Source::open());
        answers.get("a", || source.question()).await.unwrap();
        let all = source.gate.acquire_many(100).await.unwrap();
        for _ in 0..6 {
            pass(Duration::from_secs(2)).await;
            assert_eq!(answers.known("a", || source.question()), Some(0));
        }
        assert_eq!(source.asked.load(Ordering::Relaxed), 2);
        // Longer than that, no store takes.
        pass(Duration::from_secs(2)).await;
        assert_eq!(answers.known("a", || source.question()), None);
        drop(all);
        assert_eq!(answers.get("a", || source.question()).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_answer_stays_good_while_the_store_is_away() {
        let (answers, source) = (answers(10), Source::open());
        answers.get("a", || source.question()).await.unwrap();
        source.is_away.store(true, Ordering::Relaxed);
        pass(2 * GOOD).await;
        assert_eq!(answers.get("a", || source.question()).await, Ok(0));
        assert_eq!(answers.known("a", || source.question()), Some(0));
        let unknown = answers.get("b", || source.question()).await;
        assert_eq!(unknown, Err(Fault::away("gone")));
        assert!(!answers.lock().contains_key("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_few() {
        let (answers, source) = (answers(100), Source::open());
        for number in 0..1000 {
            answers.get(&number.to_string(), || source.question()).await.unwrap();
            pass(Duration::from_millis(1)).await;
            assert!(answers.lock().len() <= 101);
        }
        assert_eq!(answers.known("999", || source.question()), Some(999));
        assert_eq!(answers.known("0", || source.question()), None);
    }
}
