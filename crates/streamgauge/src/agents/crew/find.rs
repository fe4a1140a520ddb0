//! Finds idle agents and reserves as many as are needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use async_nats::Subscriber;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use super::member::Member;
use super::{Ask, Post};
use crate::agents::wire::{self, Answer, Greeting, Hello};

/// How long agents have to answer.
const ANSWERING: Duration = Duration::from_secs(5);
/// Pause between two calls for agents. One that has just connected hears the second.
const CALLING: Duration = Duration::from_secs(1);
/// How many agents of other versions or with strange names an error lists.
const LISTED: usize = 20;

/// What calls for agents have found.
#[derive(Debug, Default)]
struct Found {
    ids: BTreeSet<String>,
    members: Vec<Arc<Member>>,
    /// Agents that cannot be used, and why.
    refused: BTreeMap<String, String>,
}

/// Reserves agents. Frees them again if there are not enough.
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
        // Whoever answers first, a run numbers its machines in the same order.
        found.members.sort_by(|one, other| one.hello.name.cmp(&other.hello.name));
        return Ok(found.members);
    }
    for member in &found.members {
        post.release(&member.hello.id).await;
    }
    post.client.flush().await?;
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
    while found.members.len() < count && Instant::now() < end {
        let Ok(Some(message)) = timeout_at(end, answers.next()).await else { return };
        // Also the notice that there are no agents is no greeting.
        let Ok((greeting, _)) = wire::read::<Greeting>(&message.payload) else { continue };
        if !wire::is_name(&greeting.name) {
            continue;
        }
        if let Err(why) = take(post, &greeting, &message.payload, found).await
            && found.refused.len() < LISTED
        {
            found.refused.insert(greeting.name, why);
        }
    }
}

/// Reserves an agent that has answered.
///
/// # Errors
/// It cannot be used. The error says why.
async fn take(
    post: &Arc<Post>,
    greeting: &Greeting,
    payload: &Bytes,
    found: &mut Found,
) -> Result<(), String> {
    if greeting.protocol != wire::PROTOCOL {
        let (theirs, ours) = (greeting.protocol, wire::PROTOCOL);
        return Err(format!("speaks version {theirs} of the protocol, and this program {ours}"));
    }
    let (hello, _) = wire::read::<Hello>(payload).map_err(|garbage| garbage.to_string())?;
    if !wire::is_id(&hello.id) || found.ids.contains(&hello.id) {
        return Ok(());
    }
    if found.members.iter().any(|member| member.hello.name == hello.name) {
        return Err("there are several of this name".to_owned());
    }
    let (theirs, ours) = (&hello.version, env!("CARGO_PKG_VERSION"));
    if theirs != ours {
        return Err(format!("is of version {theirs:?}, and this program of {ours}"));
    }
    if hello.busy {
        return Err("busy".to_owned());
    }
    let id = hello.id.clone();
    let member = Member::new(hello);
    let reserve = Ask::Reserve { run: post.run.clone() };
    match member.request(post, &reserve, b"").await {
        Ok(Answer::Done) => {
            found.refused.remove(&member.hello.name);
            found.ids.insert(id);
            let member = Arc::new(member);
            // The agent hears from us from now on, however long the others take.
            tokio::spawn(Arc::clone(&member).watch(Arc::clone(post)));
            found.members.push(member);
            Ok(())
        }
        Ok(Answer::Refused(why)) => Err(why),
        Ok(Answer::Clocks { .. }) => Err("does not answer what it is asked".to_owned()),
        Err(error) => {
            // It may have heard the question.
            post.release(&id).await;
            Err(error.to_string())
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
    for (name, why) in &found.refused {
        let _ = write!(text, "; agent {name}: {why}");
    }
    text
}
