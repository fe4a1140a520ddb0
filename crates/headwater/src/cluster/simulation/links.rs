//! Links that carry little.

use std::sync::Arc;
use std::time::Duration;

use cluster::name;
use cluster::wire::Ask;
use futures_util::StreamExt;
use live::backup::Role;
use media::codec::avc;
use testkit::Random;
use tokio::time::{Instant, sleep, timeout};

use super::super::bus::Bus;
use super::encoder::Encoder;
use super::network::Network;
use super::node::Node;
use super::{TURN, start};

/// Three nodes, and an encoder that has filled the window of the first.
struct Scene {
    network: Arc<Network>,
    nodes: Vec<Node>,
    encoder: Encoder,
}

impl Scene {
    async fn begin() -> Self {
        let network = Network::new(1);
        let (began, mut random) = (Instant::now(), Random::new(1));
        let nodes = (0..3).map(|at| start(&network, began, (at, 0), &mut random));
        let nodes = nodes.collect();
        let mut scene = Self { network, nodes, encoder: Encoder::new(("x", Role::Primary), 0, 1) };
        for _ in 0..400 {
            scene.turn().await;
        }
        scene
    }

    async fn turn(&mut self) {
        sleep(TURN).await;
        assert!(!self.encoder.step(&self.nodes[0]), "it is let in");
        self.nodes.iter_mut().for_each(Node::sweep);
    }

    /// Lets time pass until a node has the whole stream. Returns how long that took.
    async fn until_copied(&mut self, at: usize) -> Duration {
        let began = Instant::now();
        loop {
            // A viewer tries again when it is told that there is nothing yet.
            let _ = timeout(Duration::from_millis(1), self.nodes[at].watch("x")).await;
            let [of, copy] = [0, at].map(|at| self.nodes[at].origin.registry.stream("x"));
            let version = |stream: Arc<live::Stream>| Some(stream.track("a0")?.window().version);
            let (of, copy) = (of.and_then(version), copy.and_then(version));
            // What comes takes its time.
            if of.zip(copy).is_some_and(|(of, copy)| of - copy < 10) {
                return began.elapsed();
            }
            assert!(began.elapsed() < Duration::from_secs(120), "{of:?} {copy:?}");
            self.turn().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_over_a_slow_link_takes_its_time() {
    let mut scene = Scene::begin().await;
    // The stream has 3,500 bytes a second, and its window 83,000.
    scene.nodes[1].bus.slow_down(Some(6500));
    let took = scene.until_copied(1).await;
    assert!((Duration::from_secs(20)..Duration::from_secs(40)).contains(&took), "{took:?}");
    assert_eq!(scene.network.sent("headwater.node.n0"), 1, "one answer brought all");
}

/// The window is more messages than wait for a subscriber, and all are sent at once.
#[tokio::test(start_paused = true)]
async fn a_long_window_is_copied_by_several_answers() {
    a_long_window_is_copied(40, None).await;
}

/// The same over a link on which one answer takes more than ten seconds. Meanwhile 3,500 bytes a second are added.
#[tokio::test(start_paused = true)]
async fn a_long_window_is_copied_by_several_answers_over_a_slow_link() {
    a_long_window_is_copied(100, Some(9000)).await;
}

async fn a_long_window_is_copied(most: usize, rate: Option<u64>) {
    let mut scene = Scene::begin().await;
    scene.network.keep_at_most(most);
    scene.nodes[1].bus.slow_down(rate);
    let took = scene.until_copied(1).await;
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert!(scene.network.sent("headwater.node.n0") > 1, "one answer did not bring all");
    let copy = scene.nodes[1].origin.registry.stream("x").expect("it is copied");
    let of = scene.nodes[0].origin.registry.stream("x").expect("it is published");
    let first = |stream: &live::Stream| {
        stream.track("v0").and_then(|track| Some(track.window().all().next()?.msn)).expect("media")
    };
    assert!(first(&copy) <= first(&of), "the copy has the whole window");
}

/// Each keyframe makes a part of two pieces, and the answers lack the first of them.
#[tokio::test(start_paused = true)]
async fn a_copy_outlasts_the_loss_of_a_piece_of_a_long_part() {
    let network = Network::new(1);
    let (began, mut random) = (Instant::now(), Random::new(1));
    let mut node = |at| start(&network, began, (at, 0), &mut random);
    let (owner, mut other) = (node(0), node(1));
    let info = live::PublisherInfo { peer: None, protocol: "test", rendition: None };
    let mut publisher = owner.origin.publish("x", Role::Primary, info).expect("it is let in");
    let video = avc::Config::parse(testkit::avc_record(31).into()).expect("a record");
    let now = owner.origin.now();
    publisher.track(0, media::Codec::Avc(video), 1000, *b"und", now).expect("a track");
    other.bus.narrow(300 << 10);
    let newest = |node: &Node| {
        let stream = node.origin.registry.stream("x").expect("it is here");
        let newest = stream.track("v0")?.window().newest()?.msn;
        Some((newest, stream.state().status))
    };
    for frame in 0..100_i64 {
        sleep(TURN).await;
        let sync = frame % 10 == 0;
        let data = bytes::Bytes::from(vec![0; if sync { 600 << 10 } else { 100 }]);
        let sample = media::Sample { dts: frame * 100, cts: 0, duration: 0, sync, data };
        publisher.sample(0, sample, owner.origin.now()).expect("it is taken");
        if frame == 50 {
            other.watch("x").await;
            assert_eq!(newest(&other), None, "the parts are missing");
        }
        if frame == 60 {
            other.bus.narrow(usize::MAX);
        }
    }
    sleep(Duration::from_secs(1)).await;
    assert!(newest(&other).is_some());
    assert_eq!(newest(&other), newest(&owner));
}

/// A second viewer comes to an edge while the copy is being made for the first one.
#[tokio::test(start_paused = true)]
async fn who_comes_while_a_copy_is_made_sees_all_of_it() {
    let scene = Scene::begin().await;
    // The window takes a second.
    scene.nodes[1].bus.slow_down(Some(80_000));
    let origin = Arc::clone(&scene.nodes[1].origin);
    let first = tokio::spawn({
        let origin = Arc::clone(&origin);
        async move { origin.stream("x").await }
    });
    let version = |stream: &live::Stream| stream.track("a0").map(|track| track.window().version);
    while origin.registry.stream("x").is_none_or(|copy| version(&copy).is_none()) {
        sleep(Duration::from_millis(1)).await;
    }
    let of = scene.nodes[0].origin.registry.stream("x").expect("it is published");
    let copy = origin.registry.stream("x").expect("it is begun");
    assert!(version(&copy) < version(&of), "not all has come");
    let second = origin.stream("x").await.expect("it is there").expect("it is there");
    assert_eq!(version(&second), version(&of));
    let first = first.await.expect("no panic").expect("it is there").expect("it is there");
    assert!(Arc::ptr_eq(&first, &second));
}

/// A node asks for many windows of another, whose link is slow.
#[tokio::test(start_paused = true)]
async fn a_node_that_asks_for_much_holds_up_no_other() {
    let mut scene = Scene::begin().await;
    let owner = Arc::clone(&scene.nodes[0].bus);
    owner.slow_up(Some(80_000));
    let greedy = scene.nodes[1].origin.cluster.get().expect("a cluster");
    let mut answers = Vec::new();
    for _ in 0..100 {
        let inbox = owner.inbox();
        answers.push(owner.subscribe(inbox.clone()).await.expect("an inbox"));
        let question = greedy.question("x", Ask::Changes(Vec::new())).expect("a question");
        let bus = &scene.nodes[1].bus;
        bus.publish(name::questions("n0"), Some(inbox), question).await.expect("it is sent");
    }
    sleep(TURN).await;
    // A short question, at once.
    let other = Arc::clone(scene.nodes[2].origin.cluster.get().expect("a cluster"));
    let asked = Instant::now();
    let nothing = other.question("", Ask::Nothing).expect("a question");
    other.bus.request(name::questions("n0"), nothing).await.expect("an answer");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    let took = scene.until_copied(2).await;
    assert!(took < Duration::from_secs(30), "{took:?}");
    // The greedy node has what its first questions were for. The last were dropped.
    let mut told = 0;
    for answer in &mut answers {
        let first = timeout(Duration::from_millis(1), answer.next()).await;
        told += usize::from(first.is_ok());
    }
    assert!((8..100).contains(&told), "{told}");
}
