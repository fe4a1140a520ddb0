//! Leases of streams' names: one node has a stream at a time.
//!
//! A lease is a key in a bucket of JetStream. It is taken and renewed by compare-and-swap, and it ends by itself when
//! it is not renewed. Its value is an epoch and the name of the node. A later lease of the same name has a higher
//! epoch: the time, or one more than that of the lease before. Revisions would not do: a bucket that was lost, with all
//! servers that had it, begins with 1 again. So a node may even overwrite the newer lease of another, if that has the
//! revision that its own had in the bucket before. The newest lease counts: the other takes it back.

use std::sync::Arc;
use std::time::Duration;

use live::UnixMicros;

use super::bus::{Bus, Failed, Unwritten};

/// A lease that is not renewed for so long is over. It must outlast a change of the bucket's leader, which took 5.5 s.
pub(super) const LASTS: Duration = Duration::from_secs(10);

/// The leases of a cluster.
#[derive(Debug)]
pub(super) struct Leases {
    bus: Arc<dyn Bus>,
    node: String,
}

/// A lease that this node has.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    key: String,
    revision: u64,
    pub(super) epoch: u64,
}

/// Why there is no lease.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Another node has one, of this epoch.
    #[error("node {0} has the stream")]
    Taken(String, u64),
    /// Somebody else wrote the key meanwhile.
    #[error("the lease changed meanwhile")]
    Conflict,
    /// Nobody knows: the message system does not answer.
    #[error("no lease: {0}")]
    Failed(#[from] Failed),
}

impl From<Unwritten> for Error {
    fn from(unwritten: Unwritten) -> Self {
        match unwritten {
            Unwritten::Conflict => Self::Conflict,
            Unwritten::Failed(failed) => Self::Failed(failed),
        }
    }
}

/// What a bucket has of a name.
struct Known {
    revision: u64,
    epoch: u64,
    /// The node that has the lease; empty if it was given back.
    node: String,
}

impl Leases {
    pub(super) fn new(bus: Arc<dyn Bus>, node: String) -> Self {
        Self { bus, node }
    }

    /// Takes the lease of a stream at the time `now`. A lease that this node had before it was restarted is taken
    /// over, and so is the one that a node had by the epoch of `gone`.
    pub(super) async fn claim(
        &self,
        stream: &str,
        now: UnixMicros,
        gone: Option<(&str, u64)>,
    ) -> Result<Lease, Error> {
        let key = cluster::name::token(stream);
        let known = self.known(&key).await?;
        let is_others = |known: &Known| !known.node.is_empty() && known.node != self.node;
        let has_gone = |known: &Known| gone == Some((&*known.node, known.epoch));
        if let Some(other) = known.as_ref().filter(|known| is_others(known) && !has_gone(known)) {
            return Err(Error::Taken(other.node.clone(), other.epoch));
        }
        let (expected, before) = known.map_or((0, 0), |known| (known.revision, known.epoch));
        let epoch = now.0.max(before.saturating_add(1));
        let revision = self.put(&key, expected, epoch, &self.node).await?;
        Ok(Lease { key, revision, epoch })
    }

    /// Makes a lease last longer. If it has ended, it is taken again, with the same epoch, unless another node has a newer
    /// one.
    pub(super) async fn renew(&self, lease: &mut Lease) -> Result<(), Error> {
        let put = async |expected| self.put(&lease.key, expected, lease.epoch, &self.node).await;
        let is_others = |known: &Known| !known.node.is_empty() && known.node != self.node;
        // If another node had a newer lease meanwhile and gave it back, this one is lost.
        let is_lost = |known: &Known| (known.epoch, is_others(known)) > (lease.epoch, false);
        lease.revision = match put(lease.revision).await {
            // Either the last renewal was made and its answer was lost, or the lease has ended. It also ends where
            // the whole bucket is lost.
            Err(Error::Conflict) => match self.known(&lease.key).await? {
                Some(known) if is_lost(&known) => {
                    return Err(Error::Taken(known.node, known.epoch));
                }
                known => put(known.map_or(0, |known| known.revision)).await?,
            },
            renewed => renewed?,
        };
        Ok(())
    }

    /// Gives a lease back. The epoch is kept for as long as a lease lasts: who takes the next one uses a higher one.
    pub(super) async fn release(&self, lease: Lease) -> Result<(), Error> {
        let put = async |expected| self.put(&lease.key, expected, lease.epoch, "").await;
        match put(lease.revision).await {
            // A renewal was under way.
            Err(Error::Conflict) => match self.known(&lease.key).await? {
                Some(known) if known.node == self.node && known.epoch == lease.epoch => {
                    put(known.revision).await?;
                }
                _ => {}
            },
            released => {
                released?;
            }
        }
        Ok(())
    }

    async fn known(&self, key: &str) -> Result<Option<Known>, Error> {
        let Some(entry) = self.bus.get(key).await? else { return Ok(None) };
        let text = String::from_utf8_lossy(&entry.value);
        let (epoch, node) = text.split_once(' ').unwrap_or_default();
        let epoch = epoch.parse().unwrap_or(0);
        Ok(Some(Known { revision: entry.revision, epoch, node: node.to_owned() }))
    }

    /// Writes a lease, if the key's newest revision is `expected`. Returns the new revision.
    async fn put(&self, key: &str, expected: u64, epoch: u64, node: &str) -> Result<u64, Error> {
        Ok(self.bus.put(key, expected, format!("{epoch} {node}")).await?)
    }
}
