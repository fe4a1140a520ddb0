//! More RTMP connections than places. Publishers have places of their own, and players that receive
//! nothing do not keep theirs for ever.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Instant;

use protocol::rtmp::{ClientEvent, PlayStart, PublishKind, Purpose};
use socket2::{Domain, Socket, Type};

use testkit::rtmp::{self, Client};
use testkit::uninterrupted;

use crate::support::{LIMIT, Origin, clip};

fn try_play(address: SocketAddr, name: &str) -> Result<Client, String> {
    let config = rtmp::config(address, name, Purpose::Play(PlayStart::Any));
    Client::connect(address, config, rtmp::is_started)
}

/// A player that pauses. The server's answer shows that it knows.
fn paused(address: SocketAddr, name: &str) -> Client {
    let mut player = try_play(address, name).expect("it may play");
    player.session.pause(true, 0.0).expect("it plays");
    player.flush();
    player
}

/// A publisher of `name` that has sent the clip and stays connected.
fn published(origin: &Origin, name: &str) -> Client {
    let mut publisher = Client::publish(origin.rtmp, name);
    clip().iter().for_each(|message| publisher.send(message));
    origin.playlist(name, "v0");
    publisher
}

/// Tries until there is a place. A place is free once the server has seen its owner leave.
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
    // Players of files count as well.
    std::fs::copy(testkit::demo_clip(), origin.folder().join("media/clip.mp4")).unwrap();
    let title = try_play(origin.rtmp, "vod/clip.mp4");
    assert_eq!(title.err().as_deref(), Some("NetStream.Play.Failed"));

    let second = published(&origin, "live/second");
    let third = || Client::try_publish(origin.rtmp, "live/third");
    assert_eq!(third().err().as_deref(), Some("NetStream.Publish.Denied"));
    let line = origin.log_line(LIMIT, |line| line.contains("too many publishers"));
    assert!(line.contains("stream=\"third\""), "{line}");

    // A client that leaves makes room.
    drop(players.pop());
    let play = || try_play(origin.rtmp, "live/first");
    players.push(until_there_is_a_place(play, "NetStream.Play.Failed"));
    second.finish();
    let third = until_there_is_a_place(third, "NetStream.Publish.Denied");
    third.finish();
    first.finish();
}

/// A refused client may not keep its connection and wait for a place.
#[test]
fn clients_refused_for_want_of_slots_are_disconnected() {
    let origin = Origin::start("[rtmp]\nmax_players = 1\nmax_publishers = 1\n");
    let _publisher = published(&origin, "live/one");
    let _player = paused(origin.rtmp, "live/one");
    let rejected = |event: &ClientEvent| matches!(event, ClientEvent::Rejected { .. });
    for purpose in [Purpose::Play(PlayStart::Live), Purpose::Publish(PublishKind::Live)] {
        let config = rtmp::config(origin.rtmp, "live/one", purpose);
        let mut refused = Client::connect(origin.rtmp, config, rejected).unwrap();
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

    // The same holds for players of files, and at the end of a file.
    std::fs::copy(testkit::demo_clip(), origin.folder().join("media/clip.mp4")).unwrap();
    let mut title = paused(origin.rtmp, "vod/clip.mp4");
    let mut ended = try_play(origin.rtmp, "vod/clip.mp4?pace=fast").unwrap();
    for client in [&mut title, &mut ended] {
        assert!(client.is_closed_within(LIMIT));
        origin.warning(client.address());
    }
    // A player that waits for a publisher without further media does not count as paused.
    plays.session.pause(true, 0.0).unwrap();
    plays.session.pause(false, 0.0).unwrap();
    plays.flush();
    assert!(origin.warnings(plays.address()).is_empty(), "{}", origin.log());
}

/// After the publisher was admitted, the kernel gives the server no further descriptor. The first
/// track needs one, for the file in memory that holds the windows of all tracks.
#[test]
fn a_publisher_whose_track_cannot_be_made_is_told_and_may_return() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};

    // Each event loop needs descriptors when it begins, which may be after the server is ready. Here are two: one for
    // operators, and one for everybody else, who publishes.
    let origin = Origin::start("workers = 1\n[control]\nlisten = \"127.0.0.1:0\"\n");
    assert_eq!(testkit::http::get(origin.operators(), "/healthz").status(), 200);
    let mut publisher = Client::publish(origin.rtmp, "live/short");
    let pid = Pid::from_raw(origin.id().cast_signed()).unwrap();
    let before = rustix::process::getrlimit(Resource::Nofile);
    let limit = |current| {
        // Only the soft limit changes, so it can be raised again.
        let limit = Rlimit { current: Some(current), maximum: before.maximum };
        prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    };
    // The kernel gives the lowest free number, and below this limit none is free.
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

/// For each of four connections, one after the other, whether the server begins to speak RTMP.
/// Three of them come from one address.
fn let_in(server: SocketAddr) -> [bool; 4] {
    let hello = [&[3][..], &[0; 1536]].concat();
    let tried = [1, 1, 1, 2].map(|host| {
        let mut socket = connect_from(host, server);
        let spoke = socket.write_all(&hello).is_ok()
            && matches!(uninterrupted(|| socket.read(&mut [0; 1])), Ok(1));
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

    // Without configuration this machine has no such limit.
    let origin = Origin::start(limited);
    assert_eq!(let_in(origin.rtmp), [true; 4]);
}

/// More than 256 connections from many addresses that say nothing, or no more than `connect`, keep
/// neither a publisher nor a player out. The oldest of them leave.
#[test]
fn undecided_connections_take_nobodys_slot() {
    let limits = "max_players = 2\nmax_publishers = 2\nsetup_timeout = \"1m\"\n";
    let origin = Origin::start(&format!("workers = 1\n[rtmp]\n{limits}"));
    let undecided: Vec<_> = (0..600u16)
        .map(|i| {
            let mut socket = connect_from(1 + (i % 100) as u8, origin.rtmp);
            if i % 2 == 0 {
                socket.write_all(&[&[3][..], &[0; 1536]].concat()).expect("it is accepted");
            }
            socket
        })
        .collect();
    let _publisher = published(&origin, "live/one");
    let _player = try_play(origin.rtmp, "live/one").expect("there is room");
    let line = origin.warning(undecided[0].local_addr().unwrap());
    assert!(line.contains("closed for a newer connection"), "{line}");
    let newest = undecided[599].local_addr().unwrap();
    assert!(origin.warnings(newest).is_empty(), "{}", origin.log());
}

/// Where all places are taken, a player that has one may play something else.
#[test]
fn a_player_that_plays_again_keeps_its_place() {
    let origin = Origin::start("[rtmp]\nmax_players = 1\n");
    let _publishers = ["live/one", "live/two"].map(|name| published(&origin, name));
    let mut player = try_play(origin.rtmp, "live/one").expect("there is room");
    let viewers = |name: &str, count: u32| {
        let watched = format!("\"rtmp\":{count}");
        origin.get_until(&format!("/api/v1/streams/{name}"), LIMIT, |response| {
            response.text().contains(&watched)
        });
    };
    viewers("live/one", 1);
    assert!(player.raw(&play("two")));
    viewers("live/two", 1);
    viewers("live/one", 0);
}

/// The command `play` of a client that has a stream, in one message (RTMP 7.2.2.1).
fn play(name: &str) -> Vec<u8> {
    let text = |text: &str| [&[2, 0, text.len() as u8], text.as_bytes()].concat();
    let command = [text("play"), vec![0; 9], vec![5], text(name)].concat();
    let header = [8, 0, 0, 0, 0, 0, command.len() as u8, 20, 1, 0, 0, 0];
    [&header[..], &command].concat()
}
