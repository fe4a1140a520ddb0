use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use http::net::Drain;
use str0m::config::CryptoProvider;

use super::batch::Batch;
use super::feed::Feeds;
use super::sessions::Sessions;
use super::transport::Transport;
use crate::Origin;

/// State that the sessions of one worker share.
pub(super) struct Shared {
    pub(super) origin: Arc<Origin>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) crypto: Arc<CryptoProvider>,
    pub(super) transport: Transport,
    /// Packets that are written and sent before anything else runs.
    pub(super) batch: RefCell<Batch>,
    pub(super) feeds: Rc<Feeds>,
    pub(super) drain: Drain,
}
