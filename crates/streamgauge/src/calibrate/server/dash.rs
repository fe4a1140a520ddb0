//! The manifest (ISO/IEC 23009-1): segments are listed by time, and sent while they are being made.

use std::fmt::Write;

use protocol::utc::UtcMicros;

use super::session::Session;
use crate::calibrate::player::{PART, SEGMENT};
use crate::calibrate::script::micros;
use crate::calibrate::stream::{FRAME, SIZE, TIMESCALE};

/// Writes the manifest as it is now.
pub(super) fn manifest(session: &Session) -> String {
    let script = &session.script;
    let released = session.released();
    let each = SEGMENT / PART;
    let all = script.pieces() / each;
    let segment = FRAME * SEGMENT;
    let is_live = script.is_live() && released < script.pieces();
    // By the clock of the manifest a frame is there when it comes. So a player does not subtract the time for
    // which the frame is held back.
    let past = -i64::from(script.backlog) * micros(FRAME);
    let start = UtcMicros(session.unix(past).unsigned_abs());
    let duration = (FRAME * script.pictures).as_secs_f64();
    let kind = if is_live {
        format!("type=\"dynamic\" availabilityStartTime=\"{start}\" minimumUpdatePeriod=\"PT0S\"")
    } else {
        format!("type=\"static\" mediaPresentationDuration=\"PT{duration}S\"")
    };
    // A player of the live stream is to begin with the first frame.
    let target = (FRAME * (script.backlog - 1)).as_millis();
    let description =
        format!("<ServiceDescription><Latency target=\"{target}\"/></ServiceDescription>");
    // A segment is there when its first chunk is.
    let ahead = (segment - FRAME * PART).as_secs_f64();
    let offset = if is_live {
        format!(" availabilityTimeOffset=\"{ahead:.3}\" availabilityTimeComplete=\"false\"")
    } else {
        String::new()
    };
    let ticks = segment.as_millis();
    let mut timeline = String::new();
    // The segment that is being made is listed, too.
    for number in 0..(released / each + 1).min(all) {
        let is_gap =
            (number * each..(number + 1) * each).all(|p| script.of_piece(p).next().is_none());
        if !is_gap {
            let start = u128::from(number) * ticks;
            // Writing to a string does not fail.
            let _ = write!(timeline, "<S t=\"{start}\" d=\"{ticks}\"/>");
        }
    }
    let bandwidth = SIZE as u128 * 8 * 1000 / FRAME.as_millis();
    let codec = session.stream.codec();
    format!(
        "<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" profiles=\"urn:mpeg:dash:profile:isoff-live:2011\" \
         minBufferTime=\"PT1S\" {kind}>{description}<Period start=\"PT0S\"><AdaptationSet contentType=\"video\" \
         mimeType=\"video/mp4\" codecs=\"{codec}\"><SegmentTemplate timescale=\"{TIMESCALE}\" \
         initialization=\"init.mp4\" media=\"t$Time$.m4s\"{offset}><SegmentTimeline>{timeline}\
         </SegmentTimeline></SegmentTemplate><Representation id=\"v\" bandwidth=\"{bandwidth}\"/>\
         </AdaptationSet></Period></MPD>"
    )
}
