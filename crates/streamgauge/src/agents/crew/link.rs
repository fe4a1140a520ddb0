//! A child at an agent, as the crew knows it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::member::Member;
use super::said::{Brings, Said};
use super::{Piece, Post};
use crate::agents::wire::{self, Answer, Ask, PIECE, WINDOW};
use crate::shard::{Link, News, Told};

/// How long the end of a child may take to be told after it took no more input.
const ENDING: Duration = Duration::from_secs(2);
/// From how many pieces on their taking is told.
const TAKEN: usize = WINDOW / 4;
/// How often it is told again how many pieces were taken.
const AGAIN: Duration = Duration::from_secs(1);

/// A child at an agent.
#[derive(Debug)]
pub(super) struct Remote {
    name: String,
    member: Arc<Member>,
    input: mpsc::UnboundedSender<Vec<u8>>,
    ended: Arc<Mutex<Result<(), String>>>,
}

/// Where a child is: its agent and its number.
struct Address {
    post: Arc<Post>,
    member: Arc<Member>,
    child: u32,
}

impl Remote {
    /// Has the child with a number started at an agent. Within the crew's runtime.
    pub(super) fn start(
        (post, member, child): (&Arc<Post>, &Arc<Member>, u32),
        role: &str,
        name: String,
        (number, says, told): (usize, mpsc::Receiver<Piece>, Told),
    ) -> Self {
        let address = || Address { post: Arc::clone(post), member: Arc::clone(member), child };
        let (input, inputs) = mpsc::unbounded_channel();
        let (fail, failed) = mpsc::channel(1);
        let ended = Arc::new(Mutex::new(Ok(())));
        tokio::spawn(address().feed(role.to_owned(), inputs, fail));
        tokio::spawn({
            let (address, ended) = (address(), Arc::clone(&ended));
            async move {
                let result = address.listen(number, says, &told, failed).await;
                address.post.children().remove(&address.child);
                if result.is_err() {
                    // It must not go on making load that nobody counts.
                    address.kill().await;
                }
                *ended.lock().unwrap_or_else(PoisonError::into_inner) = result;
                // The receiver may be gone, which it knows.
                let _ = told.send((number, News::Closed)).await;
            }
        });
        Self { name, member: Arc::clone(member), input, ended }
    }
}

impl Link for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, line: Vec<u8>) {
        // If its task has ended, the end of its output tells why.
        let _ = self.input.send(line);
    }

    fn time_there(&self, time: Duration) -> Duration {
        self.member.offset().map_or(time, |offset| offset.time_there(time))
    }

    fn end(&mut self) -> Result<(), String> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Address {
    /// Starts the child and sends it its input. Kills it when no more input can come.
    async fn feed(
        self,
        role: String,
        mut inputs: mpsc::UnboundedReceiver<Vec<u8>>,
        fail: mpsc::Sender<String>,
    ) {
        let (run, child) = (self.post.run.clone(), self.child);
        let start = Ask::Start { run: run.clone(), role, children: vec![child] };
        let mut failed = self.ask(&start, b"").await;
        let input = Ask::Input { run, child };
        while failed.is_ok() {
            let Some(line) = inputs.recv().await else { break };
            for piece in line.chunks(PIECE) {
                failed = self.ask(&input, piece).await;
                if failed.is_err() {
                    break;
                }
            }
        }
        if let Err(why) = failed {
            // How it ended says more than that it takes no input.
            tokio::time::sleep(ENDING).await;
            let _ = fail.send(why).await;
        }
        while inputs.recv().await.is_some() {}
        self.kill().await;
    }

    async fn ask(&self, ask: &Ask, body: &[u8]) -> Result<(), String> {
        match self.member.request(&self.post, ask, body).await {
            Ok(Answer::Done) => Ok(()),
            Ok(Answer::Refused(why)) => Err(why),
            Ok(Answer::Clocks { .. }) => Err("it does not answer what it is asked".to_owned()),
            Err(error) => Err(format!("no answer to an order: {error}")),
        }
    }

    /// Passes on the lines of the child until it ends.
    ///
    /// # Errors
    /// The child did not end well, or the agent is gone. The error says why.
    async fn listen(
        &self,
        number: usize,
        mut says: mpsc::Receiver<Piece>,
        told: &Told,
        mut failed: mpsc::Receiver<String>,
    ) -> Result<(), String> {
        let mut state = self.member.state();
        let (mut said, mut taken, mut untold) = (Said::default(), 0, 0);
        let mut again = interval_at(Instant::now() + AGAIN, AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let piece = tokio::select! {
                biased;
                Some(piece) = says.recv() => Some(piece),
                Some(why) = failed.recv() => return Err(why),
                known = state.wait_for(|state| state.gone.is_some()) => {
                    let why = known.ok().and_then(|known| known.gone.clone());
                    return Err(why.map_or_else(|| "it is gone".to_owned(), |(_, why)| why));
                }
                _ = again.tick() => None,
            };
            let Some((report, body)) = piece else {
                // What was told before may be lost.
                self.tell_taken(taken).await?;
                continue;
            };
            let lines = match said.take(report, &body).map_err(|error| error.to_string())? {
                Brings::Lines(lines) => lines,
                Brings::End(ended) => return ended,
            };
            for line in lines {
                if told.send((number, News::Line(line))).await.is_err() {
                    return Ok(());
                }
            }
            (taken, untold) = (taken + 1, untold + 1);
            if untold >= TAKEN {
                untold = 0;
                self.tell_taken(taken).await?;
            }
        }
    }

    /// Tells the agent how many pieces were taken so far.
    async fn tell_taken(&self, pieces: u64) -> Result<(), String> {
        self.tell(&Ask::Taken { run: self.post.run.clone(), child: self.child, pieces }).await
    }

    /// Has the child killed. If the agent does not hear it, the end of the run kills the child.
    async fn kill(&self) {
        let _ = self.tell(&Ask::Kill { run: self.post.run.clone(), child: self.child }).await;
    }

    async fn tell(&self, ask: &Ask) -> Result<(), String> {
        let to = wire::subject(&self.member.hello.id);
        let sent = self.post.client.publish(to, wire::write(ask, b"")).await;
        sent.map_err(|error| format!("nothing can be sent to it: {error}"))
    }
}
