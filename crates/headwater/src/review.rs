//! Checks sessions again and again, and ends those that are no longer allowed.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::access::{Access, Again};
use crate::sessions::{Over, Sessions};

/// Time between two looks, at least and at most. A look takes about a microsecond for each session, unless something must
/// be asked or computed.
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(10);

/// How many hashes and questions to the webhook run at a time.
const AT_A_TIME: usize = 16;

/// How long one look may take. Sessions that were not reached come first in the next look.
const AT_MOST: Duration = Duration::from_secs(30);

/// Ends sessions that are no longer allowed, until the future is dropped.
pub(crate) async fn run(access: &Access, sessions: &Sessions) {
    let quickly = async {
        let mut changed = access.changes();
        loop {
            look(access, sessions);
            until_due(access, &mut changed).await;
        }
    };
    // The webhook or key server may not answer for long, so this does not keep the other loop waiting.
    let slowly = async {
        let (mut changed, mut asked) = (access.changes(), HashMap::new());
        loop {
            look_slowly(access, sessions, &mut asked).await;
            until_due(access, &mut changed).await;
        }
    };
    tokio::join!(quickly, slowly);
}

/// Waits until a peer that was let in is no longer allowed. For peers that are no sessions.
///
/// With `by_secret`, the peer also needs the secret that it gave: it has more than an address alone would have.
pub(crate) async fn revoked(access: &Access, again: &Again, by_secret: bool) {
    let (mut changed, mut asked) = (access.changes(), Instant::now());
    loop {
        let policy = access.policy();
        let asks_hook = policy.recheck().is_some_and(|every| asked.elapsed() >= every);
        if asks_hook {
            asked = Instant::now();
        }
        let is_allowed = match policy.still(again.attempt()) {
            None => policy.still_slowly(again, asks_hook).await,
            known => known,
        };
        // Where nobody decides now, as without the keys of tokens, the peer stays.
        let needs_secret = by_secret && is_allowed.is_some();
        let has_secret = || access.policy().has_known_secret(again.attempt());
        if is_allowed == Some(false) || (needs_secret && !has_secret()) {
            return;
        }
        until_due(access, &mut changed).await;
    }
}

/// Waits for some time, or until another configuration decides.
async fn until_due(access: &Access, changed: &mut watch::Receiver<()>) {
    let every = access.policy().recheck().unwrap_or(LATEST).clamp(SOONEST, LATEST);
    // `access` has the sender, so waiting for changes does not fail.
    let _ = timeout(every, changed.changed()).await;
}

/// Looks at each session once, as far as nothing must be asked or computed.
fn look(access: &Access, sessions: &Sessions) {
    let policy = access.policy();
    for (id, again) in sessions.let_in() {
        if policy.still(again.attempt()) == Some(false) {
            revoke(sessions, id, &again);
        }
    }
}

/// Looks at each session about which something must be asked or computed. `asked` has when the webhook was asked last about
/// each session, or when its turn began.
async fn look_slowly(access: &Access, sessions: &Sessions, asked: &mut HashMap<u64, Instant>) {
    // No change after this one is missed.
    let mut changed = access.changes();
    let (policy, now) = (access.policy(), Instant::now());
    let mut before = std::mem::take(asked);
    let mut slow = Vec::new();
    for (id, again) in sessions.let_in() {
        let last = before.remove(&id).unwrap_or(now);
        asked.insert(id, last);
        if policy.still(again.attempt()).is_none() {
            slow.push((last, id, again));
        }
    }
    slow.sort_unstable_by_key(|(last, id, _)| (*last, *id));
    let recheck = policy.recheck();
    let slow = stream::iter(slow).map(|(last, id, again)| {
        let policy = Arc::clone(&policy);
        async move {
            let asks = recheck.is_some_and(|every| now.duration_since(last) >= every);
            if policy.still_slowly(&again, asks).await == Some(false) {
                revoke(sessions, id, &again);
            }
            asks.then_some(id)
        }
    });
    let end = pin!(async {
        tokio::select! {
            () = sleep(AT_MOST) => {}
            _ = changed.changed() => {}
        }
    });
    let mut slow = slow.buffer_unordered(AT_A_TIME).take_until(end);
    while let Some(found) = slow.next().await {
        if let Some(id) = found {
            asked.insert(id, now);
        }
    }
}

fn revoke(sessions: &Sessions, session: u64, again: &Again) {
    if sessions.end(session, Over::Revoked) {
        let (action, path, ip) = again.attempt().told();
        tracing::info!(session, action, path, %ip, "session is no longer allowed");
    }
}
