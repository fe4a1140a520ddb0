//! Copies that this node keeps whether or not anybody watches (`cluster.copies`).
//!
//! So the history of a stream is not lost with its node. No message is needed: each node finds out by itself which
//! streams it keeps a copy of ([`placement`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::placement::{self, Hashed};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Cluster;
use super::copy::{self, Progress};

/// How often a node looks which copies it should keep.
const LOOKS: Duration = Duration::from_millis(500);
/// The most copies that are made at once. After a node was lost, many are missing, and each is a whole window on the
/// network. The node that has the streams tells twice as many windows at once, so that viewers do not wait behind these.
const MOST_MADE: usize = 4;
/// No copy is begun for so long after one has given way, because memory was short.
const GAVE_WAY: Duration = Duration::from_secs(60);
/// A copy is begun at most once in this time.
const AGAIN: Duration = Duration::from_secs(10);

/// Keeps copies here of the streams for which this node is one of `count`. Runs for ever.
pub(super) async fn run(cluster: Arc<Cluster>, count: usize) {
    let mut looks = interval(LOOKS);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut begun: HashMap<String, Instant> = HashMap::new();
    loop {
        looks.tick().await;
        // Without a connection nobody knows which nodes there are. What was kept is kept.
        if !cluster.has_heard_all() {
            continue;
        }
        let kept = chosen(&cluster, count);
        cluster.standing().clone_from(&kept);
        begun.retain(|name, _| kept.contains(name));
        let gave_way = cluster.gave_way().is_some_and(|at| at.elapsed() < GAVE_WAY);
        if gave_way || !cluster.registry.has_room() {
            continue;
        }
        let copies = cluster.copies().clone();
        let is_made = |it: &&watch::Receiver<Progress>| it.borrow().is_under_way();
        let most = MOST_MADE.saturating_sub(copies.values().filter(is_made).count());
        let is_missing = |name: &&String| {
            let was_begun = begun.get(*name).is_some_and(|begun| begun.elapsed() < AGAIN);
            !was_begun && !copies.contains_key(*name) && !cluster.has_own(name)
        };
        for name in kept.iter().filter(is_missing).take(most).cloned().collect::<Vec<_>>() {
            let Some(holder) = cluster.elsewhere(&name) else { continue };
            copy::ensure(&cluster, &name, holder);
            begun.insert(name, Instant::now());
        }
    }
}

/// The streams that this node must copy.
fn chosen(cluster: &Cluster, count: usize) -> HashSet<String> {
    let (nodes, _) = cluster.nodes();
    let mut holders = HashMap::new();
    for node in &nodes {
        for (name, lease) in &*node.streams {
            let holder = (lease, &*node.node);
            let newest = holders.entry(name).or_insert(holder);
            *newest = holder.max(*newest);
        }
    }
    // A stream whose node has gone stays until its publisher comes to another, or for as long as viewers may wait.
    let mut chosen = cluster.standing().clone();
    let copies = cluster.copies();
    chosen.retain(|name| !holders.contains_key(name) && copies.contains_key(name));
    drop(copies);
    if cluster.leaves.load(Ordering::Relaxed) {
        return chosen;
    }
    let here = (Hashed::new(&cluster.node), &*cluster.node);
    let others = nodes.iter().filter(|node| node.ready && node.node != cluster.node);
    let others: Vec<_> = others.map(|node| (Hashed::new(&node.node), &*node.node)).collect();
    let is_chosen = |name: &str, holder: &str| {
        let others = others.iter().copied().filter(|(_, node)| *node != holder);
        holder != cluster.node && placement::is_chosen(Hashed::new(name), here, others, count)
    };
    let here = holders.into_iter().filter(|(name, (_, holder))| is_chosen(name, holder));
    chosen.extend(here.map(|(name, _)| name.clone()));
    chosen
}
