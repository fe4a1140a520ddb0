//! Brings due requests to connections.

use std::cmp::Reverse;

use super::pool::Key;
use super::{BATCH, Worker};
use crate::load::connection::Connection;
use crate::load::exchange::Exchange;
use crate::load::several::source_for;
use crate::load::target::of_request;
use crate::load::trouble::Trouble;

/// The most requests that wait for a connection. Further requests stay in the schedule, and each
/// keeps its due time.
const MOST_WAITING: usize = 1 << 20;

impl Worker<'_> {
    /// Starts due requests, but not too many at once: answers would wait unread.
    pub(super) fn issue(&mut self, now: u64) {
        while self.resting.peek().is_some_and(|Reverse(until)| *until <= now) {
            self.resting.pop();
            self.given.demand.give_back();
        }
        for _ in 0..BATCH {
            if self.waiting.len() >= MOST_WAITING {
                break;
            }
            let Some((number, due)) = self.given.demand.take(now) else { break };
            let taken = due.map(|_| now.saturating_sub(self.standstill));
            let due = match due {
                Some(due) => {
                    self.tally.lag.saturating_record(now.saturating_sub(due));
                    due
                }
                None => self.given.clock.now(),
            };
            let plan = self.given.plan;
            let (place, range) = of_request(&plan.targets, plan.rule, number);
            self.tally.counters.requests += 1;
            self.ready.push_back(Exchange {
                asked: self.asked[place].clone(),
                range,
                due,
                taken,
                begun: 0,
                first_byte: 0,
                redirects: 0,
                sent_again: 0,
            });
            self.dispatch_ready();
        }
        // A request may fail while it is sent. Then it goes over another connection.
        loop {
            self.dispatch_ready();
            self.flush_touched();
            if self.ready.is_empty() {
                break;
            }
        }
    }

    fn dispatch_ready(&mut self) {
        while let Some(exchange) = self.waiting.pop_front() {
            if let Err(exchange) = self.dispatch(exchange) {
                self.waiting.push_front(exchange);
                break;
            }
        }
        while let Some(exchange) = self.ready.pop_front() {
            // Requests that wait longer go first.
            let unplaced =
                if self.waiting.is_empty() { self.dispatch(exchange) } else { Err(exchange) };
            if let Err(exchange) = unplaced {
                self.tally.queued += 1;
                self.waiting.push_back(exchange);
            }
        }
    }

    /// Finds a connection for a request: an idle one, a new one, or one with room.
    fn dispatch(&mut self, exchange: Exchange) -> Result<(), Exchange> {
        let at = exchange.asked.peer;
        let thinks = !self.given.plan.manner.think.is_zero();
        let has_room = self.pool.len() < self.given.connections;
        // Clients that think keep their own connections in the meantime. The client that has rested
        // longest is next.
        if !(thinks && has_room)
            && let Some(key) = self.pool.idle(at, thinks)
        {
            self.ask(key, exchange);
        } else if has_room || self.close_idle_of_other(at) {
            self.open(exchange);
        } else if let Some(key) = self.pool.partial(at) {
            self.ask(key, exchange);
        } else {
            return Err(exchange);
        }
        Ok(())
    }

    /// Makes room for a connection to the peer with index `at`.
    fn close_idle_of_other(&mut self, at: usize) -> bool {
        let mut others = (0..self.pool.peers()).filter(|other| *other != at);
        let Some(key) = others.find_map(|other| self.pool.idle(other, true)) else { return false };
        self.close(key, None);
        true
    }

    fn ask(&mut self, key: Key, mut exchange: Exchange) {
        exchange.begun = self.given.clock.now();
        exchange.first_byte = 0;
        let closes = !self.given.plan.keep_alive;
        let Some(connection) = self.pool.get(key) else { return };
        connection.ask(exchange, closes);
        self.pool.touch(key);
        self.pool.list(key);
    }

    fn open(&mut self, exchange: Exchange) {
        let at = exchange.asked.peer;
        let now = self.given.clock.now();
        let address = self.pool.address(at);
        let read_rate = self.given.plan.manner.read_rate;
        let source = source_for(self.given.source, address);
        let opened = Connection::open((source, address), at, now, read_rate);
        match opened.and_then(|connection| self.pool.add(connection).map_err(Trouble::of_io)) {
            Ok(key) => {
                self.tally.counters.connections += 1;
                self.ask(key, exchange);
            }
            Err(trouble) => self.fail(&exchange, &trouble),
        }
    }

    fn flush_touched(&mut self) {
        while let Some(key) = self.pool.next_touched() {
            self.flush(key);
        }
    }
}
