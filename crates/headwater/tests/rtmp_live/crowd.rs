//! Players that read at once, irregularly, late, or not for a long time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{LIMIT, Player, Publisher, Unit, assert_all_got, server};

const STREAM: &str = "live/crowd";

/// Reads irregularly, until the end or until it has had enough.
fn fitful(address: SocketAddr, seed: u64) -> (String, bool, Vec<Unit>) {
    let mut random = testkit::Random::new(seed);
    thread::sleep(Duration::from_millis(random.below(2500)));
    let buffer = [4 << 10, 16 << 10, 64 << 10][seed as usize % 3];
    let enough = (seed % 4 == 3).then(|| 50 + random.below(100) as usize);
    let mut player = Player::start(address, STREAM, Some(buffer));
    // Bytes to read until it stalls again.
    let mut left = 0;
    while enough.is_none_or(|enough| player.got.len() < enough) {
        let size = 1 + random.below(30_000);
        if !player.read(size as usize) {
            // A player that joined too late to get enough must also have all to the end.
            return (format!("fitful {seed}"), true, player.got);
        }
        left -= size as i64;
        if left < 0 {
            thread::sleep(Duration::from_millis(random.below(700)));
            left = random.below(1_500_000) as i64;
        }
    }
    (format!("fitful {seed}"), false, player.got)
}

fn crowd(options: &str) {
    let server = server(options);
    let address = server.rtmp;
    let mut publisher = Publisher::start(address, STREAM, 1);
    let released = AtomicBool::new(false);
    let released = &released;
    thread::scope(|scope| {
        let attentive: Vec<_> = (0..3)
            .map(|_| scope.spawn(move || Player::start(address, STREAM, None).read_all()))
            .collect();
        let deaf = scope.spawn(move || {
            let player = Player::start(address, STREAM, Some(4 << 10));
            let began = Instant::now();
            while !released.load(Ordering::Acquire) {
                assert!(began.elapsed() < LIMIT, "the others wait for the one that is deaf");
                thread::sleep(Duration::from_millis(10));
            }
            player.read_all()
        });
        let fitful: Vec<_> =
            (0..12).map(|seed| scope.spawn(move || fitful(address, seed))).collect();
        publisher.run(7);
        let sent = publisher.finish();
        // These players read to the end while another has read nothing yet.
        let mut players: Vec<_> = attentive
            .into_iter()
            .map(|player| ("attentive".to_owned(), true, player.join().unwrap()))
            .collect();
        released.store(true, Ordering::Release);
        players.push(("deaf".to_owned(), true, deaf.join().unwrap()));
        players.extend(fitful.into_iter().map(|player| player.join().unwrap()));
        assert_all_got(&sent, &players);
    });
}

#[test]
fn everybody_gets_everything_in_order() {
    crowd("workers = 1");
}

#[test]
fn everybody_gets_everything_at_once_on_two_loops() {
    crowd("workers = 2\n[rtmp]\nflush_interval = \"0s\"");
}

#[test]
fn everybody_gets_everything_in_seconds() {
    crowd("workers = 1\n[rtmp]\nflush_interval = \"1s\"");
}
