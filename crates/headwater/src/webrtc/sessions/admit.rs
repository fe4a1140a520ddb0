//! Which session a new peer's address or connection belongs to. Its first packet must say and prove that.

use std::rc::Rc;

use http::net::Worker;
use str0m::ice::StunMessage;
use tokio::task::spawn_local;

use super::session;
use super::shared::Shared;
use super::{Found, Inbox};

/// The inbox of the session that a request names, if it proves that its sender knows the session's
/// password. If the session waits to be run, it runs on this worker from now on. `is_new` says that the peer
/// has not sent from this address before.
pub(super) fn admit(
    shared: &Rc<Shared>,
    worker: &Worker,
    request: &StunMessage<'_>,
    is_new: bool,
) -> Option<Inbox> {
    let Shared { sessions, crypto, .. } = &**shared;
    let (fragment, _) = request.split_username()?;
    let sha1 = |key: &[u8], parts: &[&[u8]]| crypto.sha1_hmac_provider.sha1_hmac(key, parts);
    let knows = |password: &str| request.verify(password.as_bytes(), sha1);
    let Found { inbox, waiting } = sessions.admit(fragment, is_new, knows)?;
    if let Some((waiting, registration)) = waiting {
        let (shared, task) = (Rc::clone(shared), worker.task());
        let id = waiting.id.clone();
        spawn_local(id.scope(async move {
            let _held = (task, registration);
            session::run(*waiting, shared).await;
        }));
    }
    Some(inbox)
}
