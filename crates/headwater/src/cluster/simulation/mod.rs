//! A cluster in one process with simulated time, in which everything fails that can fail.
//!
//! The nodes are real ones: leases, messages about streams, and copies are the code that runs with NATS. Only
//! the message system is another ([`network`]). Encoders go from node to node, nodes crash and start again,
//! the network falls into two sides, and the bucket of the leases goes away or is lost. Nodes stand still for
//! longer than a lease lasts, are wrong about their connection, and get messages late. Encoders hang, and
//! each stream has a backup. Meanwhile this must hold:
//!
//! - At most one node tells changes of a stream with a lease of one epoch.
//! - A part that a node has shown never changes.
//! - Numbers of segments are consecutive, and so are frames, unless a discontinuity is told.
//! - When the faults end, each stream has one node, where its primary publishes, and all others show the same.

mod bus;
mod calm;
mod encoder;
mod frame;
mod leases;
mod links;
mod network;
mod node;
mod standing;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use live::Status;
use live::backup::{Role, Seat};
use testkit::Random;
use tokio::time::{Instant, sleep};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use self::encoder::Encoder;
use self::network::Network;
use self::node::{Checked, Node};
use crate::config::Config;

const NODES: usize = 4;
/// Two encoders contend for the first name. Each name has a backup.
const ENCODERS: [(&str, Role); 5] = [
    ("x", Role::Primary),
    ("x", Role::Primary),
    ("x", Role::Backup),
    ("y", Role::Primary),
    ("y", Role::Backup),
];
const STREAMS: [&str; 2] = ["x", "y"];
/// The time between two looks.
const TURN: Duration = Duration::from_millis(100);
/// The time that passes until the next fault begins, at most.
const PEACE: u64 = 12_000;
/// After this time without faults, all is well again, unless a primary has to be steady for longer.
const HEALED: Duration = Duration::from_secs(60);
/// After this time all is well in any case: a primary that flapped must be steady for two minutes
/// (`live::backup`).
const STEADY: Duration = HEALED.saturating_add(Duration::from_mins(2));

struct World {
    network: Arc<Network>,
    random: Random,
    began: Instant,
    nodes: Vec<Node>,
    /// On how many further nodes each stream is copied.
    copies: u8,
    /// When nodes that crashed start again.
    away: HashMap<usize, Instant>,
    /// Nodes that stand still: when they go on, and the encoders that have left them unnoticed.
    still: HashMap<usize, (Instant, Vec<Seat>)>,
    encoders: Vec<Encoder>,
    /// When faults that last end.
    faults: Vec<(Instant, Fault)>,
    next_fault: Instant,
    turns: u64,
    checked: Checked,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Partition,
    NoBucket,
    Cut(usize),
    Deceived(usize),
    Slow(usize),
    Loss,
}

impl World {
    fn new(seed: u64) -> Self {
        let network = Network::new(seed);
        let began = Instant::now();
        let mut random = Random::new(seed ^ 0x5eed);
        // Every other world keeps copies that nobody watches.
        let copies = u8::from(!seed.is_multiple_of(2));
        let nodes = (0..NODES).map(|at| start(&network, began, (at, copies), &mut random));
        let nodes = nodes.collect();
        let encoder = |(number, of): (u32, &(&str, Role))| Encoder::new(*of, 0, number + 1);
        Self {
            network,
            random,
            began,
            nodes,
            copies,
            away: HashMap::new(),
            still: HashMap::new(),
            encoders: (0..).zip(&ENCODERS).map(encoder).collect(),
            faults: Vec::new(),
            next_fault: Instant::now() + Duration::from_secs(5),
            turns: 0,
            checked: Checked::default(),
        }
    }

    /// A time below this one.
    fn time(&mut self, millis: u64) -> Duration {
        Duration::from_millis(self.random.below(millis))
    }

    /// Lets a turn pass.
    async fn turn(&mut self, has_faults: bool) {
        sleep(TURN).await;
        self.turns += 1;
        self.end_faults(!has_faults);
        if has_faults && Instant::now() >= self.next_fault {
            self.begin_fault();
            self.next_fault = Instant::now() + self.time(PEACE);
        }
        for encoder in &mut self.encoders {
            let node = &self.nodes[encoder.at];
            if self.still.contains_key(&encoder.at) {
                continue;
            }
            if self.away.contains_key(&encoder.at) || encoder.step(node) {
                let after = Duration::from_millis(200 + self.random.below(2000));
                encoder.leave(self.random.index(NODES), after);
            }
        }
        for at in 0..NODES {
            if self.away.contains_key(&at) || self.still.contains_key(&at) {
                continue;
            }
            self.nodes[at].sweep();
            if self.turns % 10 == at as u64 {
                let stream = STREAMS[self.random.index(STREAMS.len())];
                if self.random.below(8) == 0 {
                    self.nodes[at].leave(stream);
                } else {
                    let watch = self.nodes[at].watch(stream);
                    let _ = tokio::time::timeout(TURN, watch).await;
                    self.nodes[at].read(stream);
                }
            }
            self.nodes[at].check(self.turns.is_multiple_of(20), &mut self.checked);
        }
    }

    fn begin_fault(&mut self) {
        let at = self.random.index(NODES);
        let until = Instant::now() + Duration::from_millis(300) + self.time(20_000);
        match self.random.below(15) {
            0 | 1 => {
                let after = Duration::from_millis(100) + self.time(4000);
                let encoder = self.random.index(self.encoders.len());
                self.encoders[encoder].leave(at, after);
            }
            2 | 3 if self.away.is_empty() && !self.still.contains_key(&at) => {
                self.nodes[at].bus.crash();
                self.checked.count_switches(&self.nodes[at]);
                self.away.insert(at, until);
            }
            4 => {
                for node in &self.nodes {
                    node.bus.move_to(self.random.below(2) as u8);
                }
                let side = self.random.below(3) as u8;
                self.network.move_bucket((side < 2).then_some(side));
                self.faults.push((until, Fault::Partition));
            }
            5 => {
                self.network.move_bucket(None);
                self.faults.push((until, Fault::NoBucket));
            }
            6 => {
                self.nodes[at].bus.cut(true);
                self.faults.push((until, Fault::Cut(at)));
            }
            7 => {
                let bad = 1 + self.random.below(100);
                self.network.worsen(bad);
                self.faults.push((until, Fault::Loss));
            }
            8 => {
                let believes = self.random.below(2) == 0;
                self.nodes[at].bus.deceive(Some(believes));
                // A connection that is broken without a word is one that its node believes in.
                self.nodes[at].bus.cut(believes);
                self.faults.push((until, Fault::Deceived(at)));
            }
            9 => {
                let rate = 200 + self.random.below(4000);
                self.nodes[at].bus.slow_down(Some(rate));
                self.faults.push((until, Fault::Slow(at)));
            }
            10 if !self.away.contains_key(&at) && !self.still.contains_key(&at) => {
                self.stand_still(at, until);
            }
            11 | 12 => {
                let lasts = Duration::from_millis(100) + self.time(15_000);
                let encoder = self.random.index(self.encoders.len());
                self.encoders[encoder].hang(lasts);
            }
            _ => self.network.lose_bucket(),
        }
    }

    /// A node stands still. Some of its encoders go to other nodes meanwhile.
    fn stand_still(&mut self, at: usize, until: Instant) {
        self.nodes[at].bus.stand_still(until);
        let mut left = Vec::new();
        for encoder in self.encoders.iter_mut().filter(|encoder| encoder.at == at) {
            if self.random.below(2) == 0 {
                let after = Duration::from_millis(self.random.below(12_000));
                left.extend(encoder.desert(self.random.index(NODES), after));
            }
        }
        self.still.insert(at, (until, left));
    }

    fn end_faults(&mut self, all: bool) {
        let now = Instant::now();
        self.still.retain(|_, (until, _)| *until > now);
        let (over, on) = self.faults.drain(..).partition(|(until, _)| all || *until <= now);
        self.faults = on;
        let over: Vec<(Instant, Fault)> = over;
        for (_, fault) in over {
            match fault {
                Fault::Partition => {
                    self.nodes.iter().for_each(|node| node.bus.move_to(0));
                    self.network.move_bucket(Some(0));
                }
                Fault::NoBucket => self.network.move_bucket(Some(0)),
                Fault::Cut(at) => self.nodes[at].bus.cut(false),
                Fault::Deceived(at) => {
                    self.nodes[at].bus.cut(false);
                    self.nodes[at].bus.deceive(None);
                }
                Fault::Slow(at) => self.nodes[at].bus.slow_down(None),
                Fault::Loss => self.network.worsen(0),
            }
        }
        let back: Vec<_> = self
            .away
            .iter()
            .filter(|(_, until)| all || **until <= now)
            .map(|(at, _)| *at)
            .collect();
        for at in back {
            self.away.remove(&at);
            self.nodes[at] = start(&self.network, self.began, (at, self.copies), &mut self.random);
        }
    }

    /// Whether the media of a backup go on.
    fn is_on_backup(&self) -> bool {
        let mut live = self.nodes.iter().flat_map(|node| node.origin.seats.live().into_values());
        live.any(|role| role == Role::Backup)
    }

    /// Faults end. After a while, each stream has one node, and all nodes show the same of it.
    async fn heal(&mut self) {
        let since = Instant::now();
        while since.elapsed() < HEALED || self.is_on_backup() && since.elapsed() < STEADY {
            self.turn(false).await;
        }
        for name in STREAMS {
            // Nobody sent anything while the stream before was compared.
            self.turn(false).await;
            let publishing = |role| {
                let of = |it: &&Encoder| (&*it.stream, it.role) == (name, role);
                let publishing = self.encoders.iter().filter(of).filter(|it| it.is_publishing());
                publishing.collect::<Vec<_>>()
            };
            let (primaries, backups) = (publishing(Role::Primary), publishing(Role::Backup));
            let ([encoder], [backup]) = (&primaries[..], &backups[..]) else {
                panic!("{name}: {} primaries, {} backups", primaries.len(), backups.len())
            };
            let origin = &self.nodes[backup.at].origin;
            let seats = origin.seats.presence(name, origin.now());
            let waits = seats.waiting.iter().any(|(role, _)| *role == Role::Backup);
            assert!(waits, "{name} at {}: {seats:?}", self.nodes[backup.at].name);
            let owner = &self.nodes[encoder.at];
            let stream = owner.origin.registry.stream(name).expect("it is published");
            assert!(!stream.is_mirrored() && stream.state().status == Status::Live, "{name}");
            for node in &mut self.nodes {
                node.watch(name).await;
            }
            // Until what is under way has come. What changed while a copy was made is asked for when its stream's node
            // tells how far it is, each half second.
            sleep(Duration::from_millis(600)).await;
            for node in &self.nodes {
                let found = node.origin.stream(name).await;
                let copy = found.unwrap_or_else(|error| panic!("{name} at {}: {error}", node.name));
                let copy = copy.expect("it is published");
                let (of, it) = (stream.state(), copy.state());
                assert_eq!(of.tracks.len(), it.tracks.len(), "{name} at {}", node.name);
                for (of, it) in of.tracks.iter().zip(&it.tracks) {
                    let (of, it) = (of.window(), it.window());
                    assert_eq!(of.version, it.version, "{name} at {}", node.name);
                    for (of, it) in of.all().zip(it.all()) {
                        assert_eq!((of.msn, of.parts.len()), (it.msn, it.parts.len()));
                        for (of, it) in of.parts.iter().zip(&it.parts) {
                            assert_eq!(of.region.as_ref(), it.region.as_ref());
                        }
                    }
                }
            }
        }
    }
}

/// Starts node number `at`. Each stream is copied on `copies` further nodes.
fn start(
    network: &Arc<Network>,
    began: Instant,
    (at, copies): (usize, u8),
    random: &mut Random,
) -> Node {
    // Microseconds as well: a node that goes on with a stream is known by when it did.
    let ahead = Duration::from_micros(random.below(500_000));
    let mut config = Config::default();
    config.cluster.copies = copies;
    Node::start(network, began, &format!("n{at}"), ahead, config)
}

/// Walks at least so many steps: messages that come or are lost, and uses of the bucket.
fn walk(seed: u64, steps: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let _log = std::env::var_os("SIMULATION_LOG").map(|_| print_log());
        let mut world = World::new(seed);
        while world.network.steps() < steps {
            for _ in 0..1200 {
                world.turn(true).await;
            }
            world.heal().await;
        }
        for node in &world.nodes {
            world.checked.count_switches(node);
        }
        let (minutes, checked) = (world.began.elapsed().as_secs() / 60, &world.checked);
        let steps = world.network.steps();
        println!("seed {seed}: {steps} steps, {minutes} minutes, {checked:?}");
        assert!(checked.to_backup > 0 && checked.to_primary > 0, "{checked:?}");
        assert!(checked.of_copies > 100 && checked.discontinuities > 5, "{checked:?}");
        assert!(checked.units > 1000, "{checked:?}");
    });
}

/// Prints what nodes log, with the time of the world in seconds, until the result is dropped.
fn print_log() -> DefaultGuard {
    struct WorldTime(Instant);
    impl FormatTime for WorldTime {
        fn format_time(&self, to: &mut Writer<'_>) -> std::fmt::Result {
            write!(to, "{:.3}", self.0.elapsed().as_secs_f64())
        }
    }
    let log = tracing_subscriber::fmt()
        .with_timer(WorldTime(Instant::now()))
        .with_max_level(tracing::Level::DEBUG)
        .with_test_writer()
        .finish();
    // Only the walk's: other tests run at the same time, on threads and clocks of their own.
    tracing::subscriber::set_default(log)
}

/// `SIMULATION_STEPS` and `SIMULATION_SEED` ask for a longer walk, or another one. `SIMULATION_LOG` prints the log.
#[test]
fn one_node_tells_a_stream_and_viewers_miss_nothing_that_is_not_told() {
    let steps = std::env::var("SIMULATION_STEPS").ok().and_then(|steps| steps.parse().ok());
    let seed = std::env::var("SIMULATION_SEED").ok().and_then(|seed| seed.parse().ok());
    walk(seed.unwrap_or(1), steps.unwrap_or(60_000));
}
