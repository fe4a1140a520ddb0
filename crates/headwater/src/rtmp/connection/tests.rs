//! Rules about time. Each test is the peer of a connection, and the clock stands still while
//! anything is done.

use std::sync::Arc;

use http::net::Drain;
use protocol::rtmp::{
    Capabilities, ClientConfig, ClientEvent, ClientSession, PlayStart, PublishKind, Purpose, Url,
};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use super::*;
use crate::access::tests::{SECRET, token};
use crate::access::unix_now;
use crate::config::{Config, Size};
use crate::double::{ALL, Double, PEER, STEP, Source};
use crate::rtmp::slots::{Pool, Undecided};

const PLAY: Purpose = Purpose::Play(PlayStart::Live);
const PUBLISH: Purpose = Purpose::Publish(PublishKind::Live);

async fn local(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

/// The peer of a connection.
struct Peer {
    double: Double,
    session: ClientSession,
    unread: Vec<u8>,
    drain: Drain,
    end: JoinHandle<Result<(), Error>>,
}

impl Peer {
    /// A peer that asks for the stream `x` when it runs.
    fn new(origin: &Arc<Origin>, purpose: Purpose, caps_ex: u32, capacity: usize) -> Self {
        Self::of("live/x", origin, purpose, caps_ex, capacity)
    }

    /// A peer that asks for this stream or file when it runs.
    fn of(
        name: &str,
        origin: &Arc<Origin>,
        purpose: Purpose,
        caps_ex: u32,
        capacity: usize,
    ) -> Self {
        let url = Url::parse(&format!("rtmp://origin/{name}")).unwrap();
        let capabilities = Capabilities { caps_ex, ..Capabilities::forward_all() };
        let config = ClientConfig { capabilities, ..ClientConfig::new(&url, purpose) };
        let drain = Drain::default();
        let shared = Rc::new(Shared {
            origin: Arc::clone(origin),
            broadcasts: play::Broadcasts::new(play::Messages, Duration::ZERO),
            undecided: Undecided::new(1),
            publishers: Pool::new(0),
            players: Pool::new(0),
            drain: drain.clone(),
        });
        let double = Double::new(capacity);
        let mut connection = Connection::new(shared, double.clone(), PEER);
        let end = spawn_local(async move {
            let result = connection.run().await;
            connection.say_end(&result);
            result
        });
        Self { double, session: ClientSession::new(config, 1), unread: Vec::new(), drain, end }
    }

    /// Lets time pass while the link carries `rate` bytes a second. Returns what happened, with the
    /// time since the beginning.
    async fn run(
        &mut self,
        mut source: Option<&mut Source>,
        rate: usize,
        time: Duration,
    ) -> Vec<(Duration, ClientEvent)> {
        let (began, mut events) = (Instant::now(), Vec::new());
        while began.elapsed() < time && !self.double.is_closed() {
            while let Some(output) = self.session.poll_output() {
                self.double.say(&output);
            }
            self.double.carry(rate).await;
            if let Some(source) = &mut source {
                source.go_on();
            }
            self.unread.append(&mut self.double.taken());
            let taken = self.session.handle_input(&self.unread).unwrap();
            self.unread.drain(..taken);
            while let Some(event) = self.session.poll_event() {
                events.push((began.elapsed(), event));
            }
        }
        events
    }

    /// How the connection ended, which must have happened.
    async fn error(self) -> Error {
        assert!(self.end.is_finished());
        self.end.await.unwrap().unwrap_err()
    }
}

/// When the first event that `is` accepts came.
#[track_caller]
fn when(events: &[(Duration, ClientEvent)], is: fn(&ClientEvent) -> bool) -> Duration {
    events.iter().find(|(_, event)| is(event)).expect("it came").0
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed() {
    local(async {
        let origin = Arc::new(Origin::new(Config::default()));
        let limit: Duration = origin.config.rtmp.setup_timeout.into();
        let peer = Peer::new(&origin, PLAY, 0, 1 << 20);
        let took = peer.double.closed().await;
        assert!((limit..limit + STEP * 2).contains(&took), "{took:?}");
        assert!(matches!(peer.error().await, Error::Idle(_)));
    })
    .await;
}

/// A publisher that chooses its codec by this list must not choose one that is dropped.
#[tokio::test(start_paused = true)]
async fn the_codecs_that_a_publisher_may_send_are_told() {
    local(async {
        let origin = Arc::new(Origin::new(Config::default()));
        let mut peer = Peer::new(&origin, PUBLISH, Capabilities::MULTITRACK, 1 << 20);
        let events = peer.run(None, ALL, STEP * 9).await;
        let told = events.iter().find_map(|(_, event)| match event {
            ClientEvent::Connected { capabilities } => Some(capabilities),
            _ => None,
        });
        let told = told.expect("an answer");
        assert_eq!(told.fourcc_list, ["avc1", "hvc1", "av01", "mp4a", "Opus"]);
        let names = |map: &[(String, u32)]| -> Vec<String> {
            assert!(map.iter().all(|(_, mask)| *mask == Capabilities::CAN_FORWARD), "{map:?}");
            map.iter().map(|(fourcc, _)| fourcc.clone()).collect()
        };
        assert_eq!(names(&told.video), ["avc1", "hvc1", "av01"]);
        assert_eq!(names(&told.audio), ["mp4a", "Opus"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_publisher_stays_while_it_sends_and_must_leave_when_it_is_silent() {
    local(async {
        let origin = Arc::new(Origin::new(Config::default()));
        let limit = 3 * Duration::from(origin.config.live.silence);
        let mut peer = Peer::new(&origin, PUBLISH, 0, 1 << 20);
        for _ in 0..4 {
            peer.run(None, ALL, limit - STEP * 9).await;
            assert!(!peer.double.is_closed());
            peer.session.send_metadata(0, &[]).unwrap();
        }
        let began = Instant::now();
        peer.run(None, ALL, limit * 2).await;
        let took = began.elapsed();
        assert!((limit..limit + STEP * 9).contains(&took), "{took:?}");
        assert!(matches!(peer.error().await, Error::Silent(_)));
    })
    .await;
}

/// The connection is older by then than a peer without a role may be.
#[tokio::test(start_paused = true)]
async fn a_publisher_that_has_ended_its_stream_has_time_for_another() {
    local(async {
        let origin = Arc::new(Origin::new(Config::default()));
        let limit: Duration = origin.config.rtmp.setup_timeout.into();
        let mut peer = Peer::new(&origin, PUBLISH, 0, 1 << 20);
        for _ in 0..3 {
            peer.run(None, ALL, limit).await;
            peer.session.send_metadata(0, &[]).unwrap();
        }
        peer.session.close();
        let began = Instant::now();
        peer.run(None, ALL, limit * 3).await;
        let took = began.elapsed();
        assert!((limit..limit + STEP * 9).contains(&took), "{took:?}");
        assert!(matches!(peer.error().await, Error::Idle(_)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_player_has_its_time_once_however_often_it_pauses() {
    local(async {
        let mut source = Source::new(Config::default(), &[400_000]);
        let limit: Duration = source.origin.config.rtmp.pause_timeout.into();
        let mut peer = Peer::new(&source.origin, PLAY, 0, 1 << 20);
        peer.run(Some(&mut source), ALL, Duration::from_secs(600)).await;
        assert!(!peer.double.is_closed(), "it need not say anything while it plays");
        peer.session.pause(true, 0.0).unwrap();
        let began = Instant::now();
        peer.run(Some(&mut source), ALL, limit / 2).await;
        peer.session.pause(true, 0.0).unwrap();
        peer.run(Some(&mut source), ALL, limit).await;
        let took = began.elapsed();
        assert!((limit..limit + STEP * 9).contains(&took), "{took:?}");
        assert!(matches!(peer.error().await, Error::AtRest(_)));
    })
    .await;
}

/// Nothing wakes it but its own time.
#[tokio::test(start_paused = true)]
async fn a_player_ends_with_its_token_though_its_publisher_is_silent() {
    local(async {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        std::fs::write(&key, SECRET).unwrap();
        let mut config = Config::default();
        config.access.jwt.keys = key.to_str().unwrap().to_owned();
        config.access.jwt.leeway.0 = Duration::ZERO;
        let mut source = Source::new(config, &[400_000]);
        let expires = unix_now() + 60;
        let claims = format!(r#"{{"exp":{expires},"permissions":[{{"actions":["play"]}}]}}"#);
        let name = format!("live/x?token={}", token(&claims));
        let mut peer = Peer::of(&name, &source.origin, PLAY, 0, 1 << 20);
        let began = Instant::now();
        let events = peer.run(Some(&mut source), ALL, Duration::from_secs(5)).await;
        when(&events, |event| *event == ClientEvent::Started);
        peer.run(None, ALL, Duration::from_secs(180)).await;
        // The token has whole seconds, by a clock that goes on meanwhile.
        let took = began.elapsed();
        assert!((Duration::from_secs(45)..Duration::from_secs(65)).contains(&took), "{took:?}");
    })
    .await;
}

/// The kernel has no room for more all this time.
#[tokio::test(start_paused = true)]
async fn a_player_stays_while_it_takes_a_byte() {
    local(async {
        let mut config = Config::default();
        let limit = Duration::from_secs(12);
        config.http.send_timeout.0 = limit;
        config.live.viewer_patience.0 = Duration::from_secs(3600);
        let mut source = Source::new(config, &[400_000]);
        let mut peer = Peer::new(&source.origin, PLAY, 0, 20_000);
        let events = peer.run(Some(&mut source), ALL, Duration::from_secs(5)).await;
        when(&events, |event| *event == ClientEvent::Started);
        for _ in 0..30 {
            peer.run(Some(&mut source), 0, Duration::from_secs(10)).await;
            assert!(!peer.double.is_closed());
            peer.double.take(1);
        }
        let began = Instant::now();
        peer.run(Some(&mut source), 0, limit * 3).await;
        let took = began.elapsed();
        assert!((limit..limit * 5 / 4 + STEP).contains(&took), "{took:?}");
        assert!(peer.double.is_forgotten());
        assert!(matches!(peer.error().await, Error::Stalled(_)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_player_that_stays_behind_for_too_long_must_leave() {
    local(async {
        let mut config = Config::default();
        let patience = Duration::from_secs(10);
        config.live.viewer_queue = Size(200_000);
        config.live.viewer_patience.0 = patience;
        let mut source = Source::new(config, &[1_600_000]);
        let mut peer = Peer::new(&source.origin, PLAY, 0, 20_000);
        let began = Instant::now();
        // 200,000 bytes a second are published, and this carries less.
        peer.run(Some(&mut source), 120_000, Duration::from_secs(120)).await;
        assert!(began.elapsed() >= patience, "{:?}", began.elapsed());
        assert!(peer.double.is_forgotten());
        assert!(matches!(peer.error().await, Error::TooSlow));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_player_of_a_file_stays_while_it_takes_a_byte() {
    local(async {
        let mut config = Config::default();
        let limit = Duration::from_secs(12);
        config.http.send_timeout.0 = limit;
        config.vod.root = testkit::media_dir();
        let origin = Arc::new(Origin::new(config));
        let name = "vod/mp4/two-minutes.mp4?pace=fast";
        let mut peer = Peer::of(name, &origin, Purpose::Play(PlayStart::Any), 0, 20_000);
        let events = peer.run(None, ALL, Duration::from_millis(200)).await;
        when(&events, |event| *event == ClientEvent::Started);
        for _ in 0..30 {
            peer.run(None, 0, Duration::from_secs(10)).await;
            assert!(!peer.double.is_closed());
            peer.double.take(1);
        }
        let took = peer.double.closed().await;
        assert!((limit..limit * 5 / 4 + STEP).contains(&took), "{took:?}");
        assert!(peer.double.is_forgotten());
        assert!(matches!(peer.error().await, Error::Stalled(_)));
    })
    .await;
}

/// The kernel has the rest of the stream when it ends, and the player needs long to take it. If the
/// connection closed meanwhile, the kernel would answer the player's next message by a reset, and
/// drop the rest.
#[tokio::test(start_paused = true)]
async fn a_player_takes_the_end_of_a_stream_before_its_connection_closes() {
    local(async {
        let mut config = Config::default();
        config.http.send_timeout.0 = Duration::from_secs(10);
        config.live.viewer_patience.0 = Duration::from_secs(60);
        // What the link carries in a second, and how long the connection stays open.
        for (rate, has_all, open) in
            [(15_000, true, 34..37), (0, false, 12..15), (1000, false, 62..65)]
        {
            let mut source = Source::new(config.clone(), &[400_000]);
            let mut peer = Peer::new(&source.origin, PLAY, 0, 1 << 20);
            let events = peer.run(Some(&mut source), ALL, Duration::from_secs(5)).await;
            when(&events, |event| *event == ClientEvent::Started);
            // 50,000 bytes a second are published, and wait in the kernel.
            peer.run(Some(&mut source), 0, Duration::from_secs(10)).await;
            source.end();
            let began = Instant::now();
            let events = peer.run(None, rate, Duration::from_secs(600)).await;
            assert!(peer.double.is_closed() && peer.end.await.unwrap().is_ok());
            assert!(open.contains(&began.elapsed().as_secs()), "{rate}: {:?}", began.elapsed());
            let is_told =
                events.iter().any(|(_, event)| matches!(event, ClientEvent::Ended { .. }));
            let has_rest = peer.double.unacknowledged() == Some(0);
            assert_eq!((has_rest, is_told), (has_all, has_all), "{rate}");
            // The kernel does not keep what a silent viewer has not taken.
            assert_eq!(peer.double.is_forgotten(), !has_all, "{rate}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn clients_that_can_reconnect_go_on_for_half_of_the_time_to_drain() {
    local(async {
        let mut config = Config::default();
        config.drain.timeout.0 = Duration::from_secs(60);
        config.live.silence.0 = Duration::from_secs(60);
        for (purpose, caps_ex, left) in [
            (PUBLISH, Capabilities::RECONNECT, Duration::from_secs(30)),
            (PUBLISH, 0, Duration::ZERO),
            (PLAY, Capabilities::RECONNECT, Duration::from_secs(30)),
            (PLAY, 0, Duration::ZERO),
        ] {
            let is_player = matches!(purpose, Purpose::Play(_));
            let mut source = is_player.then(|| Source::new(config.clone(), &[400_000]));
            let origin = match &source {
                Some(source) => Arc::clone(&source.origin),
                None => Arc::new(Origin::new(config.clone())),
            };
            let mut peer = Peer::new(&origin, purpose, caps_ex, 1 << 20);
            let events = peer.run(source.as_mut(), ALL, Duration::from_secs(5)).await;
            when(&events, |event| *event == ClientEvent::Started);
            peer.drain.begin();
            let events = peer.run(source.as_mut(), ALL, Duration::from_secs(90)).await;
            let ended = when(&events, |event| matches!(event, ClientEvent::Ended { .. }));
            assert!((left..left + STEP * 3).contains(&ended), "{left:?}: {ended:?}");
            let is_asked = |event: &ClientEvent| matches!(event, ClientEvent::Reconnect { .. });
            if caps_ex == 0 {
                assert!(!events.iter().any(|(_, event)| is_asked(event)));
            } else {
                assert!(when(&events, is_asked) <= STEP * 3);
            }
            assert!(peer.end.await.unwrap().is_ok());
        }
    })
    .await;
}

/// A peer that sends thousands of tiny messages at once does not keep the other connections of its
/// thread waiting until all are handled.
#[tokio::test(start_paused = true)]
async fn other_connections_have_their_turns_while_many_messages_are_handled() {
    local(async {
        let origin = Arc::new(Origin::new(Config::default()));
        let mut peer = Peer::new(&origin, PUBLISH, 0, 1 << 20);
        let events = peer.run(None, ALL, STEP * 20).await;
        when(&events, |event| *event == ClientEvent::Started);
        let messages = 4_000;
        for _ in 0..messages {
            peer.session.send_metadata(0, b"\x02\0\nonMetaData\x08\0\0\0\0\0\0\x09").unwrap();
        }
        // A track of AAC tells that everything before was handled.
        for tag in [&[0xaf, 0, 0x12, 0x10], &[0xaf, 1, 0x21, 0x10]] {
            peer.session.send_audio(0, Bytes::from_static(tag)).unwrap();
        }
        while let Some(output) = peer.session.poll_output() {
            peer.double.say(&output);
        }
        let stream = origin.registry.stream("x").unwrap();
        let mut turns = 0;
        while stream.state().tracks.is_empty() {
            turns += 1;
            assert!(turns < 100_000, "they are not handled");
            yield_now().await;
        }
        assert!(turns >= messages / EVENTS_A_TURN, "{turns} turns");
    })
    .await;
}

/// A peer that sends its input in tiny pieces does not have the same block made again and again.
#[test]
fn input_of_a_player_does_not_begin_its_block_anew() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).max_blocking_threads(1).build().unwrap();
    runtime.block_on(local(async {
        let mut config = Config::default();
        config.vod.root = testkit::media_dir();
        let origin = Arc::new(Origin::new(config));
        let name = "vod/mp4/two-minutes.mp4?pace=fast";
        let mut peer = Peer::of(name, &origin, Purpose::Play(PlayStart::Any), 0, 20_000);
        let events = peer.run(None, ALL, STEP * 20).await;
        when(&events, |event| *event == ClientEvent::Started);
        let title = origin.titles.title("mp4/two-minutes.mp4").unwrap();
        let flv_title = origin.flv_titles.of(title).unwrap();
        // The only thread waits for the test.
        let (go_on, held) = std::sync::mpsc::channel::<()>();
        let (begins, begun) = tokio::sync::oneshot::channel();
        let thread = tokio::task::spawn_blocking(move || {
            begins.send(()).unwrap();
            held.recv()
        });
        begun.await.unwrap();
        // The clock stands still meanwhile, so the peer must not wait for it.
        let listen = async |peer: &Peer| {
            for _ in 0..20 {
                peer.double.take(usize::MAX);
                yield_now().await;
            }
        };
        listen(&peer).await;
        // Each job of a thread has the title.
        let jobs = Arc::strong_count(&flv_title);
        peer.session.seek(60_000.0).unwrap();
        let seek = peer.session.poll_output().unwrap();
        let (last, pieces) = seek.split_last().unwrap();
        for piece in pieces {
            peer.double.say(&[*piece]);
            listen(&peer).await;
        }
        assert_eq!(Arc::strong_count(&flv_title), jobs);
        drop(go_on);
        assert!(thread.await.unwrap().is_err());
        peer.double.say(&[*last]);
        let events = peer.run(None, ALL, STEP * 20).await;
        let has_sought = |event: &ClientEvent| {
            matches!(event, ClientEvent::Video { timestamp, .. } if *timestamp >= 58_000)
        };
        when(&events, has_sought);
    }));
}
