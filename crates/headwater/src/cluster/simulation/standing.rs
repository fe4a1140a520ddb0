//! Copies that are kept although nobody watches.

use std::sync::Arc;
use std::time::Duration;

use live::backup::Role;
use live::{Status, Stream};
use testkit::Random;
use tokio::time::{Instant, sleep};

use super::encoder::Encoder;
use super::network::Network;
use super::node::Node;
use super::{TURN, start};
use crate::config::{Config, Size};

/// So much memory, in KiB, has room for a stream and a few that begin.
const SMALL: u64 = 512;

/// Nodes at which nobody watches, and an encoder.
struct Scene {
    network: Arc<Network>,
    nodes: Vec<Node>,
    encoder: Encoder,
}

impl Scene {
    /// Each stream is copied on so many further nodes.
    fn begin(copies: u8) -> Self {
        let network = Network::new(1);
        let (began, mut random) = (Instant::now(), Random::new(1));
        let nodes = (0..4).map(|at| start(&network, began, (at, copies), &mut random));
        let nodes = nodes.collect();
        Self { network, nodes, encoder: Encoder::new(("x", Role::Primary), 0, 1) }
    }

    async fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds * 10 {
            sleep(TURN).await;
            let is_refused = self.encoder.step(&self.nodes[self.encoder.at]);
            assert!(!is_refused, "the encoder at node {}", self.encoder.at);
            self.nodes.iter_mut().for_each(Node::sweep);
        }
    }

    fn stream(&self, at: usize) -> Option<Arc<Stream>> {
        self.nodes[at].origin.registry.stream("x")
    }

    /// The nodes that have a copy.
    fn copies(&self) -> Vec<usize> {
        let has_copy = |at: &usize| self.stream(*at).is_some_and(|stream| stream.is_mirrored());
        (0..self.nodes.len()).filter(has_copy).collect()
    }
}

/// The numbers of the segments of video, and whether each begins with a discontinuity.
fn segments(stream: &Stream) -> Vec<(u64, bool)> {
    let window = stream.track("v0").expect("video").window();
    window.all().map(|segment| (segment.msn, segment.discontinuity)).collect()
}

#[tokio::test(start_paused = true)]
async fn without_standing_copies_a_stream_that_nobody_watches_costs_other_nodes_nothing() {
    let mut scene = Scene::begin(0);
    scene.pass(20).await;
    assert!(scene.copies().is_empty());
    for node in 0..4 {
        assert_eq!(scene.network.sent(&format!("headwater.node.n{node}")), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn history_goes_on_at_a_node_that_had_no_copy() {
    let mut scene = Scene::begin(1);
    scene.pass(20).await;
    let copies = scene.copies();
    let [copier] = copies[..] else { panic!("{copies:?}") };
    let before = segments(&scene.stream(0).expect("it is published"));
    scene.nodes[0].bus.crash();
    let third = (1..4).find(|at| *at != copier).expect("three are left");
    scene.encoder.leave(third, Duration::from_secs(2));
    scene.pass(8).await;
    let stream = scene.stream(third).expect("it is published");
    assert!(!stream.is_mirrored());
    let after = segments(&stream);
    assert!(after.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1), "{after:?}");
    let (newest, _) = before.last().expect("segments");
    // The last segments of the lost node are there, and what follows is told to be another encoder's session.
    assert!(after.iter().any(|(number, _)| number + 1 == *newest), "{before:?} {after:?}");
    assert!(after.iter().any(|(number, is_told)| number >= newest && *is_told), "{after:?}");
    // The copy that the lost node needed goes, and one of the new node's is kept, which may be the same.
    scene.pass(40).await;
    assert_eq!(scene.copies().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_lost_is_made_elsewhere_and_one_too_many_goes() {
    let mut scene = Scene::begin(2);
    scene.pass(20).await;
    let copies = scene.copies();
    let [first, second] = copies[..] else { panic!("{copies:?}") };
    scene.nodes[first].bus.crash();
    let third = (1..4).find(|at| !copies.contains(at)).expect("three others");
    scene.pass(15).await;
    assert!(scene.stream(third).is_some_and(|stream| stream.is_mirrored()));
    // A node that is about to end keeps what it has for a while. There is no other that could have it.
    scene.nodes[second].origin.cluster.get().expect("a cluster").leave();
    scene.pass(40).await;
    assert!(scene.stream(second).is_none());
    assert!(scene.stream(third).is_some_and(|stream| stream.is_mirrored()));
}

/// A stream that is published at the node of a standing copy needs the memory.
#[tokio::test(start_paused = true)]
async fn a_copy_that_nobody_watches_gives_way_to_a_publisher() {
    let mut scene = Scene::begin(3);
    let mut config = Config::default();
    config.cluster.copies = 3;
    config.live.memory = Size::from_kib(SMALL);
    let began = Instant::now();
    scene.nodes[1].bus.crash();
    scene.nodes[1] = Node::start(&scene.network, began, "n1", Duration::ZERO, config);
    scene.pass(20).await;
    assert_eq!(scene.copies(), [1, 2, 3]);
    let mut others: Vec<_> =
        (0..4).map(|at| Encoder::new(("y", Role::Primary), 1, at + 5)).collect();
    for (at, other) in others.iter_mut().enumerate() {
        other.stream = format!("y{at}");
    }
    let mut is_given_up = false;
    for _ in 0..600 {
        scene.pass(1).await;
        for other in &mut others {
            other.step(&scene.nodes[1]);
        }
        is_given_up |= scene.stream(1).is_none_or(|copy| copy.state().status == Status::Ended);
        let memory = scene.nodes[1].origin.registry.memory();
        assert!(memory.used <= memory.limit, "{memory:?}");
        if is_given_up {
            break;
        }
    }
    assert!(is_given_up);
    assert!(others.iter().all(Encoder::is_publishing));
    // When they have gone, the copy comes back.
    drop(others);
    scene.pass(100).await;
    assert_eq!(scene.copies(), [1, 2, 3]);
}
