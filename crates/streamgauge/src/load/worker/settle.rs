//! The fate of requests: answered, redirected, sent again, or failed.

use std::cmp::Reverse;
use std::rc::Rc;
use std::time::Duration;

use super::pool::Key;
use super::{Worker, request_head};
use crate::load::assignment::{MOST_SENT_AGAIN, REST};
use crate::load::clock::nanoseconds;
use crate::load::connection::Connection;
use crate::load::exchange::{Answer, Asked, Exchange};
use crate::load::redirect;
use crate::load::tally::Fault;
use crate::load::target::Target;
use crate::load::trouble::Trouble;

impl Worker<'_> {
    pub(super) fn answered(&mut self, answer: Answer) {
        let Answer { exchange, status, location, last_byte, fault } = answer;
        if let Some(trouble) = fault {
            return self.fail(&exchange, &trouble);
        }
        if redirect::is_followed(self.given.plan, status) {
            return match self.redirected(&exchange, location.as_deref()) {
                Ok(asked) => {
                    self.tally.counters.redirects += 1;
                    let redirects = exchange.redirects + 1;
                    self.ready.push_back(Exchange { asked, redirects, ..exchange });
                }
                Err(trouble) => self.fail(&exchange, &trouble),
            };
        }
        let Exchange { due, first_byte, .. } = exchange;
        let taken = exchange.taken.map(|taken| taken + self.standstill);
        self.tally.answered(status, due, taken, first_byte, last_byte);
        self.client_is_free(Duration::ZERO);
    }

    /// Makes the request that a redirection asks for.
    fn redirected(
        &mut self,
        exchange: &Exchange,
        location: Option<&str>,
    ) -> Result<Rc<Asked>, Trouble> {
        let plan = self.given.plan;
        let from = &exchange.asked.target;
        let url = redirect::next(plan, from, location, exchange.redirects)?;
        if url.origin.is_secure() {
            // Only the client with TLS could follow. A run uses it from the start or never.
            let detail = format!("a redirection from http to {url}: ask for that URL itself");
            return Err(Trouble::new(Fault::BadRedirect, detail));
        }
        let peer = self.pool.peer_of(&url.origin)?;
        let target = Target { url, ..from.clone() };
        let head = request_head(&target, plan);
        Ok(Rc::new(Asked { target, peer, head, bare: None }))
    }

    /// Closes a connection. Its first request fails with `trouble`, unless the trouble only means
    /// that the server had closed a kept connection. The server never read the requests after it,
    /// so they go over another connection.
    pub(super) fn close(&mut self, key: Key, trouble: Option<&Trouble>) {
        let Some(connection) = self.pool.remove(key) else { return };
        let kept = connection.answered > 0;
        for (number, mut exchange) in connection.flying.into_iter().enumerate() {
            let first = trouble.filter(|_| number == 0);
            let stale = first.is_none_or(|trouble| {
                kept && exchange.first_byte == 0
                    && matches!(trouble.fault, Fault::Closed | Fault::Reset)
            });
            let again = exchange.asked.target.is_idempotent()
                && exchange.sent_again < MOST_SENT_AGAIN
                && stale;
            if again {
                exchange.sent_again += 1;
                self.tally.counters.sent_again += 1;
                self.ready.push_back(exchange);
            } else if let Some(trouble) = trouble {
                self.fail(&exchange, trouble);
            } else {
                let trouble =
                    Trouble::new(Fault::Closed, "the connection was closed before its turn");
                self.fail(&exchange, &trouble);
            }
        }
    }

    pub(super) fn fail(&mut self, exchange: &Exchange, trouble: &Trouble) {
        let Exchange { asked, range, .. } = exchange;
        self.tally.failed(trouble.fault, || {
            let range =
                range.map_or_else(String::new, |r| format!(" bytes {}-{}", r.first, r.last));
            let Target { method, url, .. } = &asked.target;
            format!("{method} {url}{range}: {}", trouble.detail)
        });
        let rest = if trouble.fault.is_of_connecting() { REST } else { Duration::ZERO };
        self.client_is_free(rest);
    }

    /// Frees a client that has its answer or its error. It sends its next request after resting and
    /// thinking.
    fn client_is_free(&mut self, rest: Duration) {
        let rest = rest.max(self.given.plan.manner.think);
        if rest.is_zero() || !self.given.demand.is_closed() {
            self.given.demand.give_back();
        } else {
            self.resting.push(Reverse(self.given.clock.now() + nanoseconds(rest)));
        }
    }

    /// Fails requests that have taken too long.
    pub(super) fn expire(&mut self, now: u64) {
        let limit = nanoseconds(self.given.plan.timeout);
        let late = |since: u64| now.saturating_sub(since) > limit;
        let is_late = |(key, connection): (Key, &Connection)| {
            let is_late = connection.flying.front().is_some_and(|front| late(front.begun));
            is_late.then_some((key, connection.connecting.is_some()))
        };
        let all: Vec<_> = self.pool.iter().filter_map(is_late).collect();
        for (key, connects) in all {
            let trouble = if connects {
                Trouble::new(Fault::Unreachable, "no answer to a connection in time")
            } else {
                Trouble::new(Fault::Timeout, "not completely answered in time")
            };
            self.close(key, Some(&trouble));
        }
        while let Some(exchange) = self.waiting.pop_front_if(|waiting| late(waiting.due)) {
            self.fail(&exchange, &Trouble::new(Fault::Timeout, "no connection was free in time"));
        }
        self.issue(now);
    }
}
