//! Sessions that ended a short time ago.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use live::UnixMicros;
use tokio::time::Instant;

use super::{Doing, Told};

/// How long a session is remembered after its end.
pub(super) const REMEMBERED_FOR: Duration = Duration::from_secs(3600);

/// Most that are remembered: of viewers with a connection that left, of those that made requests, and of others.
pub(super) const MOST_REMEMBERED: usize = 10_000;

/// How many of those that made requests are remembered of one network whose sessions are limited.
pub(super) const OF_NETWORK: usize = 1_000;

/// The network whose sessions are limited, if they are.
type Network = Option<IpAddr>;

/// A session that is over.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The session as it was at its end.
    pub session: Told,
    /// When it ended, by the wall clock.
    pub at: UnixMicros,
    /// Why. `None` if the peer left, or the stream ended.
    pub reason: Option<String>,
    /// When it ended, by a clock that never steps.
    pub(super) when: Instant,
}

/// Sessions that ended within an hour.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Publishers, and those that ended for a reason.
    notable: VecDeque<Arc<Ended>>,
    /// Viewers that left.
    others: VecDeque<Arc<Ended>>,
    /// Players that made requests and make no more, with their networks.
    visits: VecDeque<(Network, Arc<Ended>)>,
    /// How many of these each network has.
    pub(super) of_network: HashMap<IpAddr, usize>,
}

impl Kept {
    /// Remembers a session. `network` is that of one that was made of requests.
    pub(super) fn add(&mut self, ended: Ended, network: Option<Network>) {
        // Viewers who come and go do not drive out the rest.
        let is_notable = ended.reason.is_some() || ended.session.who.doing == Doing::Publish;
        let ended = Arc::new(ended);
        match network {
            _ if is_notable => self.notable.push_back(ended),
            None => self.others.push_back(ended),
            Some(network) => {
                // Neither do the players that one address makes up.
                let count = network.map(|address| self.of_network.entry(address).or_default());
                if let Some(count) = count {
                    *count += 1;
                    if *count > OF_NETWORK
                        && let Some(first) = self.visits.iter().position(|(of, _)| *of == network)
                    {
                        *count -= 1;
                        self.visits.remove(first);
                    }
                }
                self.visits.push_back((network, ended));
            }
        }
        self.forget();
    }

    /// All of them, by no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Ended>> {
        let visits = self.visits.iter().map(|(_, ended)| ended);
        self.notable.iter().chain(&self.others).chain(visits)
    }

    /// Forgets what ended too long ago, or too many sessions ago.
    pub(super) fn forget(&mut self) {
        let is_old = |first: &Arc<Ended>| first.when.elapsed() >= REMEMBERED_FOR;
        for ended in [&mut self.notable, &mut self.others] {
            while ended.len() > MOST_REMEMBERED || ended.front().is_some_and(is_old) {
                ended.pop_front();
            }
        }
        while self.visits.len() > MOST_REMEMBERED
            || self.visits.front().is_some_and(|it| is_old(&it.1))
        {
            let Some((Some(network), _)) = self.visits.pop_front() else { continue };
            if let Some(count) = self.of_network.get_mut(&network) {
                *count -= 1;
                if *count == 0 {
                    self.of_network.remove(&network);
                }
            }
        }
    }
}
