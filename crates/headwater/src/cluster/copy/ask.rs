//! What a copy asks of the node that has its stream.

use std::time::Duration;

use cluster::name;
use cluster::wire::{self, Ask, Message, Reader};
use futures_util::StreamExt;
use live::PartIndex;
use live::backup::Claim;
use live::mirror::Mirror;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Copying, End};

/// How long the next message of an answer may take.
pub(in crate::cluster) const ANSWER: Duration = Duration::from_secs(2);

/// How long a whole answer may take, however steadily it comes. A link on which a stream's window takes longer than the
/// window lasts carries hardly more than the stream.
pub(in crate::cluster) fn longest_answer(window: Duration) -> Duration {
    window.clamp(Duration::from_mins(1), Duration::from_hours(1))
}

/// How long a whole answer may take where a copy is kept already. Its loop stands still meanwhile. What is missing after
/// that is asked for again.
const REST: Duration = Duration::from_secs(10);
/// For how long after a question the consent of the stream's node counts. Its publisher goes on there after 5 s.
const CONSENT: Duration = Duration::from_secs(4);

impl Copying<'_> {
    /// Asks for all of the stream. The end of a long answer may be lost, because only so many messages wait for a
    /// subscriber. Then this asks for the rest, as long as each answer brings something new.
    pub(super) async fn ask_for_all(&mut self) -> Result<(), End> {
        let begun = Instant::now();
        loop {
            let before = self.places();
            let asked = self.ask().await;
            let is_cut_off = matches!(asked, Err(End::NoAnswer)) && self.places() != before;
            if !is_cut_off || begun.elapsed() > longest_answer(self.window()) {
                return asked;
            }
        }
    }

    /// What is here of each track: the place after the last part.
    fn places(&self) -> Vec<(u32, PartIndex)> {
        self.mirror.as_ref().map(Mirror::places).unwrap_or_default()
    }

    /// How long the stream's window is, as far as that is known.
    fn window(&self) -> Duration {
        self.mirror.as_ref().map_or(Duration::ZERO, |it| it.stream().window())
    }

    /// Asks for what is missing here.
    pub(super) async fn ask(&mut self) -> Result<(), End> {
        self.question(Ask::Changes, true).await.map(|_| ())
    }

    /// Asks for the stream itself, if a publisher that waits here should go on with it. Returns whether it does.
    pub(super) async fn claim(&mut self) -> bool {
        self.take_over(true).await
    }

    /// Asks for the stream itself where no copy of it can be made. Its publisher then goes on without what came before.
    pub(super) async fn claim_alone(&mut self) -> bool {
        // Without memory the publisher could not begin. What there is of a copy would be taken for all of the stream.
        self.mirror = None;
        self.cluster.registry.has_room() && self.take_over(false).await
    }

    /// Asks for the stream itself, for a publisher that waits here, and perhaps for what is missing of it. Returns whether
    /// the stream goes on here.
    async fn take_over(&mut self, is_copied: bool) -> bool {
        let now = self.now();
        let claim = self.cluster.seats.claims(self.name, now);
        // No viewer loses what came before only because the primary is back.
        let Some(Claim { role, takes_back }) = claim.filter(|it| is_copied || !it.takes_back)
        else {
            return false;
        };
        let ask = |places| Ask::TakeOver(places, role.into(), takes_back);
        match self.question(ask, is_copied).await {
            Ok(true) => {
                self.cluster.seats.take(self.name, self.holder.epoch, self.now());
                return true;
            }
            Err(End::NoAnswer) if self.cluster.is_connected() => {
                self.cluster.has_gone(&self.holder.node).await;
            }
            Ok(false) | Err(_) => {}
        }
        false
    }

    /// Asks the node that has the stream something, and takes the changes that it tells if `is_copied`. Returns whether
    /// it gives the stream away.
    async fn question(
        &mut self,
        ask: impl FnOnce(Vec<(u32, PartIndex)>) -> Ask,
        is_copied: bool,
    ) -> Result<bool, End> {
        self.asked = Instant::now();
        let bus = &self.cluster.bus;
        let question = self.cluster.question(self.name, ask(self.places()));
        let question = question.map_err(|error| End::Refused(error.to_string()))?;
        let inbox = bus.inbox();
        let to = name::questions(&self.holder.node);
        let asked = timeout(ANSWER, async {
            let answer = bus.subscribe(inbox.clone()).await?;
            bus.publish(to, Some(inbox), question).await.map(|()| answer)
        });
        let Ok(Ok(mut answer)) = asked.await else { return Err(End::NoAnswer) };
        let mut reader = Reader::default();
        loop {
            let most = if self.is_kept { REST } else { longest_answer(self.window()) };
            let at_last = self.asked + most;
            let message = timeout_at(at_last.min(Instant::now() + ANSWER), answer.next()).await;
            let Ok(Some(message)) = message else { return Err(End::NoAnswer) };
            if message.is_unheard {
                return Err(End::NoAnswer);
            }
            let read = match reader.read(&message.payload) {
                // A message of a long part was lost. The part is missing, as if all of its messages were lost.
                Err(error @ wire::Error::Piece) => {
                    self.cluster.refuse(&error);
                    continue;
                }
                read => read.map_err(|error| End::Refused(error.to_string()))?,
            };
            if let (Some((epoch, _)), 0) = (&read, self.holder.epoch) {
                self.holder.epoch = *epoch;
            }
            match read {
                Some((0, _)) => return Err(End::Moved),
                Some((epoch, _)) if epoch != self.holder.epoch => return Err(End::Moved),
                Some((_, Message::Done)) => return Ok(false),
                Some((_, Message::Ceded)) if self.asked.elapsed() > CONSENT => {
                    return Err(End::NoAnswer);
                }
                Some((_, Message::Ceded)) => return Ok(true),
                Some((_, Message::Change(change))) if is_copied => {
                    // If a message is lost, those after it are not taken. A copy asks for them when the stream's node
                    // tells how far it is. If the answer is `Ceded`, they stay lost: the node that gave the stream away
                    // does not send them again.
                    self.apply(&change)?;
                }
                // No change follows a refusal, and nobody waits for the changes that follow consent.
                Some((_, Message::Change(_))) => return Ok(true),
                Some((_, Message::Unit(_) | Message::Beat(_))) | None => {}
            }
        }
    }
}
