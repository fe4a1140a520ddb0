//! `streamgauge agent`: one of several machines of a run. It waits for a run, starts children for
//! it, and passes on what goes to them and comes from them.

mod child;
mod run;

use std::fmt::Display;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use async_nats::{Client, Message};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Duration, Instant, interval};

use self::run::Run;
use super::log::log;
use super::nats::Servers;
use super::wire::{self, Answer, Ask, Hello};
use crate::Exit;
use crate::shard::{monotonic, raise_descriptor_limit};

/// Pause between two checks whether the run's crew is still there.
const LOOK: Duration = Duration::from_millis(500);
/// How many characters of an agent's id its default name has.
const SUFFIX: usize = 6;

struct Agent {
    client: Client,
    hello: Hello,
    run: Option<Run>,
}

/// Serves runs until SIGINT or SIGTERM. `name` is the agent's name; by default, that of the machine
/// and something that no other agent has. Prints a line when it is ready.
///
/// # Errors
/// The name is none, or the server refuses.
pub fn serve(servers: &Servers, name: Option<String>) -> anyhow::Result<Exit> {
    let files = raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        tokio::select! {
            served = work(servers, name, files) => served,
            _ = interrupt.recv() => Ok(Exit::Success),
            _ = terminate.recv() => Ok(Exit::Success),
        }
    })
}

async fn work(servers: &Servers, name: Option<String>, files: u64) -> anyhow::Result<Exit> {
    let client = servers.connect("agent", true).await?;
    let inbox = client.new_inbox();
    let id = inbox.rsplit('.').next().unwrap_or(&inbox).to_owned();
    let name = name.unwrap_or_else(|| default_name(&id));
    ensure!(wire::is_name(&name), "{name:?} is no name: 1 to 64 letters, digits, '-', '_' and '.'");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let hello = Hello {
        protocol: wire::PROTOCOL,
        name,
        id,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        busy: false,
        cores: u32::try_from(cores).unwrap_or(u32::MAX),
        files,
    };
    let mut agent = Agent { client, hello, run: None };
    agent.serve(servers).await?;
    Ok(Exit::Success)
}

/// The machine's name and the end of the id.
fn default_name(id: &str) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let end = id.get(id.len().saturating_sub(SUFFIX)..).unwrap_or(id);
    let name = format!("{host}-{end}");
    if wire::is_name(&name) { name } else { format!("agent-{end}") }
}

impl Agent {
    async fn serve(&mut self, servers: &Servers) -> anyhow::Result<()> {
        let mut found = self.client.subscribe(wire::FIND).await?;
        let mut asked = self.client.subscribe(wire::subject(&self.hello.id)).await?;
        // The server knows both before anybody is told that the agent is ready.
        self.client.flush().await?;
        let ready = format!("ready agent={} nats={}\n", self.hello.name, servers.shown());
        let mut out = std::io::stdout();
        out.write_all(ready.as_bytes()).and_then(|()| out.flush()).context("standard output")?;
        let mut looks = interval(LOOK);
        loop {
            tokio::select! {
                Some(message) = found.next() => self.greet(message).await,
                Some(message) = asked.next() => self.take(message).await,
                _ = looks.tick() => {
                    if self.run.as_ref().is_some_and(|run| run.heard.elapsed() > wire::SILENCE) {
                        self.end(format_args!("nothing was heard from its crew for {:?}", wire::SILENCE));
                    }
                }
                else => return Ok(()),
            }
        }
    }

    async fn greet(&self, message: Message) {
        if !is_inbox(message.reply.as_deref()) {
            return;
        }
        let hello = Hello { busy: self.run.is_some(), ..self.hello.clone() };
        self.send(message.reply, wire::write(&hello, b"")).await;
    }

    async fn take(&mut self, mut message: Message) {
        if !is_inbox(message.reply.as_deref()) {
            message.reply = None;
        }
        let (ask, body) = match wire::read::<Ask>(&message.payload) {
            Ok(read) => read,
            Err(garbage) => {
                log(format_args!("a message is ignored: {garbage}"));
                let refused = Answer::Refused(format!("not read: {garbage}"));
                return self.send(message.reply, wire::write(&refused, b"")).await;
            }
        };
        let answer = match ask {
            Ask::Clocks { run: None } => clocks(),
            Ask::Clocks { run: Some(run) } => self.of_run(&run, |_| clocks()),
            Ask::Reserve { run } => self.reserve(run),
            Ask::Start { run, role, children } => {
                let client = self.client.clone();
                self.of_run(&run, |run| done(run.start(&client, &role, &children)))
            }
            Ask::Input { run, child } => {
                // The child's task answers when the child has taken the input.
                let given = |run: &mut Run| run.input(child, body, message.reply.clone());
                match self.run_of(&run).map(given) {
                    Some(Ok(())) => return,
                    Some(Err(why)) => Answer::Refused(why),
                    None => not_reserved(),
                }
            }
            Ask::Taken { run, child, pieces } => {
                self.of_run(&run, |run| done(run.taken(child, pieces)))
            }
            Ask::Kill { run, child } => self.of_run(&run, |run| {
                run.kill(child);
                Answer::Done
            }),
            Ask::Release { run } => {
                if self.run_of(&run).is_some() {
                    self.end("released");
                    Answer::Done
                } else {
                    not_reserved()
                }
            }
        };
        self.send(message.reply, wire::write(&answer, b"")).await;
    }

    /// The run, if it is this one. Its crew is there, then.
    fn run_of(&mut self, name: &str) -> Option<&mut Run> {
        let run = self.run.as_mut().filter(|run| run.name == name)?;
        run.heard = Instant::now();
        Some(run)
    }

    fn of_run(&mut self, name: &str, answer: impl FnOnce(&mut Run) -> Answer) -> Answer {
        self.run_of(name).map_or_else(not_reserved, answer)
    }

    fn reserve(&mut self, run: String) -> Answer {
        if !wire::is_run(&run) {
            return Answer::Refused("that is no run".to_owned());
        }
        match &self.run {
            Some(now) if now.name != run => return Answer::Refused("it serves a run".to_owned()),
            // The answer was lost, and the crew asks again.
            Some(_) => {}
            None => {
                log("reserved");
                self.run = Some(Run::new(run));
            }
        }
        Answer::Done
    }

    fn end(&mut self, why: impl Display) {
        // Its children are killed.
        self.run = None;
        log(format_args!("idle: {why}"));
    }

    async fn send(&self, to: Option<async_nats::Subject>, message: Bytes) {
        let Some(to) = to else { return };
        if let Err(error) = self.client.publish(to, message).await {
            log(format_args!("an answer was not sent: {error}"));
        }
    }
}

/// Whether an answer may go to a subject. So nobody makes an agent send to others' subjects.
fn is_inbox(subject: Option<&str>) -> bool {
    subject.is_some_and(wire::is_run)
}

fn clocks() -> Answer {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Answer::Clocks { monotonic: monotonic(), unix }
}

fn done(result: Result<(), String>) -> Answer {
    result.map_or_else(Answer::Refused, |()| Answer::Done)
}

fn not_reserved() -> Answer {
    Answer::Refused("it does not serve this run".to_owned())
}
