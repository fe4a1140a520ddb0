use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use http::net::Drain;
use str0m::config::CryptoProvider;

use super::Sessions;
use crate::Origin;
use crate::webrtc::play::feed::Feeds;
use crate::webrtc::send::Transport;
use crate::webrtc::send::batch::Batch;

/// State that the sessions of one worker share.
pub(in crate::webrtc) struct Shared {
    pub(in crate::webrtc) origin: Arc<Origin>,
    pub(in crate::webrtc) sessions: Arc<Sessions>,
    pub(in crate::webrtc) crypto: Arc<CryptoProvider>,
    pub(in crate::webrtc) transport: Transport,
    /// Packets that are written and sent before anything else runs.
    pub(in crate::webrtc) batch: RefCell<Batch>,
    pub(in crate::webrtc) feeds: Rc<Feeds>,
    pub(in crate::webrtc) drain: Drain,
}
