//! Playlists that tests begin with.

use protocol::hls::{
    LowLatency, MediaPlaylist, OpenSegment, Part, RenditionReport, Rounding, Segment,
};

fn part(uri: &str, duration: u64, independent: bool) -> Part {
    Part { uri: uri.into(), duration, independent, gap: false }
}

/// A low-latency playlist: segments of two seconds in parts of half a second, at 90 kHz.
pub(crate) fn live(segments: u64) -> MediaPlaylist {
    let segment = |msn: u64| Segment {
        uri: format!("{msn}.m4s"),
        duration: 180_000,
        map: Some("init.0.mp4".into()),
        date: Some(1_795_291_260_250_000 + msn * 2_000_000),
        discontinuity: false,
        gap: false,
        parts: (0..4).map(|n| part(&format!("{msn}.{n}.m4s"), 45_000, n == 0)).collect(),
    };
    MediaPlaylist {
        timescale: 90_000,
        target_duration: 2,
        media_sequence: 10,
        discontinuity_sequence: 0,
        kind: None,
        independent_segments: false,
        i_frames_only: false,
        low_latency: Some(LowLatency { part_target: 45_000, part_hold_back: 135_000 }),
        blocking_reload: true,
        delta_updates: true,
        date_rounding: Rounding::Down,
        segments: (10..10 + segments).map(segment).collect(),
        open: Some(OpenSegment {
            map: Some("init.0.mp4".into()),
            date: Some(1_795_291_260_250_000 + (10 + segments) * 2_000_000),
            discontinuity: false,
            parts: vec![part(&format!("{}.0.m4s", 10 + segments), 45_000, true)],
        }),
        preload_hint: Some(format!("{}.1.m4s", 10 + segments)),
        rendition_reports: vec![RenditionReport {
            uri: "../a0/media.m3u8".into(),
            last_msn: 10 + segments,
            last_part: Some(0),
        }],
        ended: false,
    }
}
