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

/// How long an answer is good that the store did not confirm, because it is away.
const UNCONFIRMED: Duration = Duration::from_secs(2);

/// An answer that is on its way.
pub(crate) type Reply<V> = Pin<Box<dyn Future<Output = Result<V, Fault>> + Send>>;

/// A question to the store.
pub(crate) struct Question<V> {
    /// Asks the store.
    pub(crate) reply: Reply<V>,
    /// What the cache has. This is the answer where the store is away and has never answered.
    pub(crate) cached: Box<dyn FnOnce() -> Option<V> + Send>,
}

type Answer<V> = watch::Receiver<Option<Result<V, Fault>>>;

/// Answers by their names. The same question is open only once, however many wait for the answer.
///
/// An answer is good for a time. When half of it is over, the next who asks gets the answer, and the
/// store is asked again meanwhile. So an answer that is in use is always at hand, even if the store
/// is slow. Where the store does not answer, the old answer stays good, or else the cache answers.
/// Both are good for a short time only, so that the store is asked again soon.
#[derive(Debug)]
pub(crate) struct Answers<V> {
    slots: Mutex<Slots<V>>,
    runtime: Handle,
    good: Duration,
    /// How long the store may take.
    timeout: Duration,
    /// Most answers, by their weight.
    most: usize,
    weight: fn(&V) -> usize,
}

#[derive(Debug)]
struct Slots<V> {
    by_name: HashMap<String, Slot<V>>,
    /// How many questions are open.
    open: usize,
    /// Weight of all slots.
    weight: usize,
}

#[derive(Debug)]
struct Slot<V> {
    known: Option<Known<V>>,
    open: Option<Answer<V>>,
    /// Whether the last answer turned out to be wrong. Then the cache has no better one.
    is_forgotten: bool,
}

#[derive(Debug)]
struct Known<V> {
    value: V,
    since: Instant,
    good: Duration,
}

impl<V: Clone + Send + Sync + 'static> Answers<V> {
    pub(crate) fn new(
        runtime: Handle,
        good: Duration,
        timeout: Duration,
        most: usize,
        weight: fn(&V) -> usize,
    ) -> Self {
        let slots = Mutex::new(Slots { by_name: HashMap::new(), open: 0, weight: 0 });
        Self { slots, runtime, good, timeout, most, weight }
    }

    /// The answer, if it is known. May ask the store for a newer one.
    pub(crate) fn known(
        self: &Arc<Self>,
        name: &str,
        question: impl FnOnce() -> Question<V>,
    ) -> Option<V> {
        let mut slots = self.lock();
        let slot = slots.by_name.get(name)?;
        let Known { value, since, good } = slot.known.as_ref()?;
        let (value, age, good) = (value.clone(), since.elapsed(), *good);
        let is_open = slot.open.is_some();
        if age >= good {
            return (is_open && age < good + self.timeout).then_some(value);
        }
        if age >= good / 2 && !is_open {
            self.ask(&mut slots, name, question());
        }
        Some(value)
    }

    /// Waits for the answer.
    pub(crate) fn get(
        self: &Arc<Self>,
        name: &str,
        question: impl FnOnce() -> Question<V>,
    ) -> Reply<V> {
        let mut slots = self.lock();
        let open = slots.by_name.get(name).and_then(|slot| slot.open.clone());
        let answer =
            open.or_else(|| (slots.open < OPEN).then(|| self.ask(&mut slots, name, question())));
        drop(slots);
        match answer {
            Some(answer) => wait(answer),
            None => Box::pin(std::future::ready(Err(Fault::away("too many questions are open")))),
        }
    }

    /// Waits for an answer that is on its way; `None` if none is.
    pub(crate) fn coming(&self, name: &str) -> Option<Reply<V>> {
        let open = self.lock().by_name.get(name)?.open.clone()?;
        Some(wait(open))
    }

    /// Forgets an answer that turned out to be wrong.
    pub(crate) fn forget(&self, name: &str) {
        let mut slots = self.lock();
        if let Some(slot) = slots.by_name.get_mut(name) {
            let before = self.weigh(slot);
            slot.known = None;
            slot.is_forgotten = true;
            let after = self.weigh(slot);
            slots.weight = slots.weight - before + after;
        }
    }

    fn ask(self: &Arc<Self>, slots: &mut Slots<V>, name: &str, question: Question<V>) -> Answer<V> {
        let (give, answer) = watch::channel(None);
        if !slots.by_name.contains_key(name) {
            self.make_room(slots);
            slots.weight += 1;
        }
        slots.open += 1;
        let slot = slots.by_name.entry(name.to_owned()).or_insert(Slot {
            known: None,
            open: None,
            is_forgotten: false,
        });
        slot.open = Some(answer.clone());
        let (this, name) = (Arc::clone(self), name.to_owned());
        self.runtime.spawn(async move {
            let given = question.reply.await;
            let is_away = matches!(given, Err(Fault::Away(_)));
            // Looked up without the lock, which event loops take.
            let cached = if is_away { (question.cached)() } else { None };
            let given = this.answered(&name, given, cached);
            let _ = give.send(Some(given));
        });
        answer
    }

    /// Keeps what the store said, and returns what those get who wait for it.
    fn answered(&self, name: &str, given: Result<V, Fault>, cached: Option<V>) -> Result<V, Fault> {
        let mut slots = self.lock();
        slots.open -= 1;
        // An open slot stays.
        let Some(mut slot) = slots.by_name.remove(name) else { return given };
        slots.weight -= self.weigh(&slot);
        slot.open = None;
        let before = slot.known.take().map(|known| known.value);
        let (value, good) = match given {
            Ok(value) => {
                slot.is_forgotten = false;
                (Ok(value), self.good)
            }
            Err(Fault::Away(reason)) => {
                let cached = cached.filter(|_| !slot.is_forgotten);
                (before.or(cached).ok_or(Fault::Away(reason)), UNCONFIRMED.min(self.good))
            }
            Err(fault) => return Err(fault),
        };
        if let Ok(value) = &value {
            slot.known = Some(Known { value: value.clone(), since: Instant::now(), good });
        }
        if value.is_ok() || slot.is_forgotten {
            slots.weight += self.weigh(&slot);
            slots.by_name.insert(name.to_owned(), slot);
        }
        value
    }

    /// Drops the older half of the answers if there are too many.
    fn make_room(&self, slots: &mut Slots<V>) {
        if slots.weight < self.most {
            return;
        }
        let since = |slot: &Slot<V>| slot.known.as_ref().map(|known| known.since);
        let mut ages: Vec<Instant> = slots.by_name.values().filter_map(since).collect();
        ages.sort_unstable();
        let middle = ages.get(ages.len() / 2).copied();
        slots.by_name.retain(|_, slot| slot.open.is_some() || since(slot) > middle);
        slots.weight = slots.by_name.values().map(|slot| self.weigh(slot)).sum();
    }

    fn weigh(&self, slot: &Slot<V>) -> usize {
        1 + slot.known.as_ref().map_or(0, |known| (self.weight)(&known.value))
    }

    fn lock(&self) -> MutexGuard<'_, Slots<V>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait<V: Clone + Send + Sync + 'static>(mut answer: Answer<V>) -> Reply<V> {
    Box::pin(async move {
        let given = answer.wait_for(Option::is_some).await;
        given.ok().and_then(|given| given.clone()).unwrap_or(Err(Fault::away("it ended")))
    })
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
        cached: Option<usize>,
    }

    impl Source {
        fn open() -> Arc<Self> {
            Self::with(None)
        }

        fn with(cached: Option<usize>) -> Arc<Self> {
            let (asked, is_away) = (AtomicUsize::new(0), false.into());
            Arc::new(Self { asked, gate: Semaphore::new(100), is_away, cached })
        }

        fn question(self: &Arc<Self>) -> Question<usize> {
            let this = Arc::clone(self);
            let reply = Box::pin(async move {
                let number = this.asked.fetch_add(1, Ordering::Relaxed);
                let _turn = this.gate.acquire().await;
                match this.is_away.load(Ordering::Relaxed) {
                    true => Err(Fault::away("gone")),
                    false => Ok(number),
                }
            });
            let cached = self.cached;
            Question { reply, cached: Box::new(move || cached) }
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
        assert!(!answers.lock().by_name.contains_key("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_answers_only_what_the_store_never_did_and_for_a_short_time() {
        let (answers, source) = (answers(10), Source::with(Some(77)));
        let get = |name| answers.get(name, || source.question());
        assert_eq!(get("a").await, Ok(0));
        assert_eq!(get("wrong").await, Ok(1));
        source.is_away.store(true, Ordering::Relaxed);
        pass(2 * GOOD).await;
        answers.forget("wrong");
        assert_eq!((get("a").await, get("b").await), (Ok(0), Ok(77)));
        for _ in 0..2 {
            assert_eq!(get("wrong").await, Err(Fault::away("gone")));
        }
        pass(UNCONFIRMED).await;
        for name in ["a", "b"] {
            assert_eq!(answers.known(name, || source.question()), None, "{name}");
        }
        source.is_away.store(false, Ordering::Relaxed);
        assert!(get("a").await.is_ok_and(|number| number > 1 && number != 77));
        assert!(get("wrong").await.is_ok_and(|number| number > 1 && number != 77));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_few() {
        let (answers, source) = (answers(100), Source::open());
        for number in 0..1000 {
            answers.get(&number.to_string(), || source.question()).await.unwrap();
            pass(Duration::from_millis(1)).await;
            let slots = answers.lock();
            assert!(slots.by_name.len() <= 101);
            assert_eq!((slots.weight, slots.open), (slots.by_name.len(), 0));
        }
        assert_eq!(answers.known("999", || source.question()), Some(999));
        assert_eq!(answers.known("0", || source.question()), None);
    }
}
