//! The newest of something, for readers that follow: events, lines of the log.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The newest entries. Adding an entry never waits. A reader that is too slow learns how many are missing.
#[derive(Debug)]
pub struct Followed<T> {
    most: usize,
    /// The newest, with their numbers, which count from 1.
    recent: Mutex<VecDeque<(u64, Arc<T>)>>,
    /// The number of the newest one.
    newest: watch::Sender<u64>,
}

impl<T> Followed<T> {
    /// Keeps `most` entries.
    pub fn new(most: usize) -> Self {
        Self { most, recent: Mutex::default(), newest: watch::Sender::new(0) }
    }

    /// Adds the entry that is made of its number.
    pub fn add(&self, entry: impl FnOnce(u64) -> T) {
        let mut recent = self.recent();
        let id = *self.newest.borrow() + 1;
        recent.push_back((id, Arc::new(entry(id))));
        if recent.len() > self.most {
            recent.pop_front();
        }
        self.newest.send_replace(id);
    }

    /// Where somebody begins to read who has those up to number `after`; the next one if that is `None`.
    pub fn read(&self, after: Option<u64>) -> Reader {
        let newest = self.newest.subscribe();
        let known = *newest.borrow();
        // A number of another run of the process says nothing here.
        let after = after.filter(|&after| after <= known).unwrap_or(known);
        Reader { newest, after }
    }

    /// Waits for the next entry. Cancel safe.
    pub async fn next(&self, reader: &mut Reader) -> Next<T> {
        let after = reader.after;
        // The sender lives as long as `self`.
        let _ = reader.newest.wait_for(|&newest| newest > after).await;
        let recent = self.recent();
        let Some(oldest) = recent.front().map(|(id, _)| *id) else { return Next::Lost(0) };
        if oldest > after + 1 {
            reader.after = oldest - 1;
            return Next::Lost(oldest - 1 - after);
        }
        reader.after = after + 1;
        let index = usize::try_from(reader.after - oldest).unwrap_or(usize::MAX);
        recent.get(index).map_or(Next::Lost(0), |(id, entry)| Next::Entry(*id, Arc::clone(entry)))
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<(u64, Arc<T>)>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> Vec<Arc<T>> {
        self.recent().iter().map(|(_, entry)| Arc::clone(entry)).collect()
    }
}

/// How far somebody has read.
#[derive(Debug)]
pub struct Reader {
    newest: watch::Receiver<u64>,
    /// The number of the last entry that was read.
    after: u64,
}

/// What a reader gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// The next entry and its number.
    Entry(u64, Arc<T>),
    /// So many entries are missing, because the reader was too slow.
    Lost(u64),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn next(entries: &Followed<String>, reader: &mut Reader) -> String {
        match entries.next(reader).await {
            Next::Entry(id, entry) => format!("{id} {entry}"),
            Next::Lost(lost) => format!("{lost} lost"),
        }
    }

    #[tokio::test]
    async fn readers_get_all_entries_in_order_or_learn_how_many_are_missing() {
        let entries = Followed::new(10);
        let add = |text: &str| entries.add(|_| text.to_owned());
        add("a");
        let (mut new, mut old) = (entries.read(None), entries.read(Some(0)));
        let mut of_another_run = entries.read(Some(70));
        add("b");
        for reader in [&mut new, &mut of_another_run] {
            assert_eq!(next(&entries, reader).await, "2 b");
        }
        assert_eq!(next(&entries, &mut old).await, "1 a");
        assert_eq!(next(&entries, &mut old).await, "2 b");
        (0..13).for_each(|_| add("c"));
        assert_eq!(next(&entries, &mut old).await, "3 lost");
        assert_eq!(next(&entries, &mut old).await, "6 c");
        let mut reader = entries.read(None);
        let waits = tokio::time::timeout(Duration::ZERO, entries.next(&mut reader));
        assert!(waits.await.is_err(), "nothing new came");
    }
}
