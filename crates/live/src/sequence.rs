//! A double-ended queue whose copies share their common items.
//!
//! Each part makes a new snapshot of its track's window. If a snapshot were a copy of all segments,
//! the cost of a part would grow with the window. Here a copy is one reference. A change copies one
//! block of items and the list of blocks.

use std::collections::VecDeque;
use std::sync::Arc;

/// Items in a block. A window of six hours in segments of two seconds has 85 such blocks.
const BLOCK: usize = 128;

/// A queue with the oldest item first. A copy costs one reference count, whatever the length.
#[derive(Debug, Clone)]
pub struct Sequence<T> {
    /// All blocks but the first and the last have [`BLOCK`] items. No block is empty.
    blocks: Arc<VecDeque<Arc<VecDeque<T>>>>,
    len: usize,
}

impl<T> Default for Sequence<T> {
    fn default() -> Self {
        Self { blocks: Arc::default(), len: 0 }
    }
}

impl<T> Sequence<T> {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The items, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.blocks.iter().flat_map(|block| block.iter())
    }

    /// The items from `index` on, the oldest first. Skipping the items before costs nothing.
    pub fn iter_from(&self, index: usize) -> impl DoubleEndedIterator<Item = &T> {
        let (block, within) = self.locate(index);
        self.blocks
            .iter()
            .skip(block)
            .enumerate()
            .flat_map(move |(nth, block)| block.iter().skip(if nth == 0 { within } else { 0 }))
    }

    /// The oldest item.
    pub fn front(&self) -> Option<&T> {
        self.blocks.front()?.front()
    }

    /// The newest item.
    pub fn back(&self) -> Option<&T> {
        self.blocks.back()?.back()
    }

    /// The item at `index`, counted from the oldest. Constant time.
    pub fn get(&self, index: usize) -> Option<&T> {
        let (block, within) = self.locate(index);
        self.blocks.get(block)?.get(within)
    }

    /// Block of the item at `index`, and its place in the block.
    fn locate(&self, index: usize) -> (usize, usize) {
        let first = self.blocks.front().map_or(0, |first| first.len());
        match index.checked_sub(first) {
            None => (0, index),
            Some(after) => (1 + after / BLOCK, after % BLOCK),
        }
    }
}

impl<T: Clone> Sequence<T> {
    /// Adds an item at the end.
    pub fn push_back(&mut self, item: T) {
        let blocks = Arc::make_mut(&mut self.blocks);
        // A first block that has lost items must not be filled up at its end, unless it is also the
        // last.
        match blocks.back_mut().filter(|last| last.len() < BLOCK) {
            Some(last) => Arc::make_mut(last).push_back(item),
            None => blocks.push_back(Arc::new(VecDeque::from([item]))),
        }
        self.len += 1;
    }

    /// Removes the oldest item.
    pub fn pop_front(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let blocks = Arc::make_mut(&mut self.blocks);
        let first = Arc::make_mut(blocks.front_mut()?);
        let item = first.pop_front();
        if first.is_empty() {
            blocks.pop_front();
        }
        self.len -= usize::from(item.is_some());
        item
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_sequence_is_a_queue_and_copies_do_not_change(
            steps in prop::collection::vec((any::<bool>(), 1usize..300), 1..20)
        ) {
            let (mut queue, mut model) = (Sequence::default(), VecDeque::new());
            let mut next = 0;
            for (adds, count) in steps {
                let (before, known) = (queue.clone(), model.clone());
                for _ in 0..count {
                    if adds {
                        queue.push_back(next);
                        model.push_back(next);
                        next += 1;
                    } else {
                        prop_assert_eq!(queue.pop_front(), model.pop_front());
                    }
                }
                prop_assert!(queue.iter().eq(&model));
                prop_assert!(queue.iter().rev().eq(model.iter().rev()));
                prop_assert!(before.iter().eq(&known));
                prop_assert_eq!((queue.len(), queue.front(), queue.back()),
                    (model.len(), model.front(), model.back()));
                for index in [0, 1, 127, 128, 129, 300, model.len().saturating_sub(1), model.len()] {
                    prop_assert_eq!(queue.get(index), model.get(index));
                    prop_assert!(queue.iter_from(index).eq(model.iter().skip(index)));
                }
            }
        }
    }
}
