//! Sends bytes when connections can take them, and reads bytes that have come.

use std::cmp::Reverse;

use rustix::event::epoll::EventFlags;

use super::Worker;
use super::pool::Key;
use crate::load::trouble::Trouble;

impl Worker<'_> {
    /// Reads on from slow connections whose pause is over.
    pub(super) fn resume(&mut self, now: u64) {
        while let Some(Reverse((until, key))) = self.paused.peek().copied()
            && until <= now
        {
            self.paused.pop();
            self.read(key);
        }
    }

    pub(super) fn handle(&mut self, key: Key, flags: EventFlags) {
        let now = self.given.clock.now();
        let Some(connection) = self.pool.get(key) else { return };
        if let Some(since) = connection.connecting {
            match connection.connected() {
                Ok(()) => {
                    connection.connecting = None;
                    self.tally.connect.saturating_record(now.saturating_sub(since));
                    self.watch(key, false);
                    self.flush(key);
                }
                Err(trouble) => self.close(key, Some(&trouble)),
            }
        } else if flags.contains(EventFlags::OUT) {
            self.watch(key, false);
            self.flush(key);
        }
        if flags.intersects(EventFlags::HUP | EventFlags::ERR)
            && let Some(connection) = self.pool.get(key)
        {
            connection.hurry();
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.read(key);
        }
    }

    pub(super) fn flush(&mut self, key: Key) {
        let Some(connection) = self.pool.get(key) else { return };
        if connection.connecting.is_some() {
            return;
        }
        match connection.flush(&mut self.tally.counters) {
            Ok(true) => {}
            Ok(false) => self.watch(key, true),
            Err(trouble) => {
                // The bytes that the peer sent before closing explain more than the error.
                self.read(key);
                self.close(key, Some(&trouble));
            }
        }
    }

    pub(super) fn read(&mut self, key: Key) {
        let Some(connection) = self.pool.get(key) else { return };
        let mut answers = std::mem::take(&mut self.answers);
        let result = connection.read(&mut self.io, &mut self.tally.counters, &mut answers);
        let closes = connection.closing && connection.flying.is_empty();
        for answer in answers.drain(..) {
            self.answered(answer);
        }
        self.answers = answers;
        match result {
            Err(trouble) => self.close(key, Some(&trouble)),
            Ok(()) if closes => self.close(key, None),
            Ok(()) => {
                self.pool.list(key);
                self.pause(key);
            }
        }
    }

    /// Pauses a connection that has used up its allowance. Listens to it again after a read below
    /// the allowance.
    fn pause(&mut self, key: Key) {
        if self.given.plan.manner.read_rate.is_none() {
            return;
        }
        let now = self.given.clock.now();
        let Some(connection) = self.pool.get(key) else { return };
        let until = connection.rests_until(now);
        let was_paused = std::mem::replace(&mut connection.paused, until.is_some());
        let unsent = !connection.out.is_empty();
        if was_paused != until.is_some() {
            self.watch(key, unsent);
        }
        if let Some(until) = until {
            self.paused.push(Reverse((until, key)));
        }
    }

    /// Calls [`Pool::watch`](super::pool::Pool::watch). Closes the connection if that fails,
    /// because it is useless then.
    fn watch(&mut self, key: Key, written: bool) {
        if let Err(error) = self.pool.watch(key, written) {
            self.close(key, Some(&Trouble::of_io(error)));
        }
    }
}
