//! Finds idle agents and reserves as many as are needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use async_nats::{RequestError, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::member::Member;
use super::{Ask, LEAVING, Post};
use crate::agents::wire::{self, Answer, Greeting, Hello};

/// How long agents have to answer.
const ANSWERING: Duration = wire::SILENCE;
/// Pause between two calls for agents. One that has just connected hears the second.
const CALLING: Duration = Duration::from_secs(1);
/// How many agents of other versions or with strange names an error lists.
const LISTED: usize = 20;

/// What calls for agents have found.
#[derive(Debug, Default)]
struct Found {
    /// Agents that are reserved, or are being reserved.
    ids: BTreeSet<String>,
    /// Their names.
    names: BTreeSet<String>,
    members: Vec<Arc<Member>>,
    /// Those that were asked and have not answered yet.
    asked: JoinSet<(Member, Result<Answer, RequestError>)>,
    /// Agents that cannot be used, and why.
    refused: BTreeMap<String, String>,
}

/// Reserves agents, all at once. Frees them again if there are not enough.
///
/// # Errors
/// There are not enough. The error says which there are.
pub(super) async fn reserve(post: &Arc<Post>, count: usize) -> anyhow::Result<Vec<Arc<Member>>> {
    let inbox = post.client.new_inbox();
    let mut answers = post.client.subscribe(inbox.clone()).await?;
    let deadline = Instant::now() + ANSWERING;
    let mut found = Found::default();
    while found.members.len() < count && Instant::now() < deadline {
        post.client.publish_with_reply(wire::FIND, inbox.clone(), Bytes::new()).await?;
        let next = deadline.min(Instant::now() + CALLING);
        listen(post, count, &mut answers, next, &mut found).await;
    }
    if found.members.len() == count {
        // A run numbers its machines in the same order, whichever answers first.
        found.members.sort_by(|one, other| one.hello.name.cmp(&other.hello.name));
        return Ok(found.members);
    }
    // Who has not been asked yet is not asked after all.
    found.asked.shutdown().await;
    let _ = timeout(LEAVING, post.release_all()).await;
    bail!("{}", too_few(count, &found));
}

/// Takes answers until there are enough, or until `end`.
async fn listen(
    post: &Arc<Post>,
    count: usize,
    answers: &mut Subscriber,
    end: Instant,
    found: &mut Found,
) {
    while found.members.len() < count {
        // No more agents are asked than are needed. If one refuses, the next call finds another.
        let is_short = found.members.len() + found.asked.len() < count;
        tokio::select! {
            Some(Ok((member, answer))) = found.asked.join_next() => {
                found.reserved(post, member, answer).await;
            }
            Some(message) = answers.next() => {
                // Also the notice that there are no agents is no greeting.
                let Ok((greeting, _)) = wire::read::<Greeting>(&message.payload) else { continue };
                if is_short
                    && wire::is_name(&greeting.name)
                    && let Err(why) = found.ask(post, &greeting, &message.payload)
                {
                    found.refuse(greeting.name, why);
                }
            }
            () = sleep_until(end) => return,
        }
    }
}

impl Found {
    /// Asks an agent that has answered to serve the run.
    ///
    /// # Errors
    /// It cannot be used. The error says why.
    fn ask(
        &mut self,
        post: &Arc<Post>,
        greeting: &Greeting,
        payload: &Bytes,
    ) -> Result<(), String> {
        if greeting.protocol != wire::PROTOCOL {
            let (theirs, ours) = (greeting.protocol, wire::PROTOCOL);
            return Err(format!(
                "speaks version {theirs} of the protocol, and this program {ours}"
            ));
        }
        let (hello, _) = wire::read::<Hello>(payload).map_err(|garbage| garbage.to_string())?;
        if !wire::is_id(&hello.id) || self.ids.contains(&hello.id) {
            return Ok(());
        }
        if self.names.contains(&hello.name) {
            return Err("there are several of this name".to_owned());
        }
        let (theirs, ours) = (&hello.version, env!("CARGO_PKG_VERSION"));
        if theirs != ours {
            return Err(format!("is of version {theirs:?}, and this program of {ours}"));
        }
        if hello.busy {
            return Err("busy".to_owned());
        }
        {
            let mut asked = post.asked();
            if asked.closed {
                return Ok(());
            }
            // From now on it may be reserved, whether or not its answer comes.
            asked.ids.push(hello.id.clone());
        }
        self.ids.insert(hello.id.clone());
        self.names.insert(hello.name.clone());
        let post = Arc::clone(post);
        self.asked.spawn(async move {
            let member = Member::new(hello);
            // It may have been freed before it is asked.
            if post.asked().closed {
                return (member, Ok(Answer::Refused("it was not asked".to_owned())));
            }
            let reserve = Ask::Reserve { run: post.run.clone() };
            let answer = member.request(&post, &reserve, b"").await;
            (member, answer)
        });
        Ok(())
    }

    /// Notes what an agent answered that was asked to serve the run.
    async fn reserved(
        &mut self,
        post: &Arc<Post>,
        member: Member,
        answer: Result<Answer, RequestError>,
    ) {
        let why = match answer {
            Ok(Answer::Done) => {
                self.refused.remove(&member.hello.name);
                let member = Arc::new(member);
                // The agent hears from us from now on, however long the others take.
                tokio::spawn(Arc::clone(&member).watch(Arc::clone(post)));
                return self.members.push(member);
            }
            Ok(Answer::Refused(why)) => {
                post.asked().ids.retain(|id| *id != member.hello.id);
                why
            }
            Ok(Answer::Clocks { .. }) => "does not answer what it is asked".to_owned(),
            Err(error) => {
                // It may have heard the question.
                post.release(&member.hello.id).await;
                error.to_string()
            }
        };
        self.ids.remove(&member.hello.id);
        self.names.remove(&member.hello.name);
        self.refuse(member.hello.name, why);
    }

    fn refuse(&mut self, name: String, why: String) {
        if self.refused.len() < LISTED {
            self.refused.insert(name, why);
        }
    }
}

fn too_few(count: usize, found: &Found) -> String {
    let mut text =
        format!("{count} agents are needed, and {} idle ones were found", found.members.len());
    for (between, member) in
        [": "].into_iter().chain([", "].into_iter().cycle()).zip(&found.members)
    {
        let _ = write!(text, "{between}{}", member.hello.name);
    }
    let members: BTreeSet<_> = found.members.iter().map(|member| &member.hello.name).collect();
    for name in found.names.iter().filter(|name| !members.contains(name)) {
        let _ = write!(text, "; agent {name}: it did not answer");
    }
    for (name, why) in &found.refused {
        let _ = write!(text, "; agent {name}: {why}");
    }
    text
}
