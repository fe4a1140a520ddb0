//! What this node says of itself once a second, and what it hears of others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::available_parallelism;
use std::time::Duration;

use cluster::presence::{self, Announcement, Report, Seats, Streams};
use futures_util::StreamExt;
use live::{Status, Stream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::Cluster;
use crate::machine;

/// The least time between two messages of announcements. Many streams may begin at once, and each announcement has all
/// streams. One of several messages takes as much longer. So a node sends at most five messages a second, and the first
/// change after a quiet time is told at once.
const SPACING: Duration = Duration::from_millis(200);
/// A node that has announced nothing for so long is asked whether it is still there.
const QUIET: Duration = Duration::from_millis(1200);
/// The time between two looks for such nodes.
const LOOKS: Duration = Duration::from_millis(200);
/// The least time over which the load is measured.
const MEASURED: Duration = Duration::from_millis(900);

/// Hears what other nodes have. Runs for ever.
pub(super) async fn hear(cluster: Arc<Cluster>) {
    let Ok(mut announced) = cluster.bus.subscribe(presence::SUBJECT.to_owned()).await else {
        return;
    };
    while let Some(message) = announced.next().await {
        match Announcement::read(&message.payload) {
            Ok(announcement) => cluster.directory().hear(announcement, cluster.clock.now()),
            Err(error) => cluster.refuse(&error),
        }
    }
}

/// Finds out which nodes have gone, also where nobody asks for their streams: an encoder that comes from such a node
/// need not wait until this one has made sure. Runs for ever.
pub(super) async fn watch(cluster: Arc<Cluster>) {
    let mut questions = JoinSet::new();
    let mut asked = HashSet::new();
    loop {
        tokio::time::sleep(LOOKS).await;
        while let Some(answered) = questions.try_join_next() {
            if let Ok(node) = answered {
                asked.remove(&node);
            }
        }
        // After an outage, nodes connect again one after the other. Those that are late have not gone.
        if !cluster.has_heard_all() {
            continue;
        }
        for node in cluster.directory().quiet(QUIET, cluster.clock.now()) {
            // A node that stands still does not answer for a while. Meanwhile others are asked.
            if asked.insert(node.clone()) {
                let cluster = Arc::clone(&cluster);
                questions.spawn(async move {
                    cluster.has_gone(&node).await;
                    node
                });
            }
        }
    }
}

/// Says what this node has. Runs for ever.
pub(super) async fn run(cluster: Arc<Cluster>) {
    let mut load = Load::new();
    loop {
        let messages = announcement(&cluster, load.thousandths()).split();
        let rest = SPACING.saturating_mul(u32::try_from(messages.len()).unwrap_or(u32::MAX));
        let rest = rest.min(presence::INTERVAL);
        for message in messages {
            let written = message.write().map_err(|error| error.to_string());
            let sent = match written {
                Ok(bytes) => {
                    let sent = cluster.bus.publish(presence::SUBJECT.to_owned(), None, bytes).await;
                    sent.map_err(|error| error.to_string())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = sent {
                tracing::warn!(error, "this node was not announced");
            }
        }
        tokio::time::sleep(rest).await;
        let _ = timeout(presence::INTERVAL.saturating_sub(rest), cluster.owns.notified()).await;
    }
}

fn announcement(cluster: &Cluster, load: u16) -> Announcement {
    let now = cluster.clock.now();
    let told = |(name, &(epoch, live)): (&String, &(u64, bool))| (name.clone(), epoch, live);
    let owned = cluster.owned().clone();
    let streams = owned.iter().map(told).collect();
    let of =
        |stream: &Arc<Stream>| stream.viewers(now).iter().map(|(_, count)| *count).sum::<usize>();
    let live: usize = cluster.registry.streams().iter().map(of).sum();
    let viewers = live + cluster.title_viewers.count(now).values().sum::<usize>();
    let copies = cluster.copies();
    let copies = copies.iter().filter_map(|(name, progress)| {
        let progress = progress.borrow();
        // Nobody needs a further copy of a stream that is over. A node would fetch the whole window for each request.
        let copied = progress.copied().filter(|it| it.stream().state().status != Status::Ended)?;
        Some((name.clone(), copied.behind(now)))
    });
    Announcement {
        node: cluster.node.clone(),
        address: cluster.address.clone(),
        zone: cluster.zone.clone(),
        viewers: u32::try_from(viewers).unwrap_or(u32::MAX),
        ready: !cluster.leaves.load(Ordering::Relaxed),
        message: (0, 1),
        streams,
        seats: seats(cluster, &owned),
        report: Some(Report { load, copies: copies.collect() }),
    }
}

/// The publishers of streams that have two here, or that have only publishers of renditions.
fn seats(cluster: &Cluster, streams: &Streams) -> Vec<(String, Seats)> {
    let now = cluster.clock.now();
    let waiting: HashMap<_, _> = cluster.seats.waiting(now).into_iter().collect();
    let live = cluster.seats.live();
    let waits = |name: &str| waiting.get(name).map(|role| (*role).into());
    let mut seats: HashMap<_, _> = waiting
        .keys()
        .map(|name| (name.to_string(), Seats { live: None, waits: waits(name) }))
        .collect();
    for (name, &(_, is_live)) in streams {
        let live = live.get(&**name).copied().map(cluster::role::Role::from);
        let primary = is_live.then_some(cluster::role::Role::Primary);
        if live != primary || waiting.contains_key(&**name) {
            seats.insert(name.clone(), Seats { live, waits: waits(name) });
        }
    }
    seats.into_iter().collect()
}

/// How much of the machine's processors this program uses.
struct Load {
    since: Instant,
    used: Duration,
    thousandths: u16,
}

impl Load {
    fn new() -> Self {
        Self { since: Instant::now(), used: machine::processor_time(), thousandths: 0 }
    }

    /// The share in thousandths, over about the last second.
    fn thousandths(&mut self) -> u16 {
        let elapsed = self.since.elapsed();
        if elapsed >= MEASURED {
            let used = machine::processor_time();
            let processors = available_parallelism().map_or(1, usize::from);
            let whole = elapsed.as_micros().saturating_mul(processors as u128).max(1);
            let share = used.saturating_sub(self.used).as_micros().saturating_mul(1000) / whole;
            self.thousandths = u16::try_from(share.min(1000)).unwrap_or(1000);
            (self.since, self.used) = (Instant::now(), used);
        }
        self.thousandths
    }
}
