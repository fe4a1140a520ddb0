//! Places for viewers that tell of themselves.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use http::net::{Gate, PerAddress};
use live::sessions::Permit;

/// The most sessions of all streams and titles.
const MOST: usize = 200_000;

/// Tells apart viewers that name their session, and limits their number in all and by address. Otherwise one client
/// could make up as many as it likes.
#[derive(Debug)]
pub struct Reporters {
    gate: Arc<Gate>,
    /// Nobody can make two names alike without the keys.
    keys: RandomState,
}

impl Reporters {
    /// Makes places for everybody.
    pub fn new(per_address: Option<PerAddress>) -> Self {
        Self { gate: Arc::new(Gate::new(MOST, per_address)), keys: RandomState::new() }
    }

    /// The key of a session with this name.
    pub fn key(&self, session: &str) -> u64 {
        self.keys.hash_one(session)
    }

    /// A permit for a new session from this address, if there is one.
    pub fn permit(&self, address: IpAddr) -> Option<Permit> {
        self.gate.admit(address).ok().map(|permit| Box::new(permit) as Permit)
    }
}
