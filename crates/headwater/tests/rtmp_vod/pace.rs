//! A paced player gets no more than its plan says, and all of it.

use std::time::Duration;

use protocol::rtmp::{ClientEvent, PlayStart};
use socket2::{Domain, Socket, Type};

use crate::support::{Player, server_with};

/// What is sent at once, and what a timestamp is rounded by.
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
            // What came late was sent late by a busy machine; early it never is. The player's
            // clock starts when it is told so, a moment after the server's.
            let slack = Duration::from_millis(250);
            assert!(position <= due + BLOCK + slack, "{position:?} after {:?}", message.at);
        }
        assert!(end.at > Duration::from_secs_f64((9.5 - burst) / rate), "{:?}", end.at);
    }
    // As fast as the link takes it: ten seconds in much less.
    let mut player = Player::new(&server, &format!("{file}?pace=fast"), PlayStart::Any, None);
    player.finish();
    assert!(player.media.last().unwrap().at < Duration::from_secs(5));
}

/// There is room to write again only after longer than the time-out.
#[test]
fn a_player_that_reads_slowly_stays() {
    let server = server_with("[http]\nsend_timeout = \"2s\"");
    let socket = Socket::new(Domain::for_address(server.rtmp), Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.connect(&server.rtmp.into()).unwrap();
    let name = "mp4/film.mp4?pace=fast";
    let mut player = Player::over(socket.into(), &server, name, PlayStart::Any, None);
    player.until(|event| matches!(event, ClientEvent::Started));
    player.listen_slowly(Duration::from_secs(8), 5000.0);
}
