//! Changes while players are at the live edge: of configurations, of publishers, and of the
//! players.

use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::Instant;

use crate::support::{
    Kind, LIMIT, Player, Publisher, assert_all_got, assert_run, server, server_waiting,
};

const STREAM: &str = "live/changes";

#[test]
fn another_configuration_comes_before_its_first_frame() {
    let server = server("workers = 1");
    let address = server.rtmp;
    let mut publisher = Publisher::start(address, STREAM, 1);
    // A player that comes late begins with a later configuration.
    let (joined, joins) = mpsc::channel();
    thread::scope(|scope| {
        let players: Vec<_> = (0..4)
            .map(|_| {
                let joined = joined.clone();
                scope.spawn(move || {
                    let mut player = Player::start(address, STREAM, None);
                    while player.got.is_empty() {
                        assert!(player.read(8 << 10), "the stream is over too soon");
                    }
                    joined.send(()).unwrap();
                    player.read_all()
                })
            })
            .collect();
        publisher.run(3);
        players.iter().for_each(|_| joins.recv_timeout(LIMIT).unwrap());
        publisher.configure(40);
        publisher.run(2);
        publisher.configure(31);
        publisher.run(2);
        let sent = publisher.finish();
        let players: Vec<_> = players
            .into_iter()
            .map(|player| ("player".to_owned(), true, player.join().unwrap()))
            .collect();
        assert_all_got(&sent, &players);
        for (_, _, got) in players {
            let mut configs: Vec<_> = got.iter().filter(|unit| unit.kind == Kind::Video).collect();
            configs.dedup_by(|a, b| a.config == b.config);
            assert_eq!(configs.len(), 3);
        }
    });
}

#[test]
fn players_stay_when_a_publisher_comes_back() {
    let server = server_waiting("workers = 1", "12s");
    let address = server.rtmp;
    let mut first = Publisher::start(address, STREAM, 1);
    thread::scope(|scope| {
        let players: Vec<_> = (0..4)
            .map(|_| scope.spawn(move || Player::start(address, STREAM, None).read_all()))
            .collect();
        first.run(3);
        let mut sent = first.finish();
        let mut second = Publisher::start(address, STREAM, 2);
        second.configure(40);
        second.run(3);
        sent.extend(second.finish());
        let players: Vec<_> = players
            .into_iter()
            .map(|player| ("player".to_owned(), true, player.join().unwrap()))
            .collect();
        assert_all_got(&sent, &players);
        for (who, _, got) in players {
            let mut last = [0; 2];
            for unit in got {
                let last = &mut last[unit.kind as usize];
                assert!(unit.time >= *last, "{who}: {:?} runs back from {last}", unit.kind);
                *last = unit.time;
            }
        }
    });
}

#[test]
fn a_paused_player_goes_on_at_a_keyframe_and_others_miss_nothing() {
    let server = server("workers = 1");
    let address = server.rtmp;
    let mut publisher = Publisher::start(address, STREAM, 1);
    thread::scope(|scope| {
        let stays = scope.spawn(move || Player::start(address, STREAM, None).read_all());
        let (resumed, resumes) = mpsc::channel();
        let pauses = scope.spawn(move || {
            let mut player = Player::start(address, STREAM, None);
            let mut runs = Vec::new();
            let play = |player: &mut Player| {
                while player.got.len() < 60 {
                    assert!(player.read(8 << 10), "the stream is over too soon");
                }
            };
            for _ in 0..2 {
                play(&mut player);
                player.pause(true);
                runs.push(std::mem::take(&mut player.got));
                player.pause(false);
            }
            play(&mut player);
            resumed.send(()).unwrap();
            runs.push(player.read_all());
            runs
        });
        // A busy machine may hold up the player, so the publisher goes on until it has played again.
        let begun = Instant::now();
        while resumes.try_recv() == Err(TryRecvError::Empty) {
            assert!(begun.elapsed() < LIMIT, "the player does not go on");
            publisher.run(1);
        }
        publisher.run(2);
        let sent = publisher.finish();
        let got = stays.join().unwrap();
        assert_all_got(&sent, &[("the other".to_owned(), true, got)]);
        let runs = pauses.join().unwrap();
        assert_run("before the first pause", &sent, &runs[0], Kind::Video);
        // Media that were on their way at a pause cannot be told apart from later media.
        let last = runs[2].iter().rfind(|unit| unit.kind == Kind::Video).unwrap();
        let sent = sent.iter().rfind(|unit| unit.kind == Kind::Video).unwrap();
        assert!(last.payload == sent.payload, "the end is missing");
    });
}
