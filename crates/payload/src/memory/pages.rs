//! Which pages of the memory file are free.
//!
//! Pages are handed out in blocks of a power of two, each at a multiple of its size (the buddy
//! method): a block that comes back is joined with the other half of the block it was cut from, if
//! that is free. Whoever needs fewer pages than its block has leaves the last ones untouched; they
//! cost addresses, and no memory. The smallest block that fits is taken, and of
//! those the first, so that large ones stay whole.

use std::collections::BTreeSet;

/// Blocks of an extent have at most 2 to the power of this many pages: it is one such block.
const TOP: u32 = 18;

/// Pages of an extent.
pub(super) const EXTENT: u32 = 1 << TOP;

#[derive(Debug, Default)]
pub(super) struct Pages {
    /// First pages of the free blocks of each size, by the power of two.
    free: [BTreeSet<u32>; TOP as usize + 1],
    /// How many extents there are.
    extents: u32,
}

impl Pages {
    /// One extent more. Answers whether there is a number for its pages.
    pub(super) fn extend(&mut self) -> bool {
        let Some(first) = self.extents.checked_mul(EXTENT) else { return false };
        self.extents += 1;
        self.free[TOP as usize].insert(first);
        true
    }

    /// The first page of a block of so many pages, at least one, or of more. `None` where no extent
    /// has as many in one block.
    pub(super) fn allocate(&mut self, pages: u32) -> Option<u32> {
        let wanted = order(pages)?;
        let found = (wanted..=TOP).find(|&order| !self.free[order as usize].is_empty())?;
        let block = self.free[found as usize].pop_first()?;
        // The first part is taken; the rest is free, in ever larger halves.
        for order in wanted..found {
            self.free[order as usize].insert(block + (1 << order));
        }
        Some(block)
    }

    /// A block of so many pages comes back.
    pub(super) fn free(&mut self, mut block: u32, pages: u32) {
        let Some(mut order) = order(pages) else { return };
        while order < TOP && self.free[order as usize].remove(&(block ^ (1 << order))) {
            block &= !(1 << order);
            order += 1;
        }
        self.free[order as usize].insert(block);
    }
}

/// The power of two that has room for so many pages, if an extent has.
fn order(pages: u32) -> Option<u32> {
    let order = pages.checked_next_power_of_two()?.trailing_zeros();
    (order <= TOP).then_some(order)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_does_not_fit_an_extent_is_not_there() {
        let mut pages = Pages::default();
        assert_eq!(pages.allocate(1), None);
        assert!(pages.extend());
        assert_eq!(pages.allocate(EXTENT + 1), None);
        assert_eq!(pages.allocate(u32::MAX), None);
        assert_eq!(pages.allocate(EXTENT), Some(0));
        assert_eq!(pages.allocate(1), None);
        assert!(pages.extend());
        assert_eq!(pages.allocate(1), Some(EXTENT));
        pages.free(0, EXTENT);
        assert_eq!(pages.allocate(3), Some(EXTENT + 4), "of the smallest that fit");
        assert_eq!(pages.allocate(EXTENT), Some(0));
    }

    #[test]
    fn extents_end_where_numbers_of_pages_do() {
        let mut pages = Pages::default();
        while pages.extend() {}
        assert_eq!(pages.extents, 1 << (32 - TOP));
    }

    proptest! {
        /// No page is in two blocks, and when all have come back each extent is whole again.
        #[test]
        fn blocks_do_not_overlap(
            sizes in prop::collection::vec(1_u32..5000, 1..200),
            order in any::<prop::sample::Index>(),
        ) {
            let mut pages = Pages::default();
            let mut held: HashMap<u32, u32> = HashMap::new();
            for (turn, &size) in sizes.iter().enumerate() {
                if turn % 3 == 2 && !held.is_empty() {
                    let first = *held.keys().nth(order.index(held.len())).unwrap();
                    let size = held.remove(&first).unwrap();
                    pages.free(first, size);
                }
                let first = pages.allocate(size).or_else(|| {
                    assert!(pages.extend());
                    pages.allocate(size)
                });
                let first = first.unwrap();
                prop_assert_eq!(first / EXTENT, (first + size - 1) / EXTENT, "in one extent");
                for (&other, &length) in &held {
                    prop_assert!(first + size <= other || other + length <= first);
                }
                held.insert(first, size);
            }
            for (first, size) in held {
                pages.free(first, size);
            }
            prop_assert_eq!(pages.free[TOP as usize].len(), pages.extents as usize);
            prop_assert_eq!(pages.free.iter().map(BTreeSet::len).sum::<usize>(), pages.extents as usize);
        }
    }
}
