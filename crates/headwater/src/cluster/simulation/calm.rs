//! Nothing fails: what nodes tell each other, and what they do not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::presence::{Announcement, Report};
use live::Status;
use live::backup::Role;
use testkit::Random;
use tokio::time::{Instant, sleep};
use tracing_subscriber::fmt::MakeWriter;

use super::encoder::Encoder;
use super::network::Network;
use super::node::Node;
use super::{TURN, start};

/// A node that an encoder publishes to, and one that copies the stream.
struct Calm {
    network: Arc<Network>,
    began: Instant,
    owner: Node,
    other: Node,
    encoder: Encoder,
    /// How often the encoder was not let in.
    refused: u32,
}

impl Calm {
    async fn begin() -> Self {
        let network = Network::new(1);
        let (began, mut random) = (Instant::now(), Random::new(1));
        let mut node = |at| start(&network, began, (at, 0), &mut random);
        let (owner, other) = (node(0), node(1));
        let encoder = Encoder::new(("x", Role::Primary), 0, 1);
        let mut calm = Self { network, began, owner, other, encoder, refused: 0 };
        calm.pass(5, |_| {}).await;
        calm.other.watch("x").await;
        calm
    }

    /// Starts a node at which nobody watches, and which has no copy.
    fn start_third(&self) -> Node {
        start(&self.network, self.began, (2, 0), &mut Random::new(2))
    }

    /// Lets seconds pass, and does something each second.
    async fn pass(&mut self, seconds: u32, mut each: impl FnMut(&mut Self)) {
        for turn in 0..seconds * 10 {
            sleep(TURN).await;
            if self.encoder.step(&self.owner) {
                self.refused += 1;
                self.encoder.leave(self.encoder.at, TURN);
            }
            if turn % 10 == 0 {
                each(self);
                self.owner.sweep();
                self.other.sweep();
            }
        }
    }

    fn copy(&self) -> Arc<live::Stream> {
        let copy = self.other.origin.registry.stream("x").expect("a copy");
        assert!(copy.is_mirrored());
        copy
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_lacks_nothing_asks_once() {
    let mut calm = Calm::begin().await;
    calm.pass(60, |_| {}).await;
    assert_eq!(calm.refused, 0);
    assert_eq!(calm.network.sent("headwater.node.n0"), 1);
    assert_eq!(calm.network.sent("headwater.units.x"), 0);
    // Beside two beats a second, each part and the window that shows it are told.
    let parts: usize = {
        let state = calm.owner.origin.registry.stream("x").expect("it is published").state();
        let windows = state.tracks.iter().map(|track| track.window());
        windows.map(|window| window.all().map(|s| s.parts.len()).sum::<usize>()).sum()
    };
    assert!(parts > 20, "{parts}");
    let told = calm.network.sent("headwater.live.x");
    assert!((65 * 2..65 * 30).contains(&told), "{told}");
}

/// The last viewer of a copy leaves, and comes again just in time, twice.
#[tokio::test(start_paused = true)]
async fn a_copy_lasts_thirty_seconds_longer_than_its_last_viewer() {
    let mut calm = Calm::begin().await;
    let copy = calm.copy();
    for _ in 0..2 {
        calm.other.leave("x");
        calm.pass(29, |_| {}).await;
        calm.other.watch("x").await;
        calm.pass(1, |_| {}).await;
        assert!(Arc::ptr_eq(&copy, &calm.copy()));
    }
    // Nobody had to ask again.
    assert_eq!(calm.network.sent("headwater.node.n0"), 1);
    calm.other.leave("x");
    calm.pass(29, |_| {}).await;
    assert!(Arc::ptr_eq(&copy, &calm.copy()));
    calm.pass(2, |_| {}).await;
    assert!(calm.other.origin.registry.stream("x").is_none());
    assert_eq!(calm.refused, 0);
}

/// The publisher leaves for good. The stream's own node and one without a copy are then asked for the stream.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_over_is_watched_to_its_end_and_not_copied_again() {
    let mut calm = Calm::begin().await;
    let third = calm.start_third();
    calm.encoder.leave(0, Duration::from_mins(10));
    calm.pass(33, |_| {}).await;
    assert_eq!(calm.copy().state().status, Status::Ended);
    assert!(matches!(third.origin.stream("x").await, Ok(None)));
    // A copy may not have heard yet that the stream is over.
    let cluster = Arc::clone(calm.owner.origin.cluster.get().expect("a cluster"));
    let copies = vec![("x".to_owned(), 0)];
    let late = Announcement {
        node: "n1".to_owned(),
        address: String::new(),
        zone: String::new(),
        viewers: 0,
        ready: true,
        message: (0, 1),
        streams: Vec::new(),
        seats: Vec::new(),
        report: Some(Report { load: 0, copies }),
    };
    for announced in [None, Some(late)] {
        let now = calm.owner.origin.now();
        announced.into_iter().for_each(|late| cluster.directory().hear(late, now));
        let stream = calm.owner.origin.stream("x").await;
        let stream = stream.expect("nobody has to be reached").expect("it is here");
        let state = stream.state();
        assert_eq!(state.status, Status::Ended);
        assert!(state.tracks.iter().all(|track| track.window().newest().is_some()));
    }
    assert_eq!(calm.network.sent("headwater.node.n1"), 0);
}

/// The node that gave its stream away hears nothing of the other one at first.
#[tokio::test(start_paused = true)]
async fn viewers_of_a_stream_that_was_given_away_stay_until_its_new_node_answers() {
    let mut calm = Calm::begin().await;
    let stream = calm.owner.origin.registry.stream("x").expect("it is published");
    let newest =
        || stream.track("v0").expect("video").window().newest().map(|it| it.msn).expect("media");
    calm.owner.watch("x").await;
    calm.owner.bus.narrow(0);
    std::mem::swap(&mut calm.owner, &mut calm.other);
    calm.encoder.leave(1, TURN);
    calm.pass(5, |_| {}).await;
    assert!(calm.encoder.is_publishing() && stream.is_mirrored());
    assert_ne!(stream.state().status, Status::Ended);
    let before = newest();
    calm.other.bus.narrow(usize::MAX);
    calm.pass(5, |_| {}).await;
    assert!(Arc::ptr_eq(&stream, &calm.copy()));
    assert!(newest() > before + 3, "{before} {}", newest());
}

/// Two nodes are configured with one name. A node that comes again after a crash has its own name to itself.
#[tokio::test(start_paused = true)]
async fn a_node_with_the_name_of_another_says_so() {
    static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(|| LOG.make_writer());
    let _log = tracing::subscriber::set_default(log.finish());
    let conflicts = || {
        let log = LOG.lock().expect("no panic").clone();
        String::from_utf8_lossy(&log).matches("cluster.node must differ node=\"n1\"").count()
    };
    let calm = Calm::begin().await;
    let again = || start(&calm.network, calm.began, (1, 0), &mut Random::new(2));
    calm.other.bus.crash();
    let restarted = again();
    sleep(Duration::from_secs(3)).await;
    assert_eq!(conflicts(), 0);
    let second = again();
    sleep(Duration::from_secs(3)).await;
    assert_eq!(conflicts(), 1);
    drop((restarted, second));
}

#[tokio::test(start_paused = true)]
async fn who_watches_a_file_counts_as_a_viewer_of_the_node() {
    let mut calm = Calm::begin().await;
    let viewing = calm.owner.origin.title_viewers.connected("film.mp4", live::Delivery::Push);
    calm.pass(2, |_| {}).await;
    let (nodes, _) = calm.other.origin.cluster.get().expect("a cluster").nodes();
    let known: Vec<_> = nodes.iter().map(|node| (&*node.node, node.viewers)).collect();
    assert_eq!(known, [("n0", 1), ("n1", 1)]);
    drop(viewing);
}

/// The node of a stream is lost. Its encoder comes to a node at which nobody watches, and which has no copy.
#[tokio::test(start_paused = true)]
async fn a_publisher_goes_on_where_there_is_no_copy() {
    let mut calm = Calm::begin().await;
    let mut third = calm.start_third();
    calm.pass(10, |_| {}).await;
    let copy = calm.copy();
    let newest = |stream: &live::Stream| {
        let window = stream.track("v0").expect("video").window();
        window.newest().expect("segments").msn
    };
    let before = newest(&copy);
    let told = calm.network.sent("headwater.live.x");
    calm.pass(1, |_| {}).await;
    let usual = calm.network.sent("headwater.live.x") - told;
    calm.owner.bus.crash();
    std::mem::swap(&mut calm.owner, &mut third);
    calm.encoder.leave(2, Duration::from_secs(2));
    assert!(calm.owner.origin.registry.stream("x").is_none());
    while !calm.encoder.is_publishing() {
        sleep(TURN).await;
        assert!(!calm.encoder.step(&calm.owner));
    }
    // The copies have the window already.
    let told = calm.network.sent("headwater.live.x");
    calm.pass(1, |_| {}).await;
    let told = calm.network.sent("headwater.live.x") - told;
    assert!((1..usual * 2).contains(&told), "{told}, and {usual} before");
    calm.pass(9, |_| {}).await;
    let stream = calm.owner.origin.registry.stream("x").expect("it is published");
    let window = stream.track("v0").expect("video").window();
    let numbers: Vec<_> = window.all().map(|segment| segment.msn).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    assert!(numbers.contains(&before) && newest(&stream) > before + 2, "{before} {numbers:?}");
    // Who watches the copy stays.
    assert!(Arc::ptr_eq(&copy, &calm.copy()));
    assert!(newest(&copy) > before + 2);
    assert_eq!(calm.refused, 0);
}

/// The node of a stream stands still, so that it neither answers nor is known to have gone. Its encoder tries another
/// node, which has no copy.
#[tokio::test(start_paused = true)]
async fn a_publisher_goes_on_when_a_node_that_stands_still_is_forgotten() {
    // Each attempt waits for an answer for 2 s. The node may be forgotten at any time of that.
    for after in (0..2500).step_by(250) {
        let mut calm = Calm::begin().await;
        let mut third = calm.start_third();
        calm.pass(10, |_| {}).await;
        let copy = calm.copy();
        calm.owner.bus.stand_still(Instant::now() + Duration::from_mins(1));
        std::mem::swap(&mut calm.owner, &mut third);
        calm.encoder.leave(2, Duration::from_millis(after));
        calm.pass(20, |_| {}).await;
        assert!(calm.encoder.is_publishing() && calm.refused > 0, "{after} ms");
        let stream = calm.owner.origin.registry.stream("x").expect("it is published");
        let numbers = |stream: &live::Stream| -> Vec<_> {
            let window = stream.track("v0").expect("video").window();
            window.all().map(|segment| segment.msn).collect()
        };
        // Who watches the copy stays.
        assert!(Arc::ptr_eq(&copy, &calm.copy()), "{after} ms");
        // It has as many segments as were taken over, or the oldest have left its window.
        assert!(numbers(&copy).ends_with(&numbers(&stream)), "{after} ms");
        assert!(numbers(&stream).len() > 8, "{after} ms: {:?}", numbers(&stream));
    }
}

/// The encoder goes from a node that cannot give the lease back, because the bucket does not hear it.
#[tokio::test(start_paused = true)]
async fn a_publisher_goes_on_where_a_lease_was_not_given_back() {
    let mut calm = Calm::begin().await;
    let mut third = calm.start_third();
    calm.pass(10, |_| {}).await;
    let copy = calm.copy();
    let newest = || copy.track("v0").expect("video").window().newest().expect("segments").msn;
    let before = newest();
    calm.owner.bus.lose_bucket();
    std::mem::swap(&mut calm.owner, &mut third);
    calm.encoder.leave(2, Duration::from_secs(2));
    calm.pass(10, |_| {}).await;
    assert!(calm.encoder.is_publishing());
    assert!(Arc::ptr_eq(&copy, &calm.copy()));
    assert!(newest() > before + 2, "{before} {}", newest());
    assert_eq!(calm.refused, 0);
}

/// A node's streams change all the time.
#[tokio::test(start_paused = true)]
async fn changes_of_many_streams_are_announced_at_once_and_then_few_times_a_second() {
    let mut calm = Calm::begin().await;
    let [owner, other] = [&calm.owner, &calm.other].map(|node| {
        let cluster = node.origin.cluster.get().expect("a cluster");
        Arc::clone(cluster)
    });
    calm.pass(3, |_| {}).await;
    sleep(Duration::from_millis(300)).await;
    owner.own("first", 1, true);
    sleep(Duration::from_millis(30)).await;
    assert!(other.elsewhere("first").is_some());
    // With 3 streams, and with so many that an announcement has four messages.
    for streams in [0, 8000] {
        (0..streams).for_each(|number| owner.own(&format!("s{number}"), 1, true));
        let before = calm.network.sent("headwater.nodes");
        for turn in 0..1000 {
            owner.own("first", 2 + streams + turn, true);
            sleep(Duration::from_millis(10)).await;
        }
        // In ten seconds. The other node says once a second what it has.
        let told = calm.network.sent("headwater.nodes") - before;
        assert!((10 + 40..=10 + 55).contains(&told), "{told} with {streams} streams");
        sleep(Duration::from_secs(2)).await;
        assert_eq!(other.elsewhere("first").map(|it| it.epoch), Some(1001 + streams));
    }
    assert!(other.elsewhere("s7999").is_some());
}

#[tokio::test(start_paused = true)]
async fn units_are_told_while_somebody_reads_them() {
    let mut calm = Calm::begin().await;
    let track = calm.copy().track("v0").expect("video");
    let mut tap = track.tap();
    calm.pass(3, |_| {}).await;
    let mut count = 0;
    let before = calm.network.sent("headwater.units.x");
    calm.pass(20, |_| {}).await;
    while let Some(live::tap::Tapped::Unit(_)) = tap.take() {
        count += 1;
    }
    let told = calm.network.sent("headwater.units.x") - before;
    assert!((200..=202).contains(&told), "{told} of a track with ten a second");
    assert!(count > 200, "{count}");
    drop(tap);
    calm.pass(5, |_| {}).await;
    let before = calm.network.sent("headwater.units.x");
    calm.pass(5, |_| {}).await;
    assert_eq!(calm.network.sent("headwater.units.x"), before);
}

#[tokio::test(start_paused = true)]
async fn a_silent_track_goes_on_while_somebody_plays_a_copy_of_it() {
    for is_played in [true, false] {
        let mut calm = Calm::begin().await;
        let stream = calm.owner.origin.registry.stream("x").expect("it is published");
        assert!(stream.track("a0").is_some());
        // The encoder comes again, without audio.
        calm.encoder.leave(0, Duration::from_secs(1));
        calm.encoder.has_audio = false;
        calm.pass(60, |calm| {
            if is_played && let Some(track) = calm.copy().track("a0") {
                track.ask(calm.other.origin.now());
            }
        })
        .await;
        let has_audio = |stream: &live::Stream| stream.track("a0").is_some();
        assert_eq!(has_audio(&stream), is_played);
        assert_eq!(has_audio(&calm.copy()), is_played);
    }
}

/// The primary leaves, and comes to the same node again. Meanwhile the backup at another node asks for the stream, or
/// waits for its keyframe.
#[tokio::test(start_paused = true)]
async fn a_primary_that_comes_again_soon_ends_nothing() {
    for away in [300, 600, 1000, 1500] {
        let mut calm = Calm::begin().await;
        let stream = calm.owner.origin.registry.stream("x").expect("it is published");
        let copy = calm.copy();
        let mut backup = Encoder::new(("x", Role::Backup), 1, 9);
        for turn in 0..300 {
            sleep(TURN).await;
            if turn == 100 {
                calm.encoder.leave(0, Duration::from_millis(away));
            }
            assert!(!calm.encoder.step(&calm.owner), "primary, {away} ms, turn {turn}");
            assert!(!backup.step(&calm.other), "backup, {away} ms, turn {turn}");
            if turn % 10 == 0 {
                calm.owner.sweep();
                calm.other.sweep();
            }
            for stream in [&stream, &copy] {
                assert_ne!(stream.state().status, Status::Ended, "{away} ms, turn {turn}");
            }
        }
        assert!(calm.encoder.is_publishing() && backup.is_publishing());
        let now = calm.owner.origin.now();
        let live = [&calm.owner, &calm.other].map(|node| node.origin.seats.presence("x", now).live);
        assert_eq!(live, [Some(Role::Primary), None], "{away} ms");
    }
}

/// The node where the backup waits is lost. The backup's encoder comes to another node.
#[tokio::test(start_paused = true)]
async fn the_encoder_of_a_waiting_publisher_is_let_in_when_its_node_is_lost() {
    let mut calm = Calm::begin().await;
    let third = calm.start_third();
    let mut backup = Encoder::new(("x", Role::Backup), 1, 9);
    for _ in 0..30 {
        sleep(TURN).await;
        assert!(!calm.encoder.step(&calm.owner) && !backup.step(&calm.other));
    }
    for node in [&calm.owner, &third] {
        let origin = &node.origin;
        let cluster = origin.cluster.get().expect("a cluster");
        assert!(cluster.waits_elsewhere("x", Role::Backup));
        // While its node is there, another backup is refused.
        origin.fetch("x", Role::Backup).await;
        let info = live::PublisherInfo { peer: None, protocol: "test", rendition: None };
        let refused = origin.publish("x", Role::Backup, info).map(|_| ());
        assert_eq!(refused, Err(live::PublishError::Elsewhere));
    }
    for (at, node) in [(0, &calm.owner), (2, &third)] {
        calm.other.bus.crash();
        backup.leave(at, TURN);
        let left = Instant::now();
        while !backup.is_publishing() {
            sleep(TURN).await;
            assert!(!calm.encoder.step(&calm.owner) && !backup.step(node), "at {at}");
        }
        assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
    }
}

/// A node cannot make a copy of the stream for which its publisher waits.
#[tokio::test(start_paused = true)]
async fn a_backup_goes_on_where_no_copy_can_be_made() {
    let network = Network::new(1);
    let (began, mut random) = (Instant::now(), Random::new(1));
    let mut node = |at| start(&network, began, at, &mut random);
    let (mut owner, mut other) = (node((0, 0)), node((1, 0)));
    other.bus.narrow(60);
    let mut primary = Encoder::new(("x", Role::Primary), 0, 1);
    let mut backup = Encoder::new(("x", Role::Backup), 1, 9);
    for _ in 0..50 {
        sleep(TURN).await;
        assert!(!primary.step(&owner));
    }
    let mut turn = async |seconds: u64, owner: &mut Node, other: &mut Node, hangs: bool| {
        if hangs {
            primary.hang(Duration::from_secs(seconds));
        }
        for turn in 0..seconds * 10 {
            sleep(TURN).await;
            assert!(!primary.step(owner) && !backup.step(other), "turn {turn}");
            owner.sweep();
            other.sweep();
        }
    };
    let live = |node: &Node| node.origin.seats.presence("x", node.origin.now()).live;
    turn(10, &mut owner, &mut other, false).await;
    assert_eq!((live(&owner), live(&other)), (Some(Role::Primary), None));
    assert!(other.origin.registry.stream("x").is_none(), "a copy was made");
    // Each second the other node asks for a copy, that is for all of the stream, and for the stream itself.
    let asked = network.sent("headwater.node.n0");
    assert!((18..=24).contains(&asked), "{asked}");
    turn(8, &mut owner, &mut other, true).await;
    assert_eq!((live(&owner), live(&other)), (None, Some(Role::Backup)));
    let stream = other.origin.registry.stream("x").expect("it is published");
    assert!(stream.track("v0").is_some_and(|it| it.window().all().count() > 2));
    // The node of the primary can copy it, and gets it back.
    turn(10, &mut owner, &mut other, false).await;
    assert_eq!((live(&owner), live(&other)), (Some(Role::Primary), None));
}
