//! Tells single access units of this node's streams, while viewers of copies read these.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use cluster::name;
use cluster::wire::{self, Message, Wants};
use live::Stream;
use live::mirror::Units;
use tokio::time::{Instant, timeout_at};

use super::Cluster;
use super::copy::WANTS;

/// The streams of this node, by name, from which viewers of copies want units.
pub(super) type Wanted = HashMap<String, WantedUnits>;

/// The units of a stream that viewers of copies want.
#[derive(Debug)]
pub(super) struct WantedUnits {
    stream: Weak<Stream>,
    /// The time until which units of a track are wanted, by track_ID.
    tracks: HashMap<u32, Instant>,
}

/// Carries out the wants of a copy's viewers for a stream that this node has.
pub(super) fn want(cluster: &Arc<Cluster>, stream: &Arc<Stream>, wants: &Wants) {
    let until = Instant::now() + WANTS;
    let mut units = HashMap::new();
    for track in &stream.state().tracks {
        let id = track.header().track.id;
        if wants.played.contains(&id) {
            track.ask(cluster.clock.now());
        }
        if wants.units.contains(&id) {
            units.insert(id, until);
        }
    }
    if units.is_empty() {
        return;
    }
    let mut wanted = cluster.wanted();
    match wanted.get_mut(stream.name()).filter(|it| it.stream.as_ptr() == Arc::as_ptr(stream)) {
        Some(known) => known.tracks.extend(units),
        None => {
            let of = WantedUnits { stream: Arc::downgrade(stream), tracks: units };
            wanted.insert(stream.name().to_owned(), of);
            tokio::spawn(tell(Arc::clone(cluster), Arc::clone(stream)));
        }
    }
}

/// Tells the units of a stream until nobody wants them any more.
async fn tell(cluster: Arc<Cluster>, stream: Arc<Stream>) {
    let name = stream.name();
    let mut units = Units::new(&stream);
    while let Some((until, epoch)) = wanted(&cluster, &stream, &mut units) {
        let Ok(unit) = timeout_at(until, units.next()).await else { continue };
        for bytes in wire::write(epoch, &Message::Unit(unit)).unwrap_or_default() {
            // While there is no connection, nothing waits: units come with their parts.
            if cluster.is_connected() {
                let _ = cluster.bus.publish(name::units(name), None, bytes).await;
            }
        }
    }
}

/// Limits what is told to the tracks that are wanted. Returns until when, at least, and the epoch of the lease. `None` if
/// nothing of this stream is wanted any more; a later wish then begins anew.
fn wanted(cluster: &Cluster, stream: &Arc<Stream>, units: &mut Units) -> Option<(Instant, u64)> {
    let now = Instant::now();
    let epoch = cluster.owned().get(stream.name()).map(|(epoch, _)| *epoch);
    let mut wanted = cluster.wanted();
    let of = wanted.get_mut(stream.name())?;
    if of.stream.as_ptr() != Arc::as_ptr(stream) {
        return None;
    }
    of.tracks.retain(|_, until| *until > now);
    let next = of.tracks.values().min().copied().zip(epoch);
    units.limit(|track| of.tracks.contains_key(&track));
    if next.is_none() {
        wanted.remove(stream.name());
    }
    next
}
