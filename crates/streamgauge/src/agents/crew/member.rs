//! One agent of a crew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use async_nats::{RequestError, RequestErrorKind};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Post;
use crate::agents::clock::{Offset, Offsets, Reading};
use crate::agents::log::log;
use crate::agents::wire::{self, Answer, Ask, Hello};
use crate::shard::monotonic;

/// How many round trips compare the clocks before a run.
const ROUND_TRIPS: usize = 8;
/// Time between two further ones.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the answer to one of them may take.
const COMPARING: Duration = Duration::from_secs(5);
/// An agent that has answered nothing for so long may be gone. It is asked every [`INTERVAL`], but one question may
/// wait for its answer for all that time.
const QUIET: Duration = Duration::from_secs(3);
/// How many times in a row NATS may know nobody who answers for an agent. An agent that connects
/// again is away for a moment.
const ABSENT: u32 = 3;

/// An agent of the crew.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) hello: Hello,
    offsets: Mutex<Offsets>,
    /// When it answered last.
    heard: Mutex<Instant>,
    state: watch::Sender<State>,
}

/// What is known of an agent.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// Whether its clocks were compared with ours.
    compared: bool,
    /// When and why it was given up.
    pub(super) gone: Option<(Instant, String)>,
}

impl Member {
    pub(super) fn new(hello: Hello) -> Self {
        let heard = Mutex::new(Instant::now());
        Self { hello, offsets: Mutex::default(), heard, state: watch::Sender::default() }
    }

    /// The best known difference of its clocks.
    pub(super) fn offset(&self) -> Option<Offset> {
        self.offsets().best()
    }

    /// When and why it was given up.
    pub(super) fn gone(&self) -> Option<(Instant, String)> {
        self.state.borrow().gone.clone()
    }

    /// Since when and why it may be about to be given up: it has answered nothing for [`QUIET`].
    pub(super) fn silent(&self) -> Option<(Instant, String)> {
        let heard = *self.heard();
        let why = || format!("it is silent: no answer for {:.1?}", heard.elapsed());
        (heard.elapsed() > QUIET).then(|| (heard, why()))
    }

    /// Follows its state.
    pub(super) fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Waits until its clocks were compared with ours.
    ///
    /// # Errors
    /// It was given up before.
    pub(super) async fn compared(&self) -> anyhow::Result<()> {
        let mut state = self.state();
        let known = state.wait_for(|state| state.compared || state.gone.is_some()).await?;
        if let Some((_, why)) = &known.gone {
            bail!("agent {}: {why}", self.hello.name);
        }
        Ok(())
    }

    /// Asks it for something.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) async fn request(
        &self,
        post: &Post,
        ask: &Ask,
        body: &[u8],
    ) -> Result<Answer, RequestError> {
        let message = wire::write(ask, body);
        let answer = post.client.request(wire::subject(&self.hello.id), message).await?;
        let read = wire::read::<Answer>(&answer.payload);
        Ok(read.map_or_else(|garbage| Answer::Refused(garbage.to_string()), |(answer, _)| answer))
    }

    /// Compares the clocks, and finds out whether the agent is still there, until it is not.
    pub(super) async fn watch(self: Arc<Self>, post: Arc<Post>) {
        let mut absent = 0;
        loop {
            match self.compare(&post).await {
                Ok(Some(offset)) => {
                    (*self.heard(), absent) = (Instant::now(), 0);
                    let mut offsets = self.offsets();
                    offsets.add(offset);
                    if offsets.count() < ROUND_TRIPS {
                        continue;
                    }
                    self.state
                        .send_if_modified(|state| !std::mem::replace(&mut state.compared, true));
                }
                Ok(None) => return self.give_up("it gave the run up"),
                Err(RequestErrorKind::NoResponders) => absent += 1,
                Err(_) => {}
            }
            if absent >= ABSENT {
                return self.give_up("it is gone: nobody answers for it");
            }
            let silence = self.heard().elapsed();
            if silence > wire::SILENCE {
                return self.give_up(&format!("it is silent: no answer for {silence:.1?}"));
            }
            sleep(INTERVAL).await;
        }
    }

    /// Compares the clocks once. `None` if the agent does not serve this run.
    async fn compare(&self, post: &Post) -> Result<Option<Offset>, RequestErrorKind> {
        let monotonic_now = monotonic();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sent = Reading { monotonic: monotonic_now, unix };
        let ask = Ask::Clocks { run: Some(post.run.clone()) };
        // A message may be lost. Another one is sent before the silence is too long.
        let asked = timeout(COMPARING, self.request(post, &ask, b"")).await;
        let answer =
            asked.map_err(|_| RequestErrorKind::TimedOut)?.map_err(|error| error.kind())?;
        let round_trip = monotonic().saturating_sub(sent.monotonic);
        Ok(match answer {
            Answer::Clocks { monotonic, unix } => {
                Some(Offset::new(sent, Reading { monotonic, unix }, round_trip))
            }
            Answer::Done | Answer::Refused(_) => None,
        })
    }

    fn give_up(&self, why: &str) {
        log(format_args!("agent {}: {why}", self.hello.name));
        self.state.send_modify(|state| state.gone = Some((Instant::now(), why.to_owned())));
    }

    fn heard(&self) -> MutexGuard<'_, Instant> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offsets(&self) -> MutexGuard<'_, Offsets> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
