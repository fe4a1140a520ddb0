//! Decides which of a stream's two publishers goes on. No I/O, and time is an argument.

use std::time::Duration;

use super::patience::Patience;
use super::{Claim, Role, Times};
use crate::{PublishError, PublisherInfo, UnixMicros};

/// For this time, a stream that was given to another machine is that machine's, before that machine says so.
const CEDED: Duration = Duration::from_secs(5);
/// A steady primary at another machine asks for the stream again within this time.
const ASKS: Duration = Duration::from_secs(2);

/// The publishers of one stream name. At most one of them is live: its media go on.
#[derive(Debug)]
pub(super) struct Rules {
    times: Times,
    /// The seats, by role.
    seats: [Option<Taken>; 2],
    /// The role of the publisher that is live here.
    live: Option<Role>,
    /// The role of the publisher that is live at another machine.
    elsewhere: Option<Role>,
    /// The role of the publisher that was live last, here or elsewhere.
    last: Option<Role>,
    /// For how long the primary must be steady before it takes the stream back.
    patience: Patience,
    /// When a steady primary at another machine began to ask for the stream, and when it asked last.
    asked: Option<(UnixMicros, UnixMicros)>,
    /// Until when the stream counts as given away, even if no other machine has announced it. 0 if it was not given
    /// away lately.
    ceded: UnixMicros,
    /// Other machines had the stream by leases up to this epoch. They have it no longer.
    past: u64,
    next: u64,
}

/// A seat that a publisher has.
#[derive(Debug)]
struct Taken {
    id: u64,
    info: PublisherInfo,
    /// When the publisher's last sample came, or the publisher itself.
    heard: UnixMicros,
    /// Since when the publisher has sent without a long pause. `None` before its first sample.
    steady: Option<UnixMicros>,
}

/// How a seat was before a publisher took it.
#[derive(Debug)]
pub(super) struct Before {
    seat: Option<Taken>,
    live: Option<Role>,
}

/// The state of a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The publisher is live: its media go on.
    Live,
    /// The other publisher is live, or neither is yet.
    Waits,
    /// Another publisher has this publisher's seat.
    Replaced,
}

impl Rules {
    pub(super) fn new(times: Times) -> Self {
        Self {
            times,
            seats: [None, None],
            live: None,
            elsewhere: None,
            last: None,
            patience: Patience::default(),
            asked: None,
            ceded: UnixMicros(0),
            past: 0,
            next: 0,
        }
    }

    /// Gives a publisher its seat.
    ///
    /// Returns the number of the seat's holder, and the argument of [`Self::restore`]. A publisher that waits
    /// and is silent makes room: its encoder may come back by a new connection before the old one is known to
    /// be broken.
    ///
    /// # Errors
    /// Another publisher has the seat, and has not been silent for long enough.
    pub(super) fn enter(
        &mut self,
        role: Role,
        info: PublisherInfo,
        now: UnixMicros,
    ) -> Result<(u64, Before), PublishError> {
        let is_live = self.live == Some(role);
        if let Some(other) = &self.seats[role as usize] {
            let patience = if is_live { self.times.silence } else { self.times.after };
            if now.since(other.heard) < patience {
                return Err(PublishError::InUse(other.info.clone()));
            }
        }
        let live = self.live;
        self.live.take_if(|live| *live == role);
        self.next += 1;
        let taken = Taken { id: self.next, info, heard: now, steady: None };
        let seat = self.seats[role as usize].replace(taken);
        Ok((self.next, Before { seat, live }))
    }

    /// Undoes [`Self::enter`] for a publisher that is refused after all.
    pub(super) fn restore(&mut self, role: Role, Before { seat, live }: Before) {
        self.seats[role as usize] = seat;
        self.live = live;
    }

    /// Takes back the seat of a publisher that leaves.
    pub(super) fn leave(&mut self, role: Role, id: u64) {
        if self.standing(role, id) != Standing::Replaced {
            self.seats[role as usize] = None;
            self.live.take_if(|live| *live == role);
        }
    }

    /// The state of the publisher with this number.
    pub(super) fn standing(&self, role: Role, id: u64) -> Standing {
        match &self.seats[role as usize] {
            Some(taken) if taken.id == id && self.live == Some(role) => Standing::Live,
            Some(taken) if taken.id == id => Standing::Waits,
            _ => Standing::Replaced,
        }
    }

    /// Notes that a sample of a publisher came, and returns the publisher's state.
    pub(super) fn hear(&mut self, role: Role, id: u64, now: UnixMicros) -> Standing {
        let standing = self.standing(role, id);
        if let Some(taken) = &mut self.seats[role as usize]
            && standing != Standing::Replaced
        {
            if now.since(taken.heard) > self.times.after / 2 {
                taken.steady = None;
            }
            taken.heard = now;
            taken.steady.get_or_insert(now);
        }
        if role == Role::Primary && standing == Standing::Live {
            self.patience.goes_on(now);
        }
        standing
    }

    /// Whether a publisher that waits here may go on with its next keyframe.
    pub(super) fn may_begin(&self, role: Role, now: UnixMicros) -> bool {
        match (self.elsewhere, self.live) {
            (Some(_), _) => false,
            // The backup has the next turn if it sends, and the primary flaps.
            (None, None) => {
                role == Role::Backup
                    || !self.patience.is_flapping()
                    || self.is_silent(Role::Backup, now)
                    || self.is_steady(role, self.times.steady, now)
            }
            (None, Some(live)) => {
                live != role && (self.is_silent(live, now) || self.takes_back(role, now))
            }
        }
    }

    /// Whether a publisher that waits here sends, and may go on with its next keyframe.
    pub(super) fn has_next(&self, now: UnixMicros) -> bool {
        let is_next = |role| !self.is_silent(role, now) && self.may_begin(role, now);
        Role::ALL.into_iter().any(is_next)
    }

    /// Notes that a publisher is live now. Returns whether it is live in place of the other one.
    pub(super) fn begin(&mut self, role: Role, now: UnixMicros) -> bool {
        self.live = Some(role);
        let is_switch = self.is_switch(role);
        self.last = Some(role);
        if role == Role::Primary {
            self.patience.begins(self.times.steady, now);
        }
        is_switch
    }

    /// Notes that the publisher of this role is live at another machine.
    fn begin_elsewhere(&mut self, role: Role, now: UnixMicros) {
        match role {
            Role::Primary if self.last == Some(role) => self.patience.goes_on(now),
            Role::Primary => self.patience.begins(self.times.steady, now),
            Role::Backup => {}
        }
        (self.elsewhere, self.last) = (Some(role), Some(role));
    }

    /// Whether a publisher of this role would go on in place of the other one.
    pub(super) fn is_switch(&self, role: Role) -> bool {
        self.last == Some(role.other())
    }

    /// Notes which role is live at another machine, and the epoch of that machine's lease.
    ///
    /// A publisher of that role here has lost its place: a cluster has one of each role. Returns whether
    /// publishers here wait.
    pub(super) fn place(&mut self, found: Option<(Role, u64)>, now: UnixMicros) -> bool {
        let found = found.filter(|(_, epoch)| *epoch > self.past);
        if found.is_none() && now < self.ceded {
            return true;
        }
        match found {
            Some((role, _)) => self.begin_elsewhere(role, now),
            None => self.elsewhere = None,
        }
        if let Some(role) = self.elsewhere.filter(|role| self.live != Some(*role)) {
            self.seats[role as usize] = None;
        }
        self.elsewhere.is_some()
    }

    /// The publisher here that should go on with a stream that another machine has.
    ///
    /// `silent` says that, as far as this machine knows, the stream has had no media for long enough.
    pub(super) fn claims(&self, silent: bool, now: UnixMicros) -> Option<Claim> {
        let role = self.elsewhere?.other();
        let sends = !self.is_silent(role, now);
        // The other machine knows how often the primary failed, and applies its patience.
        let is_steady = self.is_steady(role, self.times.steady, now);
        let takes_back = !silent && role == Role::Primary && is_steady;
        (sends && (silent || takes_back)).then_some(Claim { role, takes_back })
    }

    /// Notes that another machine gave the stream away. That machine had it by a lease of this epoch.
    pub(super) fn granted(&mut self, epoch: u64) {
        self.past = self.past.max(epoch);
        self.elsewhere = None;
        self.ceded = UnixMicros(0);
    }

    /// Gives the stream to a publisher at another machine, if that one may have it. Returns whether it may.
    pub(super) fn cede(&mut self, Claim { role: to, takes_back }: Claim, now: UnixMicros) -> bool {
        if now < self.ceded && self.elsewhere != Some(to) {
            return false;
        }
        let is_back = takes_back
            && to == Role::Primary
            && self.asks(now) >= self.patience.needed(self.times.steady);
        let yields = |role: Role| self.is_silent(role, now) || role == Role::Backup && is_back;
        let cedes = match self.live {
            Some(live) => yields(live),
            // A publisher that sends here goes on with its next keyframe.
            None => Role::ALL.into_iter().all(yields),
        };
        if cedes {
            self.live = None;
            self.begin_elsewhere(to, now);
            self.ceded = now.after(CEDED);
        }
        cedes
    }

    /// Notes that a steady primary at another machine asks for the stream.
    ///
    /// Returns for how long that primary has been steady. Its machine may not know how often the primary
    /// failed, because the encoder may come to another machine each time.
    fn asks(&mut self, now: UnixMicros) -> Duration {
        let before = self.asked.filter(|(_, last)| now.since(*last) < ASKS);
        let since = before.map_or(now, |(since, _)| since);
        self.asked = Some((since, now));
        self.times.steady + now.since(since)
    }

    /// The role of the publisher that is live here.
    pub(super) fn live(&self) -> Option<Role> {
        self.live
    }

    /// The publishers that wait here and send.
    pub(super) fn waiting(&self, now: UnixMicros) -> impl Iterator<Item = (Role, &PublisherInfo)> {
        let waits = move |role: &Role| self.live != Some(*role) && !self.is_silent(*role, now);
        let info = |role: Role| Some((role, &self.seats[role as usize].as_ref()?.info));
        Role::ALL.into_iter().filter(waits).filter_map(info)
    }

    /// Whether nobody has a seat, and the stream was not given away lately.
    pub(super) fn is_empty(&self) -> bool {
        self.seats.iter().all(Option::is_none) && self.ceded == UnixMicros(0)
    }

    /// Forgets that the stream was given away, if that was long enough ago.
    pub(super) fn expire(&mut self, now: UnixMicros) {
        if now >= self.ceded {
            self.ceded = UnixMicros(0);
        }
    }

    /// Whether no media come from a publisher of this role.
    fn is_silent(&self, role: Role, now: UnixMicros) -> bool {
        let taken = self.seats[role as usize].as_ref();
        taken.is_none_or(|taken| now.since(taken.heard) >= self.times.after)
    }

    /// Whether a publisher of this role takes the stream back from one that sends.
    fn takes_back(&self, role: Role, now: UnixMicros) -> bool {
        role == Role::Primary && self.is_steady(role, self.patience.needed(self.times.steady), now)
    }

    /// Whether a publisher has sent for the needed time without a long pause.
    fn is_steady(&self, role: Role, needed: Duration, now: UnixMicros) -> bool {
        let since = self.seats[role as usize].as_ref().and_then(|taken| taken.steady);
        since.is_some_and(|since| now.since(since) >= needed)
    }
}

#[cfg(test)]
mod tests;
