//! More RTMP connections than there are places: publishers have their own, and players that are
//! sent nothing do not keep theirs for ever.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Instant;

use protocol::rtmp::{ClientEvent, PlayStart, PublishKind, Purpose};
use socket2::{Domain, Socket, Type};

use crate::support::{Client, LIMIT, Origin, clip};

fn try_play(address: SocketAddr, name: &str) -> Result<Client, String> {
    let started = |event: &ClientEvent| matches!(event, ClientEvent::Started);
    Client::connect(address, name, Purpose::Play(PlayStart::Any), started)
}

/// A player that has said that it pauses; that the server knows is shown by its answer.
fn paused(address: SocketAddr, name: &str) -> Client {
    let mut player = try_play(address, name).expect("it may play");
    player.session.pause(true, 0.0).expect("it plays");
    player.flush();
    player
}

/// What a publisher of `name` that goes on for as long as the test is told to.
fn published(origin: &Origin, name: &str) -> Client {
    let mut publisher = Client::publish(origin.rtmp, name);
    clip().iter().for_each(|message| publisher.send(message));
    origin.playlist(name, "v0");
    publisher
}

/// Tries until there is a place: one is given back when the server has seen its owner go.
#[track_caller]
fn until_there_is_a_place(attempt: impl Fn() -> Result<Client, String>, code: &str) -> Client {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(client) => return client,
            Err(refusal) => assert_eq!(refusal, code),
        }
        assert!(begun.elapsed() < LIMIT, "no place is given back");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn players_take_no_place_of_a_publisher() {
    let origin = Origin::start("[rtmp]\nmax_players = 3\nmax_publishers = 2\n");
    let first = published(&origin, "live/first");
    let mut players: Vec<_> = (0..3).map(|_| paused(origin.rtmp, "live/first")).collect();
    assert_eq!(try_play(origin.rtmp, "live/first").err().as_deref(), Some("NetStream.Play.Failed"));
    origin.log_line(LIMIT, |line| line.contains("play refused: too many players"));
    // A file's players are players.
    std::fs::create_dir(origin.folder().join("media")).unwrap();
    std::fs::copy(testkit::demo_clip(), origin.folder().join("media/clip.mp4")).unwrap();
    let film = try_play(origin.rtmp, "vod/clip.mp4");
    assert_eq!(film.err().as_deref(), Some("NetStream.Play.Failed"));

    let second = published(&origin, "live/second");
    let third = || Client::try_publish(origin.rtmp, "live/third");
    assert_eq!(third().err().as_deref(), Some("NetStream.Publish.Denied"));
    let line = origin.log_line(LIMIT, |line| line.contains("too many publishers"));
    assert!(line.contains("stream=\"third\""), "{line}");

    // Who leaves makes room.
    drop(players.pop());
    let play = || try_play(origin.rtmp, "live/first");
    players.push(until_there_is_a_place(play, "NetStream.Play.Failed"));
    second.finish();
    let third = until_there_is_a_place(third, "NetStream.Publish.Denied");
    third.finish();
    first.finish();
}

/// It may not wait with a connection until there is a place.
#[test]
fn who_is_refused_for_want_of_places_is_closed() {
    let origin = Origin::start("[rtmp]\nmax_players = 1\nmax_publishers = 1\n");
    let _publisher = published(&origin, "live/one");
    let _player = paused(origin.rtmp, "live/one");
    let rejected = |event: &ClientEvent| matches!(event, ClientEvent::Rejected { .. });
    for purpose in [Purpose::Play(PlayStart::Live), Purpose::Publish(PublishKind::Live)] {
        let mut refused = Client::connect(origin.rtmp, "live/one", purpose, rejected).unwrap();
        assert!(refused.is_closed_within(LIMIT));
        let line = origin.warning(refused.address());
        assert!(line.contains("refused: too many p"), "{line}");
    }
}

#[test]
fn a_player_may_pause_for_so_long() {
    let origin = Origin::start("[rtmp]\npause_timeout = \"1s\"\n");
    let _publisher = published(&origin, "live/paused");
    let mut plays = try_play(origin.rtmp, "live/paused").unwrap();
    let mut pauses = paused(origin.rtmp, "live/paused");
    assert!(pauses.is_closed_within(LIMIT));
    let line = origin.warning(pauses.address());
    assert!(line.contains("paused, or at the end of what it plays, for 1s"), "{line}");

    // Of a file as well, and at its end.
    std::fs::create_dir(origin.folder().join("media")).unwrap();
    std::fs::copy(testkit::demo_clip(), origin.folder().join("media/clip.mp4")).unwrap();
    let mut film = paused(origin.rtmp, "vod/clip.mp4");
    let mut ended = try_play(origin.rtmp, "vod/clip.mp4?pace=fast").unwrap();
    for client in [&mut film, &mut ended] {
        assert!(client.is_closed_within(LIMIT));
        origin.warning(client.address());
    }
    // Who waits for the publisher, which has nothing more to say, does not pause.
    plays.session.pause(true, 0.0).unwrap();
    plays.session.pause(false, 0.0).unwrap();
    plays.flush();
    assert!(origin.warnings(plays.address()).is_empty(), "{}", origin.log());
}

/// The kernel gives the server no further descriptor, which a track needs, once its publisher has
/// been let in.
#[test]
fn a_publisher_whose_track_cannot_be_made_is_told_and_may_return() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};

    let origin = Origin::start("");
    let mut publisher = Client::publish(origin.rtmp, "live/short");
    let pid = Pid::from_raw(origin.id().cast_signed()).unwrap();
    let before = rustix::process::getrlimit(Resource::Nofile);
    let limit = |current| {
        // Only the soft limit: it can be raised again.
        let limit = Rlimit { current: Some(current), maximum: before.maximum };
        prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    };
    // The kernel gives the lowest number that is free, and below this there is none.
    limit(3);
    clip().iter().take(2).for_each(|message| publisher.send(message));
    publisher.until_failed("os error 24");
    let line = origin.warning(publisher.address());
    assert!(line.contains("rtmp connection ended") && line.contains("os error 24"), "{line}");
    limit(before.current.or(before.maximum).unwrap_or(1024));
    published(&origin, "live/short").finish();
}

fn connect_from(host: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
    socket.bind(&from.into()).expect("all of 127.0.0.0/8 is ours");
    socket.connect(&to.into()).expect("the server listens");
    socket.set_read_timeout(Some(LIMIT)).expect("not zero");
    socket.into()
}

/// With which of four connections, one after the other, three of them from one address, the server
/// begins to speak RTMP.
fn let_in(server: SocketAddr) -> [bool; 4] {
    let hello = [&[3][..], &[0; 1536]].concat();
    let tried = [1, 1, 1, 2].map(|host| {
        let mut socket = connect_from(host, server);
        let spoke = socket.write_all(&hello).is_ok() && matches!(socket.read(&mut [0; 1]), Ok(1));
        (socket, spoke)
    });
    tried.map(|(_, spoke)| spoke)
}

#[test]
fn connections_from_one_address() {
    let limited = "[rtmp]\nmax_connections_per_address = 2\n";
    let origin = Origin::start(&format!("[http]\nunlimited_networks = []\n{limited}"));
    assert_eq!(let_in(origin.rtmp), [true, true, false, true]);
    let line = origin.log_line(LIMIT, |line| line.contains("refused: the limit of"));
    assert!(line.contains("the limit of connections from one address is reached"), "{line}");
    assert!(line.contains("protocol=\"rtmp\""), "{line}");

    // As it is without being configured: this machine has no such limit.
    let origin = Origin::start(limited);
    assert_eq!(let_in(origin.rtmp), [true; 4]);
}
