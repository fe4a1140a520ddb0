//! Tells other nodes of the streams that this one has.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::name;
use cluster::wire::{self, Beat, Message};
use live::mirror::Changes;
use live::{PartIndex, Status, Stream, Track};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::lease::{Error, LASTS, Lease};
use super::{Cession, Cluster, copy};

/// How often a node tells how far its streams are, so that copies find out what they lack.
const BEAT: Duration = Duration::from_millis(500);
/// How often a lease is renewed.
const RENEWAL: Duration = Duration::from_secs(1);
/// How long a node waits until another has taken a stream that was ceded.
const CEDED: Duration = Duration::from_secs(5);
/// How long a node waits until another has given back a lease, as it has promised. That may need three
/// requests to the bucket, and each may take two seconds.
const GIVEN_BACK: Duration = Duration::from_secs(8);

/// Shares every stream that is published here. Runs for ever.
pub(super) async fn run(cluster: Arc<Cluster>) {
    let mut begun = cluster.registry.begun();
    let mut known: HashMap<String, Weak<Stream>> = HashMap::new();
    let mut shared = JoinSet::new();
    loop {
        begun.mark_unchanged();
        known.retain(|_, stream| stream.strong_count() > 0);
        for stream in cluster.registry.streams() {
            let is_it = |known: &Weak<Stream>| known.as_ptr() == Arc::as_ptr(&stream);
            let is_known = known.get(stream.name()).is_some_and(is_it);
            if !is_known && !stream.is_mirrored() && stream.state().status != Status::Ended {
                known.insert(stream.name().to_owned(), Arc::downgrade(&stream));
                let (cluster, weak) = (Arc::clone(&cluster), Arc::downgrade(&stream));
                shared.spawn(async move {
                    let name = stream.name().to_owned();
                    share(cluster, stream).await;
                    (name, weak)
                });
            }
        }
        tokio::select! {
            changed = begun.changed() => if changed.is_err() { return },
            // A stream that was given away may come back.
            Some(ended) = shared.join_next() => if let Ok((name, stream)) = ended {
                known.retain(|known, it| *known != name || !Weak::ptr_eq(it, &stream));
            },
        }
    }
}

/// Shares one stream until it is over.
async fn share(cluster: Arc<Cluster>, stream: Arc<Stream>) {
    while stream.state().status != Status::Ended {
        let lease = match claim(&cluster, stream.name()).await {
            Ok(lease) => lease,
            Err(Error::Taken(node, _)) => {
                tracing::warn!(
                    stream = stream.name(),
                    node,
                    "publisher refused: another node has the stream"
                );
                stream.expel();
                return;
            }
            // Viewers of this node do not need the lease.
            Err(error) => {
                tracing::warn!(stream = stream.name(), %error, "not shared yet");
                sleep(RENEWAL).await;
                continue;
            }
        };
        tracing::debug!(stream = stream.name(), epoch = lease.epoch, "shared");
        let left = tell(&cluster, &stream, lease).await;
        let (lease, ceded) = match left {
            Left::Over(lease) => (lease, false),
            Left::Ceded(lease) => (lease, true),
            Left::Taken(epoch) => {
                cluster.disown(stream.name(), epoch);
                continue;
            }
        };
        // Who takes the stream asks for it until the lease is given back.
        let epoch = lease.epoch;
        if let Err(error) = cluster.leases.release(lease).await {
            tracing::debug!(stream = stream.name(), %error, "lease not given back");
        }
        cluster.disown(stream.name(), epoch);
        if !ceded {
            return;
        }
        cluster.is_ceded(stream.name());
        // Viewers watch what is here until the other node has it.
        let since = Instant::now();
        // A node with an older lease does not have it.
        let holder = || cluster.elsewhere(stream.name()).filter(|holder| holder.epoch > epoch);
        while holder().is_none() && since.elapsed() < CEDED {
            sleep(CEDED / 50).await;
        }
        if let Some(holder) = holder()
            && stream.become_copy()
        {
            // Viewers who are here go on with what the other node makes of the stream.
            copy::ensure(&cluster, stream.name(), holder);
            return;
        }
    }
}

/// Why a stream is not told any more.
enum Left {
    /// It is over.
    Over(Lease),
    /// Its publisher came to another node.
    Ceded(Lease),
    /// Another node took it. It was told by a lease of this epoch.
    Taken(u64),
}

/// Takes the lease of a stream, also from a node that has gone without giving it back, and from one where nobody
/// publishes the stream.
async fn claim(cluster: &Cluster, stream: &str) -> Result<Lease, Error> {
    let leases = &cluster.leases;
    let asked = Instant::now();
    let mut ceded = None;
    loop {
        let (node, epoch) = match leases.claim(stream, cluster.clock.now(), None).await {
            Err(Error::Taken(node, epoch)) => (node, epoch),
            claimed => return claimed,
        };
        // A newer lease of that node is not taken from it: its publisher is back.
        let gone = Some((&*node, epoch));
        if cluster.has_gone(&node).await {
            return leases.claim(stream, cluster.clock.now(), gone).await;
        }
        // That node is cut off, from this one at least. If it does not reach the bucket either, its lease ends.
        let is_patient = asked.elapsed() < LASTS + RENEWAL;
        if cluster.is_silent(&node) && is_patient {
            sleep(RENEWAL).await;
            continue;
        }
        match cluster.cedes(&node, stream).await {
            Ok(Cession::LeftOver) => return leases.claim(stream, cluster.clock.now(), gone).await,
            Ok(Cession::Soon) if ceded.get_or_insert_with(Instant::now).elapsed() < GIVEN_BACK => {
                sleep(BEAT / 2).await;
            }
            // The other node does not answer, so this one cannot know whether the stream is published there.
            Err(_) if is_patient => sleep(RENEWAL).await,
            _ => return Err(Error::Taken(node, epoch)),
        }
    }
}

/// Tells each change, as long as this node has the lease. A lease that cannot be renewed may be over, and another node
/// may take it. That alone ends nothing: others prefer the newer lease as soon as they hear of it, and this node loses
/// its own as soon as it can ask.
async fn tell(cluster: &Cluster, stream: &Arc<Stream>, mut lease: Lease) -> Left {
    // Copies that were begun before ask for what they lack.
    let mut changes = Changes::since(stream, shown(stream));
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut renewed = Instant::now();
    // Changes do not wait for the answer.
    let mut renewal = Box::pin(renew(cluster, lease.clone()));
    let is_live = || stream.state().status == Status::Live;
    cluster.own(stream.name(), lease.epoch, is_live());
    loop {
        tokio::select! {
            change = changes.next() => {
                // Others learn at once that the publisher came or left.
                cluster.own(stream.name(), lease.epoch, is_live());
                send(cluster, stream, lease.epoch, &Message::Change(change)).await;
            }
            () = cluster.cedes.notified() => {
                if cluster.is_ceded(stream.name()) && !is_live() {
                    return Left::Ceded(lease);
                }
            }
            _ = beats.tick() => {
                if cluster.is_ceded(stream.name()) && !is_live() {
                    return Left::Ceded(lease);
                }
                cluster.own(stream.name(), lease.epoch, is_live());
                let is_over = stream.state().status == Status::Ended;
                if is_over {
                    while let Some(change) = changes.take() {
                        send(cluster, stream, lease.epoch, &Message::Change(change)).await;
                    }
                }
                send(cluster, stream, lease.epoch, &Message::Beat(beat(stream))).await;
                if is_over {
                    return Left::Over(lease);
                }
            }
            (answered, asked, result) = &mut renewal => {
                lease = answered;
                match result {
                    Ok(()) => renewed = asked,
                    Err(Error::Taken(..)) => return Left::Taken(lease.epoch),
                    Err(error) if renewed.elapsed() > LASTS => {
                        tracing::warn!(stream = stream.name(), %error, "lease not renewed");
                        renewed = asked;
                    }
                    Err(_) => {}
                }
                renewal.set(renew(cluster, lease.clone()));
            }
        }
    }
}

/// Renews a lease after a while. Returns it, when that was asked for, and whether it was.
async fn renew(cluster: &Cluster, mut lease: Lease) -> (Lease, Instant, Result<(), Error>) {
    sleep(RENEWAL).await;
    let asked = Instant::now();
    let result = cluster.leases.renew(&mut lease).await;
    (lease, asked, result)
}

/// Tells copies of a stream something, by a lease of this epoch. While there is no connection, nothing waits: copies ask
/// for what they lack.
async fn send(cluster: &Cluster, stream: &Stream, epoch: u64, message: &Message) {
    if !cluster.is_connected() {
        return;
    }
    let subject = name::changes(stream.name());
    let messages = wire::write(epoch, message);
    let messages = messages.inspect_err(|error| tracing::error!(%error, "change not told"));
    for bytes in messages.unwrap_or_default() {
        let _ = cluster.bus.publish(subject.clone(), None, bytes).await;
    }
}

/// The place after the last part that viewers see of each track, by track_ID.
fn shown(stream: &Stream) -> Vec<(u32, PartIndex)> {
    let place = |track: &Arc<Track>| {
        let window = track.window();
        let newest = window.newest()?;
        Some((track.header().track.id, (newest.msn, newest.parts.len())))
    };
    stream.state().tracks.iter().filter_map(place).collect()
}

fn beat(stream: &Stream) -> Beat {
    let state = stream.state();
    let tracks = state.tracks.iter().map(|track| (track.header().track.id, track.window().version));
    Beat { version: state.version, tracks: tracks.collect() }
}
