//! Keeps track of the free pages of the memory file.
//!
//! Pages are handed out in blocks of a power of two, each at a multiple of its size (buddy
//! allocation). A returned block is joined with the other half of the block that it was cut from,
//! if that half is free. A slab that needs fewer pages than its block has leaves the last pages
//! untouched: they take addresses, but no memory. Allocation takes the smallest block that fits,
//! and the first of those, so that large blocks stay whole.

use std::collections::BTreeSet;

/// Power of two of the pages in an extent. The largest block is a whole extent.
const TOP: u32 = 18;

/// Pages in an extent.
pub(super) const EXTENT: u32 = 1 << TOP;

#[derive(Debug, Default)]
pub(super) struct Pages {
    /// First pages of the free blocks, by size as a power of two.
    free: [BTreeSet<u32>; TOP as usize + 1],
    /// Number of extents.
    extents: u32,
}

impl Pages {
    /// Adds an extent. Returns false where there are no more numbers for its pages.
    pub(super) fn extend(&mut self) -> bool {
        let Some(first) = self.extents.checked_mul(EXTENT) else { return false };
        self.extents += 1;
        self.free[TOP as usize].insert(first);
        true
    }

    /// Takes a block of at least `pages` pages and returns its first page. `pages` must not be 0.
    /// `None` where no extent has a large enough free block.
    pub(super) fn allocate(&mut self, pages: u32) -> Option<u32> {
        let wanted = order(pages)?;
        let found = (wanted..=TOP).find(|&order| !self.free[order as usize].is_empty())?;
        let block = self.free[found as usize].pop_first()?;
        // The first part is taken. The rest becomes free blocks, each twice as large as the one
        // before.
        for order in wanted..found {
            self.free[order as usize].insert(block + (1 << order));
        }
        Some(block)
    }

    /// Returns a block of `pages` pages.
    pub(super) fn free(&mut self, mut block: u32, pages: u32) {
        let Some(mut order) = order(pages) else { return };
        while order < TOP && self.free[order as usize].remove(&(block ^ (1 << order))) {
            block &= !(1 << order);
            order += 1;
        }
        self.free[order as usize].insert(block);
    }
}

/// Power of two that has room for this many pages; `None` where an extent is too small.
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
    fn blocks_that_do_not_fit_an_extent_are_not_allocated() {
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
        /// No two blocks overlap, and after all are returned each extent is whole again.
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
