//! Leases in a bucket that is lost.

use live::UnixMicros;
use tokio::time::Instant;

use super::super::lease::{Error, Leases};
use super::network::Network;
use crate::clock::Clock;

/// The bucket is lost, and begins anew with the revisions that there were. So the renewal of a node overwrites the lease
/// that another has by now.
#[tokio::test(start_paused = true)]
async fn the_newer_lease_counts_where_revisions_come_again() {
    let network = Network::new(1);
    let clock = Clock { started: (UnixMicros(1), Instant::now()) };
    let leases = |name: &str| Leases::new(network.join(name, clock), name.to_owned());
    let (a, b) = (leases("a"), leases("b"));
    let mut older = a.claim("x", UnixMicros(5), None).await.expect("it is free");
    network.lose_bucket();
    let mut newer = b.claim("x", UnixMicros(9), None).await.expect("nobody knows of the other");
    a.renew(&mut older).await.expect("the revision is the same");
    b.renew(&mut newer).await.expect("its lease is newer");
    let lost = a.renew(&mut older).await;
    assert!(matches!(&lost, Err(Error::Taken(node, 9)) if node == "b"), "{lost:?}");
    b.renew(&mut newer).await.expect("it has the lease");
    // Who gives a lease back that it does not have takes it from nobody for long.
    network.lose_bucket();
    b.renew(&mut newer).await.expect("nobody else has it");
    a.release(older).await.expect("nothing is to be done");
    b.renew(&mut newer).await.expect("it has the lease");
    assert!(matches!(a.claim("x", UnixMicros(20), None).await, Err(Error::Taken(..))));
}
