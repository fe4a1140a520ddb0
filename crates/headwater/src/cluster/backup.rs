//! Publishers that wait here for a stream that another node has.
//!
//! The node keeps a copy of the stream for them ([`copy`](super::copy)). [`Seats`](live::backup::Seats) decides when
//! one of them should go on. The copy then asks for the stream itself. Where no copy can be made, each attempt does.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use live::backup::Role;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Cluster, copy};

/// How often a node looks where the streams are that publishers wait for. It adds to the gap that viewers see when
/// nobody says that a publisher has left.
const LOOKS: Duration = Duration::from_millis(200);
/// The time between two attempts to make a copy: a node sends all of a stream for each.
const ATTEMPTS: Duration = Duration::from_secs(1);

/// Looks after the publishers that wait here. Runs for ever.
pub(super) async fn run(cluster: Arc<Cluster>) {
    let mut looks = interval(LOOKS);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = HashSet::new();
    let mut attempts: HashMap<Arc<str>, Instant> = HashMap::new();
    loop {
        looks.tick().await;
        let now = cluster.clock.now();
        let waiting: HashSet<_> =
            cluster.seats.waiting(now).into_iter().map(|(name, role)| (name, role as u8)).collect();
        attempts.retain(|_, at| at.elapsed() < ATTEMPTS);
        for (name, role) in &waiting {
            let holder = cluster.elsewhere(name);
            let role = if *role == Role::Primary as u8 { Role::Primary } else { Role::Backup };
            let both_wait = waiting.contains(&(Arc::clone(name), role.other() as u8));
            // Where nobody's media go on, the node decides who gets the stream. If both wait here, one of them takes it.
            let found = holder.as_ref().and_then(|holder| {
                let known = holder.publisher.or(holder.waits).map(Role::from);
                let other = known.or_else(|| (!both_wait).then_some(role.other()))?;
                Some((other, holder.epoch))
            });
            let is_elsewhere = cluster.seats.place(name, found, now);
            if let Some(holder) = holder.filter(|_| is_elsewhere && !cluster.has_own(name))
                && !attempts.contains_key(name)
            {
                copy::ensure(&cluster, name, holder);
                attempts.insert(Arc::clone(name), Instant::now());
            }
        }
        // The other nodes refuse a third publisher.
        if waiting != before {
            cluster.owns.notify_one();
            before = waiting;
        }
    }
}
