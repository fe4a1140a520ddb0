//! Media playlists (RFC 8216bis): with parts that are foretold, or with whole segments.

use std::fmt::Write;

use protocol::utc::UtcMicros;

use super::session::Session;
use crate::calibrate::player::{PART, Player, SEGMENT};
use crate::calibrate::stream::FRAME;

/// Waits for what the query asks for, and writes the playlist.
pub(super) async fn playlist(session: &Session, query: &str) -> String {
    let script = &session.script;
    if script.player == Player::Hls {
        return segments(session, session.released());
    }
    let of = |name: &str| -> Option<u32> {
        let value = |pair: &str| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        query.split('&').find_map(value)
    };
    let wanted = of("_HLS_msn").map(|segment| {
        let each = SEGMENT / PART;
        segment.saturating_mul(each).saturating_add(of("_HLS_part").unwrap_or(each - 1))
    });
    if let Some(part) = wanted.filter(|part| *part < script.pieces()) {
        session.wait_for(part).await;
    }
    // The stream has ended for those who ask for more than there is.
    let has_ended = wanted.is_some_and(|part| part >= script.pieces());
    parts(session, session.released(), has_ended)
}

/// What both kinds of playlists begin with.
fn head(control: &str) -> String {
    format!(
        "#EXTM3U\n#EXT-X-VERSION:9\n#EXT-X-TARGETDURATION:1\n#EXT-X-SERVER-CONTROL:{control}\n\
         #EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-MAP:URI=\"init.mp4\"\n"
    )
}

/// The tag that says when a segment was captured, if nothing else tells it.
fn date(session: &Session, segment: u32) -> String {
    if session.script.is_stamped {
        return String::new();
    }
    let captured = session.captured(segment * SEGMENT).unsigned_abs();
    format!("#EXT-X-PROGRAM-DATE-TIME:{}\n", UtcMicros(captured))
}

/// Seconds of some frames.
fn seconds(pictures: u32) -> f64 {
    (FRAME * pictures).as_secs_f64()
}

fn segments(session: &Session, released: u32) -> String {
    let script = &session.script;
    let mut text = head(&format!("HOLD-BACK={}", seconds(script.backlog)));
    for segment in 0..released {
        let gap = if script.of_piece(segment).next().is_none() { "#EXT-X-GAP\n" } else { "" };
        let date = date(session, segment);
        // Writing to a string does not fail.
        let _ = write!(text, "{gap}{date}#EXTINF:{},\ns{segment}.m4s\n", seconds(SEGMENT));
    }
    if released == script.pieces() {
        text += "#EXT-X-ENDLIST\n";
    }
    text
}

fn parts(session: &Session, released: u32, has_ended: bool) -> String {
    let script = &session.script;
    let hold_back = seconds(script.backlog);
    let mut text = head(&format!("CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK={hold_back}"));
    let each = SEGMENT / PART;
    let _ = writeln!(text, "#EXT-X-PART-INF:PART-TARGET={}", seconds(PART));
    for part in 0..released {
        let is_gap = script.of_piece(part).next().is_none();
        let gap = if is_gap { ",GAP=YES" } else { "" };
        if part.is_multiple_of(each) {
            text += &date(session, part / each);
        }
        let duration = seconds(PART);
        let _ = writeln!(
            text,
            "#EXT-X-PART:DURATION={duration},URI=\"p{part}.m4s\",INDEPENDENT=YES{gap}"
        );
        if (part + 1).is_multiple_of(each) {
            let gap = if is_gap { "#EXT-X-GAP\n" } else { "" };
            let segment = part / each;
            let _ = write!(text, "{gap}#EXTINF:{},\ns{segment}.m4s\n", seconds(SEGMENT));
        }
    }
    if has_ended {
        text += "#EXT-X-ENDLIST\n";
    } else if released < script.pieces() {
        let _ = writeln!(text, "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"p{released}.m4s\"");
    }
    text
}
