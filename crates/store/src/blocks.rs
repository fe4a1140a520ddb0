//! Which blocks of an object are here, and which of them somebody needs.

use std::collections::BTreeMap;
use std::ops::Range;

use tokio::sync::watch;

use crate::fault::Fault;

/// Bytes of a block. Blocks are fetched whole, and begin at multiples of this.
///
/// The kernel sends a file's pages after it has taken them, so they may be on their way while their
/// block is evicted. A hole in the file takes whole pages away without a change to them. But if it
/// cut through a large page of the page cache, the kernel would write zeros into that. Large pages
/// have at most 2 MiB where pages have 4 KiB, and begin at multiples of their size. So no hole of a
/// block cuts through one.
pub(crate) const BLOCK: u64 = 2 << 20;

/// The beginning of the digest of a block.
pub(crate) type Sum = u64;

/// Told when a block has come, or that it does not come.
pub(crate) type Coming = watch::Receiver<Option<Result<(), Fault>>>;

/// Its sender is dropped when the bytes of a block have gone.
pub(crate) type Gone = watch::Receiver<()>;

/// The blocks of an object that are here or wanted.
///
/// A block with pins stays: somebody reads it, or is about to.
#[derive(Debug, Default)]
pub(crate) struct Blocks(BTreeMap<u32, Block>);

#[derive(Debug, Default)]
struct Block {
    state: State,
    pins: u32,
    /// When it was last used, in milliseconds since 1970.
    used: u64,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Absent,
    Coming(Coming),
    /// It was here when the process began. Nobody has read it since.
    Unchecked(Sum),
    Here(Sum),
    /// Its bytes are being taken away. They had this digest.
    Leaving(Gone, Sum),
}

/// What to do for a block that is needed.
#[derive(Debug)]
pub(crate) enum Need {
    Nothing,
    /// Wait: it is being fetched.
    Wait(Coming),
    /// Fetch it. If it has this digest on the disk, that will do.
    Fetch(Option<Sum>),
    /// Fetch it when its bytes have gone.
    FetchAfter(Gone),
}

/// The blocks that a range of an object touches.
pub(crate) fn touched(range: &Range<u64>) -> Range<u32> {
    let number = |block: u64| u32::try_from(block).unwrap_or(u32::MAX);
    if range.is_empty() {
        return 0..0;
    }
    number(range.start / BLOCK)..number(range.end.div_ceil(BLOCK))
}

/// The bytes of a block of an object of this size.
pub(crate) fn bytes(block: u32, size: u64) -> Range<u64> {
    let start = u64::from(block) * BLOCK;
    start.min(size)..(start + BLOCK).min(size)
}

/// The hole that takes the bytes of a block away. It is a whole block long also at the end of an
/// object: a hole that ended within a page would write zeros into that page.
pub(crate) fn hole(block: u32) -> Range<u64> {
    let start = u64::from(block) * BLOCK;
    start..start + BLOCK
}

impl Blocks {
    /// Blocks that were here when the process began: number, digest and last use.
    pub(crate) fn found(blocks: impl IntoIterator<Item = (u32, Sum, u64)>) -> Self {
        let block =
            |(number, sum, used)| (number, Block { state: State::Unchecked(sum), pins: 0, used });
        Self(blocks.into_iter().map(block).collect())
    }

    /// Whether all these blocks can be read.
    pub(crate) fn are_here(&self, mut numbers: Range<u32>) -> bool {
        let is_here =
            |number| self.0.get(&number).is_some_and(|block| matches!(block.state, State::Here(_)));
        numbers.all(is_here)
    }

    pub(crate) fn pin(&mut self, numbers: Range<u32>, now: u64) {
        for number in numbers {
            let block = self.0.entry(number).or_default();
            block.pins += 1;
            block.used = now;
        }
    }

    pub(crate) fn unpin(&mut self, numbers: Range<u32>) {
        for number in numbers {
            let Some(block) = self.0.get_mut(&number) else { continue };
            block.pins = block.pins.saturating_sub(1);
            self.tidy(number);
        }
    }

    /// What a block needs so that it can be read.
    pub(crate) fn need(&self, number: u32) -> Need {
        match self.0.get(&number).map(|block| &block.state) {
            None | Some(State::Absent) => Need::Fetch(None),
            // Who fetched it has died.
            Some(State::Coming(coming)) if coming.has_changed().is_err() => Need::Fetch(None),
            Some(State::Coming(coming)) => Need::Wait(coming.clone()),
            Some(State::Unchecked(sum)) => Need::Fetch(Some(*sum)),
            Some(State::Here(_)) => Need::Nothing,
            Some(State::Leaving(gone, _)) => Need::FetchAfter(gone.clone()),
        }
    }

    /// Somebody fetches the block.
    pub(crate) fn comes(&mut self, number: u32, coming: Coming) {
        self.0.entry(number).or_default().state = State::Coming(coming);
    }

    /// The block has come, or does not.
    pub(crate) fn came(&mut self, number: u32, sum: Option<Sum>, now: u64) {
        let block = self.0.entry(number).or_default();
        block.state = sum.map_or(State::Absent, State::Here);
        block.used = block.used.max(now);
        self.tidy(number);
    }

    /// The bytes of a block are about to be taken away, unless somebody needs them. Returns whether they are.
    pub(crate) fn leave(&mut self, number: u32, gone: Gone) -> bool {
        let Some(block) = self.0.get_mut(&number).filter(|block| block.is_free()) else {
            return false;
        };
        if let State::Here(sum) | State::Unchecked(sum) = block.state {
            block.state = State::Leaving(gone, sum);
        }
        true
    }

    /// The bytes of a block are gone, or could not be taken away. Returns whether the block is here, as before: it is
    /// not if somebody is about to fetch it.
    pub(crate) fn left(&mut self, number: u32, is_gone: bool) -> bool {
        let Some(block) = self.0.get_mut(&number) else { return false };
        let State::Leaving(_, sum) = block.state else { return false };
        // What is left of the bytes is not known.
        block.state = if is_gone { State::Absent } else { State::Unchecked(sum) };
        self.tidy(number);
        !is_gone
    }

    /// Forgets all blocks that were here, because their file was lost. Returns their numbers.
    pub(crate) fn lose(&mut self) -> Vec<u32> {
        let lost: Vec<u32> = self.kept().map(|(number, ..)| number).collect();
        for &number in &lost {
            self.0.entry(number).or_default().state = State::Absent;
            self.tidy(number);
        }
        lost
    }

    /// The blocks that nobody needs: when each was last used, and its number.
    pub(crate) fn free(&self) -> impl Iterator<Item = (u64, u32)> {
        self.0.iter().filter(|(_, b)| b.is_free()).map(|(number, block)| (block.used, *number))
    }

    /// The blocks that are on the disk: number, digest and last use.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (u32, Sum, u64)> {
        self.0.iter().filter_map(|(number, block)| match block.state {
            State::Here(sum) | State::Unchecked(sum) => Some((*number, sum, block.used)),
            State::Absent | State::Coming(_) | State::Leaving(..) => None,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets a block that is absent and not pinned.
    fn tidy(&mut self, number: u32) {
        let is_nothing = |block: &Block| block.pins == 0 && matches!(block.state, State::Absent);
        if self.0.get(&number).is_some_and(is_nothing) {
            self.0.remove(&number);
        }
    }
}

impl Block {
    fn is_free(&self) -> bool {
        self.pins == 0 && matches!(self.state, State::Here(_) | State::Unchecked(_))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_touch_blocks() {
        assert_eq!(touched(&(0..0)), 0..0);
        assert_eq!(touched(&(BLOCK..BLOCK)), 0..0);
        assert_eq!(touched(&(0..1)), 0..1);
        assert_eq!(touched(&(BLOCK - 1..BLOCK + 1)), 0..2);
        assert_eq!(touched(&(BLOCK..2 * BLOCK)), 1..2);
        assert_eq!(bytes(1, BLOCK + 5), BLOCK..BLOCK + 5);
        assert_eq!(bytes(2, BLOCK + 5), BLOCK + 5..BLOCK + 5);
    }

    proptest! {
        /// However blocks are pinned, fetched, lost and taken away, a pinned block stays,
        /// and a block without pins and bytes takes no memory.
        #[test]
        fn pinned_blocks_stay(steps in prop::collection::vec((0..9u8, 0..4u32), 1..200)) {
            let (mut blocks, mut pins) = (Blocks::default(), [0u32; 4]);
            let mut here = [false; 4];
            let mut gives: [Option<watch::Sender<_>>; 4] = Default::default();
            // The bytes that are being taken away, whether nobody has wanted them since, and what is left of them.
            let mut leaving: [Option<watch::Sender<()>>; 4] = Default::default();
            let (mut unwanted, mut unchecked) = ([false; 4], [false; 4]);
            for (now, (step, number)) in steps.into_iter().enumerate() {
                let (now, at) = (now as u64, number as usize);
                match step {
                    0 => {
                        blocks.pin(number..number + 1, now);
                        pins[at] += 1;
                    }
                    1 if pins[at] > 0 => {
                        blocks.unpin(number..number + 1);
                        pins[at] -= 1;
                    }
                    2 if matches!(blocks.need(number), Need::Fetch(_) | Need::FetchAfter(_)) => {
                        let is_leaving = matches!(blocks.need(number), Need::FetchAfter(_));
                        prop_assert_eq!(is_leaving, unwanted[at]);
                        let (give, coming) = watch::channel(None);
                        blocks.comes(number, coming);
                        gives[at] = Some(give);
                        (unwanted[at], unchecked[at]) = (false, false);
                    }
                    // A fetch waits until the bytes have gone.
                    3 | 5 if leaving[at].is_none() && gives[at].take().is_some() => {
                        here[at] = step == 3;
                        blocks.came(number, here[at].then_some(7), now);
                    }
                    6 => {
                        let lost = blocks.lose();
                        let kept = (0..4).filter(|at| here[*at] || unchecked[*at]);
                        prop_assert_eq!(lost.len(), kept.count());
                        (here, unchecked) = ([false; 4], [false; 4]);
                    }
                    4 => {
                        let (leaves, gone) = watch::channel(());
                        let is_leaving = blocks.leave(number, gone);
                        prop_assert_eq!(is_leaving, (here[at] || unchecked[at]) && pins[at] == 0);
                        if is_leaving {
                            (here[at], unchecked[at], unwanted[at]) = (false, false, true);
                            leaving[at] = Some(leaves);
                        }
                    }
                    7 | 8 if leaving[at].take().is_some() => {
                        unchecked[at] = std::mem::take(&mut unwanted[at]) && step == 8;
                        prop_assert_eq!(blocks.left(number, step == 7), unchecked[at]);
                    }
                    _ => {}
                }
                for at in 0..4u32 {
                    let (is_here, pins) = (here[at as usize], pins[at as usize]);
                    prop_assert_eq!(blocks.are_here(at..at + 1), is_here);
                    let is_coming = gives[at as usize].is_some();
                    prop_assert!(!is_coming || matches!(blocks.need(at), Need::Wait(_)));
                    let is_kept = is_here || unchecked[at as usize];
                    let is_known = is_kept || is_coming || pins > 0 || unwanted[at as usize];
                    prop_assert_eq!(blocks.0.contains_key(&at), is_known);
                    let is_free = blocks.free().any(|(_, number)| number == at);
                    prop_assert_eq!(is_free, is_kept && pins == 0);
                }
            }
        }
    }

    #[test]
    fn a_block_is_fetched_once_and_again_if_the_first_dies() {
        let mut blocks = Blocks::default();
        assert!(matches!(blocks.need(3), Need::Fetch(None)));
        let (give, coming) = watch::channel(None);
        blocks.comes(3, coming);
        assert!(matches!(blocks.need(3), Need::Wait(_)));
        drop(give);
        assert!(matches!(blocks.need(3), Need::Fetch(None)));
        let found = Blocks::found([(3, 9, 1)]);
        assert!(matches!(found.need(3), Need::Fetch(Some(9))));
        assert!(!found.are_here(3..4));
    }
}
