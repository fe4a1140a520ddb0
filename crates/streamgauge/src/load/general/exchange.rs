//! One request with its redirections: chooses a connection and receives the answer.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;

use super::blame::{describe, is_stale};
use super::client::{Session, request};
use super::{Context, Slot, head_of};
use crate::load::assignment::{MOST_SENT_AGAIN, REST};
use crate::load::check::{Comparison, wrong_range};
use crate::load::response::Head;
use crate::load::tally::Fault;
use crate::load::target::{ByteRange, Target, of_request};
use crate::load::trouble::Trouble;
use crate::load::url::Origin;
use crate::load::{Pace, redirect};

/// One answer, or why there is none.
struct Received {
    status: u16,
    first_byte: u64,
    /// Length of the body in bytes.
    length: u64,
    location: Option<String>,
    fault: Option<Trouble>,
}

/// Why a request got no answer, and whether the only reason is that a kept connection was closed.
struct Lost {
    trouble: Trouble,
    stale: bool,
}

impl From<Trouble> for Lost {
    fn from(trouble: Trouble) -> Self {
        Self { trouble, stale: false }
    }
}

impl Context {
    /// Sends request number `number`, follows redirections, and counts the result.
    pub(super) async fn exchange(self: Rc<Self>, number: u64, due: u64, taken: Option<u64>) {
        let (place, range) = of_request(&self.plan.targets, self.plan.rule, number);
        let first = self.targets[place].clone();
        let limit = self.plan.timeout;
        let result = tokio::time::timeout(limit, self.follow(first.clone(), range)).await;
        let late = || Trouble::new(Fault::Timeout, "not completely answered in time");
        let rest = match result.unwrap_or_else(|_| Err(late())) {
            Ok(Received { status, first_byte, fault: None, .. }) => {
                let now = self.clock.now();
                self.tally.borrow_mut().answered(status, due, taken, first_byte, now);
                false
            }
            Ok(Received { fault: Some(trouble), .. }) | Err(trouble) => {
                let Target { method, url, .. } = &*first;
                self.tally
                    .borrow_mut()
                    .failed(trouble.fault, || format!("{method} {url}: {}", trouble.detail));
                trouble.fault.is_of_connecting()
            }
        };
        if rest && self.plan.pace == Pace::Closed {
            tokio::time::sleep(REST).await;
        }
        self.returned.set(self.returned.get() + 1);
        self.woken.notify_one();
    }

    async fn follow(
        &self,
        mut target: Rc<Target>,
        range: Option<ByteRange>,
    ) -> Result<Received, Trouble> {
        let _permit = match self.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => {
                self.tally.borrow_mut().queued += 1;
                let closed = |_| Trouble::new(Fault::Local, "no permit");
                self.permits.acquire().await.map_err(closed)?
            }
        };
        let (mut redirects, mut again) = (0, 0);
        loop {
            match self.once(&target, range).await {
                Ok(received)
                    if received.fault.is_none()
                        && redirect::is_followed(&self.plan, received.status) =>
                {
                    let location = received.location.as_deref();
                    let url = redirect::next(&self.plan, &target, location, redirects)?;
                    redirects += 1;
                    self.tally.borrow_mut().counters.redirects += 1;
                    target = Rc::new(Target { url, ..(*target).clone() });
                }
                Err(Lost { stale: true, .. })
                    if again < MOST_SENT_AGAIN && target.is_idempotent() =>
                {
                    again += 1;
                    self.tally.borrow_mut().counters.sent_again += 1;
                }
                Err(lost) => return Err(lost.trouble),
                Ok(received) => return Ok(received),
            }
        }
    }

    async fn once(&self, target: &Target, range: Option<ByteRange>) -> Result<Received, Lost> {
        let origin = &target.url.origin;
        let request = request(&self.plan, target, range)?;
        let (mut session, kept, answered) = self.session(origin).await?;
        let lost = |error: &hyper::Error| Lost {
            trouble: describe(error, false),
            stale: kept && is_stale(error),
        };
        let response = session.send(request).await.map_err(|error| lost(&error))?;
        if let Some(answered) = answered {
            answered.set(true);
        }
        let first_byte = self.clock.now();
        let mut received = self.receive(response, target, range).await?;
        received.first_byte = first_byte;
        let Session::One(sender, unaccounted) = session else { return Ok(received) };
        // No other answer is under way on this connection.
        self.wire.add_overhead(unaccounted.take().saturating_sub(received.length));
        if self.plan.keep_alive && !sender.is_closed() {
            let mut idle = self.idle.borrow_mut();
            if idle.values().map(Vec::len).sum::<usize>() < self.connections {
                idle.entry(origin.clone()).or_default().push(Session::One(sender, unaccounted));
            }
        }
        Ok(received)
    }

    /// Returns a connection, whether it has answered before, and where to note that it has.
    async fn session(
        &self,
        origin: &Origin,
    ) -> Result<(Session, bool, Option<Rc<Cell<bool>>>), Trouble> {
        let address = self.servers.borrow_mut().find(origin)?;
        if !self.client.http2 {
            let kept = self.idle.borrow_mut().get_mut(origin).and_then(Vec::pop);
            return match kept {
                Some(session) => Ok((session, true, None)),
                None => Ok((self.connect(origin, address).await?, false, None)),
            };
        }
        let slot = {
            let mut shared = self.shared.borrow_mut();
            let slots = shared
                .entry(origin.clone())
                .or_insert_with(|| (0..self.connections).map(|_| Slot::default()).collect());
            let turn = self.turn.get();
            self.turn.set(turn.wrapping_add(1));
            slots[turn % slots.len()].clone()
        };
        let mut slot = slot.lock().await;
        if let Some((sender, answered)) = slot.as_ref().filter(|(sender, _)| !sender.is_closed()) {
            return Ok((Session::Many(sender.clone()), answered.get(), Some(answered.clone())));
        }
        let session = self.connect(origin, address).await?;
        let answered = Rc::new(Cell::new(false));
        if let Session::Many(sender) = &session
            && self.plan.keep_alive
        {
            *slot = Some((sender.clone(), answered.clone()));
        }
        Ok((session, false, Some(answered)))
    }

    async fn connect(&self, origin: &Origin, address: SocketAddr) -> Result<Session, Trouble> {
        let began = self.clock.now();
        let session = self.client.connect(origin, address, &self.wire).await?;
        let mut tally = self.tally.borrow_mut();
        tally.counters.connections += 1;
        tally.connect.saturating_record(self.clock.now().saturating_sub(began));
        Ok(session)
    }

    async fn receive(
        &self,
        response: Response<Incoming>,
        target: &Target,
        range: Option<ByteRange>,
    ) -> Result<Received, Trouble> {
        let head = head_of(&response);
        let fault = wrong_range(&head, range);
        let reference = self.reference.as_deref().filter(|_| target.method != "HEAD");
        let mut comparison =
            reference.and_then(|reference| Some((reference, Comparison::of(&head, reference)?)));
        let mut buffer = Vec::new();
        let mut body = response.into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| describe(&error, true))?;
            let Some(bytes) = frame.data_ref() else { continue };
            length += bytes.len() as u64;
            self.tally.borrow_mut().counters.body_bytes += bytes.len() as u64;
            if let Some((reference, comparison)) = &mut comparison {
                comparison.take(reference, bytes, &mut buffer);
            }
        }
        let corrupt = comparison.and_then(|(_, comparison)| comparison.fault());
        let Head { status, location, .. } = head;
        Ok(Received { status, first_byte: 0, length, location, fault: fault.or(corrupt) })
    }
}
