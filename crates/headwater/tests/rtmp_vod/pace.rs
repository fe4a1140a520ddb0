//! A paced player gets media no earlier than its plan says, and all of them.

use std::time::Duration;

use protocol::rtmp::PlayStart;

use crate::support::{Player, server_with};

/// Duration of the media that are sent at once, and the rounding of timestamps.
const BLOCK: Duration = Duration::from_millis(252);

#[test]
fn nothing_comes_before_it_is_due() {
    let server = server_with("burst = \"2s\"\nrate = 4.0");
    let mut player = Player::new(&server, "mp4/film.mp4", PlayStart::Any, None);
    player.finish();
    for message in player.frames() {
        let due = Duration::from_secs_f64(2.0 + message.at.as_secs_f64() * 4.0);
        let position = Duration::from_millis(message.timestamp.into());
        // A busy machine may send late, but never early.
        assert!(position <= due + BLOCK, "{position:?} after {:?}", message.at);
    }
    let last = player.media.last().unwrap().timestamp;
    assert!(last > 9500, "{last} ms of 10 s");
}

#[test]
fn fast_playback_is_not_held_back() {
    let server = server_with("burst = \"2s\"\nrate = 1.0");
    let mut player = Player::new(&server, "mp4/two-minutes.mp4?pace=fast", PlayStart::Any, None);
    player.finish();
    // Paced, the two minutes of media would take 118 s. `rtmp::file` has the rule's test, on a clock
    // that the test moves: there, fast media take no time.
    assert!(player.media.last().unwrap().at < Duration::from_secs(59));
}
