//! Tells single access units of this node's streams, while viewers of copies read these.

use std::collections::HashMap;
use std::sync::Arc;

use cluster::name;
use cluster::wire::{self, Message, Wants};
use live::Stream;
use live::mirror::Units;
use tokio::time::{Instant, timeout_at};

use super::Cluster;
use super::copy::WANTS;

/// Until when somebody wants units of streams, by name.
pub(super) type Wanted = HashMap<String, Instant>;

/// Does what viewers of a copy want of a stream that this node has.
pub(super) fn want(cluster: &Arc<Cluster>, stream: &Arc<Stream>, wants: &Wants) {
    for track in &stream.state().tracks {
        if wants.played.contains(&track.header().track.id) {
            track.ask(cluster.clock.now());
        }
    }
    if wants.units {
        let until = Instant::now() + WANTS;
        if cluster.wanted().insert(stream.name().to_owned(), until).is_none() {
            tokio::spawn(tell(Arc::clone(cluster), Arc::clone(stream)));
        }
    }
}

/// Tells the units of a stream until nobody wants them any more.
async fn tell(cluster: Arc<Cluster>, stream: Arc<Stream>) {
    let name = stream.name();
    let mut units = Units::new(&stream);
    loop {
        let until = cluster.wanted().get(name).copied();
        let epoch = cluster.owned().get(name).map(|(epoch, _)| *epoch);
        let (Some(until), Some(epoch)) = (until.filter(|until| *until > Instant::now()), epoch)
        else {
            cluster.wanted().remove(name);
            return;
        };
        let Ok(unit) = timeout_at(until, units.next()).await else { continue };
        for bytes in wire::write(epoch, &Message::Unit(unit)).unwrap_or_default() {
            // While there is no connection, nothing waits: units come with their parts.
            if cluster.is_connected() {
                let _ = cluster.bus.publish(name::units(name), None, bytes).await;
            }
        }
    }
}
