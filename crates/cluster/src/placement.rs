//! Which nodes keep a copy of a stream that nobody watches there.
//!
//! Each node decides this alone, by rendezvous hashing (highest random weight): every node has a weight for every
//! stream, and the nodes with the highest weights keep copies. All nodes that know the same nodes come to the same
//! answer, and streams spread evenly. When a node comes or goes, only the copies that it gets or had move.

use std::cmp::Reverse;

/// A name as a number, from which [`is_chosen`] makes weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hashed(u64);

impl Hashed {
    /// The number of a node's or a stream's name. It is the same on all machines and in all builds of the program.
    pub fn new(name: &str) -> Self {
        // FNV-1a. Its lowest bits are weak, which `weight` makes up for.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash)
    }
}

/// Whether the node `here` is among the `count` nodes with the highest weights for `stream`. `others` are the further
/// nodes that may keep a copy, each with its name.
pub fn is_chosen<'a>(
    stream: Hashed,
    here: (Hashed, &str),
    others: impl IntoIterator<Item = (Hashed, &'a str)>,
    count: usize,
) -> bool {
    // Names decide between equal weights.
    let rank = |(node, name)| (weight(stream, node), Reverse(name));
    let own = rank(here);
    others.into_iter().filter(|other| rank(*other) > own).take(count).count() < count
}

/// The weight of a node for a stream: the two numbers mixed by the finalizer of SplitMix64.
fn weight(stream: Hashed, node: Hashed) -> u64 {
    let mut mixed = stream.0.rotate_left(32) ^ node.0;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const STREAMS: usize = 2000;

    fn names(kind: &str, count: usize) -> Vec<String> {
        (1..=count).map(|number| format!("{kind}-{number}")).collect()
    }

    /// The nodes that keep copies of a stream.
    fn chosen(stream: &str, nodes: &[String], count: usize) -> HashSet<String> {
        let hashed = |name: &str| Hashed::new(name);
        let is_chosen = |here: &&String| {
            let others = nodes.iter().filter(|node| node != here);
            let others = others.map(|node| (hashed(node), &**node));
            is_chosen(hashed(stream), (hashed(here), here), others, count)
        };
        nodes.iter().filter(is_chosen).cloned().collect()
    }

    #[test]
    fn each_stream_has_as_many_copies_as_asked_for_or_as_there_are_nodes() {
        let nodes = names("edge", 5);
        for stream in names("stream", 100) {
            for count in 0..8 {
                assert_eq!(chosen(&stream, &nodes, count).len(), count.min(5), "{stream}");
            }
        }
    }

    #[test]
    fn copies_spread_evenly() {
        let nodes = names("edge", 10);
        for count in [1, 2] {
            let mut kept = vec![0_usize; nodes.len()];
            for stream in names("stream", STREAMS) {
                let chosen = chosen(&stream, &nodes, count);
                let at = nodes.iter().enumerate().filter(|(_, node)| chosen.contains(*node));
                at.for_each(|(at, _)| kept[at] += 1);
            }
            let even = count * STREAMS / nodes.len();
            assert!(kept.iter().all(|kept| kept.abs_diff(even) < even / 5), "{kept:?}");
        }
    }

    #[test]
    fn only_the_copies_of_a_node_that_goes_move() {
        let nodes = names("edge", 10);
        let (gone, left) = nodes.split_first().expect("ten nodes");
        let mut moved = 0;
        for stream in names("stream", STREAMS) {
            let (before, after) = (chosen(&stream, &nodes, 2), chosen(&stream, left, 2));
            let kept: HashSet<_> = before.iter().filter(|node| *node != gone).cloned().collect();
            assert!(after.is_superset(&kept), "{stream}: {before:?} {after:?}");
            moved += after.difference(&before).count();
        }
        // A tenth of all copies was there.
        assert!((350..450).contains(&moved), "{moved}");
    }

    #[test]
    fn a_weight_is_the_same_in_all_builds() {
        assert_eq!(Hashed::new("live"), Hashed(0xbf66_95ad_6966_058f));
        assert_eq!(weight(Hashed::new("live"), Hashed::new("edge-1")), 0x5add_671a_16bd_ebd1);
    }
}
