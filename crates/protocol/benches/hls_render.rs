//! Cost of rendering a playlist: `cargo bench -p protocol --bench hls_render`

use criterion::{Criterion, criterion_group, criterion_main};
use protocol::hls::{
    LowLatency, MediaPlaylist, OpenSegment, Part, RenditionReport, Request, Rounding, Segment, Skip,
};

/// A minute of two-second segments in parts of 200 ms, and three more parts in the open segment.
fn live() -> MediaPlaylist {
    let parts = |msn: u64, count: u64| {
        (0..count)
            .map(|n| Part {
                uri: format!("{msn}.{n}.m4s"),
                duration: 18_000,
                independent: n == 0,
                gap: false,
            })
            .collect::<Vec<_>>()
    };
    MediaPlaylist {
        timescale: 90_000,
        target_duration: 2,
        media_sequence: 1_000_000,
        discontinuity_sequence: 1,
        kind: None,
        independent_segments: false,
        i_frames_only: false,
        low_latency: Some(LowLatency { part_target: 18_000, part_hold_back: 54_000 }),
        blocking_reload: true,
        delta_updates: true,
        date_rounding: Rounding::Down,
        segments: (1_000_000..1_000_030)
            .map(|msn| Segment {
                uri: format!("{msn}.m4s"),
                duration: 180_000,
                map: Some("init.0.mp4".into()),
                date: Some(1_795_291_260_250_000),
                discontinuity: false,
                gap: false,
                parts: parts(msn, 10),
            })
            .collect(),
        open: Some(OpenSegment { parts: parts(1_000_030, 3), ..OpenSegment::default() }),
        preload_hint: Some("1000030.3.m4s".into()),
        rendition_reports: vec![RenditionReport {
            uri: "../a0/media.m3u8".into(),
            last_msn: 1_000_030,
            last_part: Some(2),
        }],
        ended: false,
    }
}

fn render(c: &mut Criterion) {
    let playlist = live();
    let mut group = c.benchmark_group("hls_render");
    let mut out = String::new();
    for (name, skip) in [("whole", Skip::No), ("delta update", Skip::Yes)] {
        group.bench_function(name, |b| {
            b.iter(|| {
                out.clear();
                playlist.render_to(&mut out, skip);
                out.len()
            });
        });
    }
    let state = playlist.state();
    group.bench_function("parse and decide a request", |b| {
        b.iter(|| {
            Request::parse("_HLS_msn=1000030&_HLS_part=3&_HLS_skip=YES").map(|r| r.decide(&state))
        });
    });
    group.finish();
}

criterion_group!(benches, render);
criterion_main!(benches);
