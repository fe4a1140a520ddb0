//! Cost of rendering a manifest: `cargo bench -p protocol --bench dash_render`

use criterion::{Criterion, criterion_group, criterion_main};
use protocol::dash::{
    self, AdaptationSet, Address, Audio, Content, Live, Manifest, Period, Presentation,
    ProducerReferenceTime, Representation, Role, Segment, SegmentTemplate, UtcTiming, Video,
};

/// Two video renditions and one audio rendition, with a minute of two-second segments. The
/// durations of the audio segments alternate, so each needs its own `S`.
fn live() -> Manifest {
    let template = |timescale: u32, durations: [u64; 2]| {
        let mut start = 1_000_000 * durations[0];
        SegmentTemplate {
            timescale,
            initialization: "$RepresentationID$/init.0.mp4".into(),
            media: "$RepresentationID$/$Number$.m4s".into(),
            start_number: Some(1_000_000),
            presentation_time_offset: 0,
            availability_time_offset: Some(1800),
            segments: (0..31)
                .map(|n| {
                    let segment = Segment { start, duration: durations[n % 2] };
                    start += segment.duration;
                    segment
                })
                .collect(),
        }
    };
    let video = |id: &str, bandwidth, height| Representation {
        id: id.into(),
        bandwidth,
        codecs: "avc1.64001f".into(),
        video: Some(Video { width: height * 16 / 9, height, frame_rate: Some((30_000, 1001)) }),
        audio: None,
        address: Address::Template(template(90_000, [180_000, 180_000])),
    };
    let audio = Representation {
        id: "a0".into(),
        bandwidth: 128_000,
        codecs: "mp4a.40.2".into(),
        video: None,
        audio: Some(Audio { sample_rate: 48_000, channels: 2 }),
        address: Address::Template(template(48_000, [96_256, 95_232])),
    };
    let set = |id, content, representations| AdaptationSet {
        id,
        content,
        language: None,
        label: None,
        role: Some(Role::Main),
        producer_reference_time: Some(ProducerReferenceTime {
            id,
            wall_clock_time: 1_795_291_260_250,
            presentation_time: 0,
        }),
        aligned: false,
        starts_with_sap: true,
        representations,
    };
    Manifest {
        presentation: Presentation::Dynamic(Live {
            availability_start_time: 1_795_291_260_250,
            publish_time: 1_795_291_320_250_000,
            minimum_update_period: Some(0),
            time_shift_buffer_depth: Some(60_000),
            suggested_presentation_delay: Some(6000),
        }),
        profiles: vec![dash::PROFILE_LIVE.into(), dash::PROFILE_CMAF.into()],
        min_buffer_time: 2000,
        max_segment_duration: Some(2000),
        service_description: None,
        periods: vec![Period {
            id: "0".into(),
            start: 0,
            duration: None,
            adaptation_sets: vec![
                set(
                    0,
                    Content::Video,
                    vec![video("v0", 3_000_000, 720), video("v1", 1_000_000, 360)],
                ),
                set(1, Content::Audio, vec![audio]),
            ],
        }],
        utc_timing: vec![UtcTiming { scheme: dash::UTC_HTTP_XSDATE.into(), value: "/time".into() }],
    }
}

fn render(c: &mut Criterion) {
    let manifest = live();
    c.bench_function("dash_render", |b| b.iter(|| manifest.render().len()));
}

criterion_group!(benches, render);
criterion_main!(benches);
