//! Runs a comparison.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::{join_all, ready};
use futures_util::stream::{self, StreamExt};
use rustls::ClientConfig;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use viewer::player::Target;
use viewer::url::Url;

use super::document::{Document, Node as NodeReport};
use super::fetch::{Answer, Client, Failure};
use super::ledger::{Kind, Ledger};
use super::node::{AT_ONCE, Node, object};
use super::{dash, file, hls};

/// How often all nodes are asked at once for what changes seldom, until they agree.
const ROUNDS: u32 = 20;
/// How long a node may take to have what another has, once nothing is followed any more. It is asked once for each
/// object, however long that takes, unless it answers nothing for so long.
const SETTLING: Duration = Duration::from_secs(10);
/// How often a node is asked for what others had before anybody looked.
const CATCHING_UP: Duration = Duration::from_secs(1);
/// Pause between two questions.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Hls,
    Dash,
    File,
}

/// What to compare.
#[derive(Debug)]
pub(super) struct Plan {
    urls: Vec<Url>,
    protocol: Protocol,
    duration: Duration,
    patience: Duration,
    tls: Arc<ClientConfig>,
}

impl Plan {
    /// Makes a plan.
    ///
    /// # Errors
    /// A URL cannot be compared, or not with the others.
    pub(super) fn new(
        urls: &[String],
        duration: Duration,
        patience: Duration,
        tls: ClientConfig,
    ) -> anyhow::Result<Self> {
        let mut targets = Vec::new();
        for text in urls {
            let target: Target = text.parse()?;
            targets.push(match target {
                Target::Hls(url) => (Protocol::Hls, url),
                Target::Dash(url) => (Protocol::Dash, url),
                Target::Mp4(url) | Target::Flv(url) => (Protocol::File, url),
                Target::Rtmp(_) | Target::Push(_) | Target::Whep(_) => {
                    anyhow::bail!("{text}: only HLS, DASH and files over HTTP can be compared")
                }
            });
        }
        let protocol = targets.first().context("no URL")?.0;
        ensure!(
            targets.iter().all(|(other, _)| *other == protocol),
            "all URLs must be playlists, or all manifests, or all files"
        );
        let urls = targets.into_iter().map(|(_, url)| url).collect();
        Ok(Self { urls, protocol, duration, patience, tls: Arc::new(tls) })
    }
}

/// Compares the nodes.
///
/// # Errors
/// The system has no event loop.
pub(super) fn run(plan: &Plan) -> anyhow::Result<Document> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, compare(plan))
}

async fn compare(plan: &Plan) -> anyhow::Result<Document> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let names = plan.urls.iter().map(ToString::to_string).collect();
    let ledger = Rc::new(RefCell::new(Ledger::new(names)));
    let began = Instant::now();
    let (stop, stopped) = watch::channel(false);
    let node = |(place, url): (usize, &Url)| {
        let client = Client::new(&plan.tls, plan.patience);
        let (ledger, stopped) = (Rc::clone(&ledger), stopped.clone());
        Rc::new(Node::new((place, url.clone()), client, ledger, began, stopped))
    };
    let nodes: Vec<_> = plan.urls.iter().enumerate().map(node).collect();
    let work = async {
        if plan.protocol == Protocol::File {
            file::compare(&nodes, || ledger.borrow().differences()).await;
        } else {
            follow(plan, &nodes, &stop).await;
            entrances(plan, &nodes).await;
            settle(&nodes, &ledger).await;
        }
    };
    let interrupted = tokio::select! {
        () = work => false,
        _ = interrupt.recv() => true,
        _ = terminate.recv() => true,
    };
    let elapsed = began.elapsed().as_secs_f64();
    let ended = std::mem::replace(&mut *ledger.borrow_mut(), Ledger::new(Vec::new()));
    let (counts, differences, behind) = ended.finish();
    let report = |(node, behind): (&Rc<Node>, _)| {
        let (troubles, trouble) = node.troubles();
        NodeReport { url: node.url.to_string(), behind, troubles, trouble }
    };
    Ok(Document {
        verb: "compare-nodes".to_owned(),
        protocol: match plan.protocol {
            Protocol::Hls => "hls",
            Protocol::Dash => "dash",
            Protocol::File => "file",
        }
        .to_owned(),
        duration: plan.duration.as_secs_f64(),
        elapsed,
        interrupted,
        passed: counts.passed(interrupted),
        counts,
        differences,
        nodes: nodes.iter().zip(behind).map(report).collect(),
    })
}

/// Follows all nodes: live streams for the duration, finished ones to their end.
async fn follow(plan: &Plan, nodes: &[Rc<Node>], stop: &watch::Sender<bool>) {
    let mut followers = JoinSet::new();
    for node in nodes.iter().map(Rc::clone) {
        match plan.protocol {
            Protocol::Dash => followers.spawn_local(dash::follow(node)),
            _ => followers.spawn_local(hls::follow(node)),
        };
    }
    let mut catching = JoinSet::new();
    for node in nodes.iter().map(Rc::clone) {
        catching.spawn_local(catch_up(node));
    }
    let ended = async { while followers.join_next().await.is_some() {} };
    tokio::pin!(ended);
    tokio::select! {
        () = &mut ended => {}
        () = sleep(plan.duration) => {
            stop.send_replace(true);
            ended.await;
        }
    }
    drop(catching);
    join_all(nodes.iter().map(|node| node.finish())).await;
}

/// Asks a node soon for what others had before anybody looked: it may leave the node's window before
/// the node's own follower sees it. What comes to be later is left to the follower, which tells when
/// the node had it.
async fn catch_up(node: Rc<Node>) {
    loop {
        sleep(CATCHING_UP).await;
        for name in node.lacks_of_first() {
            node.catch_up(&name).await;
        }
    }
}

/// Compares the multivariant playlists. What they say of bit rates changes with the stream, a little
/// later on one node than on another. So all are asked at once, some times if need be.
async fn entrances(plan: &Plan, nodes: &[Rc<Node>]) {
    if plan.protocol != Protocol::Hls {
        return;
    }
    for round in 1..=ROUNDS {
        let mut asked = Vec::new();
        for node in nodes.iter().map(Rc::clone) {
            asked.push(tokio::task::spawn_local(async move {
                node.client.get(&node.url, None, Duration::ZERO).await
            }));
        }
        let mut answers = Vec::new();
        for task in asked {
            answers.extend(task.await);
        }
        let is_last = round == ROUNDS;
        if is_media(&answers) || note_if_same(nodes, answers, is_last) {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Whether there is no multivariant playlist to compare.
fn is_media(answers: &[Result<Answer, Failure>]) -> bool {
    answers.iter().flatten().any(|answer| {
        let text = std::str::from_utf8(&answer.body).unwrap_or_default();
        matches!(viewer::hls::parse(text), Ok(viewer::hls::Playlist::Media(_)))
    })
}

/// Notes the answers if they are the same, or if there will be no others.
fn note_if_same(nodes: &[Rc<Node>], answers: Vec<Result<Answer, Failure>>, is_last: bool) -> bool {
    let body = |answer: &Result<Answer, Failure>| Some(answer.as_ref().ok()?.body.clone());
    let first = answers.first().and_then(body);
    let same = first.is_some() && answers.iter().all(|answer| body(answer) == first);
    if !same && !is_last {
        return false;
    }
    let mut failed = Vec::new();
    for (node, answer) in nodes.iter().zip(answers) {
        let name = node.name_of(&node.url);
        match answer {
            Ok(answer) => node.record(&name, Kind::Lasting, object(answer), None),
            Err(failure) => failed.push((node, name, failure)),
        }
    }
    for (node, name, failure) in failed {
        node.absent(&name, &failure);
    }
    true
}

/// Asks nodes for what they were not seen to have, but others were. All have the same time for that.
async fn settle(nodes: &[Rc<Node>], ledger: &Rc<RefCell<Ledger>>) {
    let deadline = Instant::now() + SETTLING;
    let mut asked = JoinSet::new();
    for node in nodes.iter().map(Rc::clone) {
        asked.spawn_local(settle_node(node, Rc::clone(ledger), deadline));
    }
    while asked.join_next().await.is_some() {}
}

async fn settle_node(node: Rc<Node>, ledger: Rc<RefCell<Ledger>>, deadline: Instant) {
    let (node, ledger) = (&*node, &*ledger);
    // When it last answered anything.
    let heard = &Cell::new(Instant::now());
    let unlisted = ledger.borrow().unlisted(node.place);
    let asked = stream::iter(unlisted).for_each_concurrent(AT_ONCE, |name| async move {
        match ask_once(heard, is_answered(node, &name)).await {
            Ok(()) => ledger.borrow_mut().listed(node.place, &name),
            Err(failure) => node.absent(&name, &failure),
        }
    });
    asked.await;
    let lacks = ledger.borrow().lacks(node.place);
    let first = stream::iter(lacks).map(|name| async move {
        let failure = ask_once(heard, node.ask_for(&name)).await.err()?;
        Some((name, failure))
    });
    let mut lacks: Vec<_> = first.buffered(AT_ONCE).filter_map(ready).collect().await;
    while !lacks.is_empty() {
        sleep_until(deadline.min(Instant::now() + PAUSE)).await;
        if Instant::now() >= deadline {
            break;
        }
        let again = stream::iter(lacks).map(|(name, before)| async move {
            match timeout_at(deadline, node.ask_for(&name)).await {
                Ok(Ok(())) => None,
                Ok(Err(failure)) => Some((name, failure)),
                // What it answered before says more than that the time is over.
                Err(_) => Some((name, before)),
            }
        });
        lacks = again.buffered(AT_ONCE).filter_map(ready).collect().await;
    }
    for (name, why) in lacks {
        node.absent(&name, &why);
    }
}

/// Asks a node for a playlist or manifest.
async fn is_answered(node: &Node, name: &str) -> Result<(), Failure> {
    let url = node.url.resolve(name).map_err(|error| Failure::Request(error.to_string()))?;
    node.client.get(&url, None, Duration::ZERO).await.map(|_| ())
}

/// Asks a node for something for the first time, unless it has been silent for too long. `heard` is when it last
/// answered anything.
async fn ask_once(
    heard: &Cell<Instant>,
    asked: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    if heard.get().elapsed() > SETTLING {
        return Err(Failure::Late);
    }
    let answer = timeout(SETTLING, asked).await.unwrap_or(Err(Failure::Late));
    if !matches!(answer, Err(Failure::Late)) {
        heard.set(Instant::now());
    }
    answer
}
