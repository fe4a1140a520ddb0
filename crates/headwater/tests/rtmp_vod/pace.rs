//! A paced player gets media no earlier than its plan says, and all of them.

use std::time::Duration;

use protocol::rtmp::{ClientEvent, PlayStart};

use crate::support::{Player, server_with};

/// Duration of the media that are sent at once, and the rounding of timestamps.
const BLOCK: Duration = Duration::from_millis(252);

#[test]
fn nothing_comes_before_it_is_due() {
    let server = server_with("burst = \"2s\"\nrate = 4.0");
    let file = "mp4/film.mp4";
    for (query, burst, rate) in [("", 2.0, 4.0), ("?pace=burst", 2.0, 4.0)] {
        let mut player = Player::new(&server, &format!("{file}{query}"), PlayStart::Any, None);
        player.finish();
        let end = player.media.last().unwrap();
        for message in player.frames() {
            let due = Duration::from_secs_f64(burst + message.at.as_secs_f64() * rate);
            let position = Duration::from_millis(message.timestamp.into());
            // A busy machine may send late, but never early.
            assert!(position <= due + BLOCK, "{position:?} after {:?}", message.at);
        }
        assert!(end.at > Duration::from_secs_f64((9.5 - burst) / rate), "{:?}", end.at);
    }
}

#[test]
fn what_is_wanted_fast_is_not_held_back() {
    let server = server_with("burst = \"2s\"\nrate = 1.0");
    let mut player = Player::new(&server, "mp4/minute.mp4?pace=fast", PlayStart::Any, None);
    player.finish();
    // Paced, the minute of media would take 58 s.
    assert!(player.media.last().unwrap().at < Duration::from_secs(29));
}

/// The socket becomes writable again only after the time-out.
#[test]
fn a_player_that_reads_slowly_stays() {
    let server = server_with("[http]\nsend_timeout = \"2s\"");
    let socket = testkit::narrow_socket(server.rtmp, 4 << 10).unwrap();
    let name = "mp4/film.mp4?pace=fast";
    let mut player = Player::over(socket, &server, name, PlayStart::Any, None);
    player.until(|event| matches!(event, ClientEvent::Started));
    player.listen_slowly(Duration::from_secs(8), 5000.0);
}
