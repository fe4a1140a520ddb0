//! The manifest of a title, ISO/IEC 23009-1.

use std::time::Duration;

use media::Kind;
use protocol::dash::{
    self, AdaptationSet, Address, Audio, Content, Manifest, Period, Presentation, Representation,
    Role, Segment, SegmentTemplate, Video,
};
use vod::{Text, Title, Track};

/// `manifest.mpd`
pub(super) fn manifest(title: &Title) -> String {
    let longest = title.tracks.iter().map(longest).max().unwrap_or(0);
    let mut sets = Sets::default();
    let of_kind = |kind| title.tracks.iter().filter(move |track| track.media.kind() == kind);
    // Players switch within an adaptation set, but not between codecs.
    let mut codecs: Vec<String> = Vec::new();
    let renditions = || of_kind(Kind::Video).filter(|track| !track.alternate);
    let alternates = || of_kind(Kind::Video).filter(|track| track.alternate);
    for codec in renditions().map(family) {
        if !codecs.contains(&codec) {
            codecs.push(codec);
        }
    }
    for codec in &codecs {
        let renditions = renditions().filter(|track| family(track) == *codec);
        let renditions = renditions.map(|track| representation(title, track)).collect();
        let role = (codecs.len() > 1 || alternates().next().is_some()).then_some(
            match codec == &codecs[0] {
                true => Role::Main,
                false => Role::Alternate,
            },
        );
        sets.push(Content::Video, role, renditions).aligned = title.aligned;
    }
    for track in alternates() {
        let set =
            sets.push(Content::Video, Some(Role::Alternate), vec![representation(title, track)]);
        set.label = Some(track.label.clone());
    }
    let default = of_kind(Kind::Audio).position(|track| track.default).unwrap_or(0);
    for (index, track) in of_kind(Kind::Audio).enumerate() {
        let role = if index == default { Role::Main } else { Role::Alternate };
        let set = sets.push(Content::Audio, Some(role), vec![representation(title, track)]);
        set.language.clone_from(&track.language);
        set.label = Some(track.label.clone());
    }
    for text in &title.texts {
        let set = sets.push(Content::Text, Some(Role::Subtitle), vec![file(title, text)]);
        set.language.clone_from(&text.language);
        set.label = Some(text.label.clone());
    }
    Manifest {
        presentation: Presentation::Static { duration: millis(title.duration) },
        profiles: vec![dash::PROFILE_LIVE.to_owned(), dash::PROFILE_CMAF.to_owned()],
        // The bandwidth of each representation is that of its largest segments.
        min_buffer_time: longest,
        max_segment_duration: Some(longest),
        service_description: None,
        periods: vec![Period {
            id: "0".to_owned(),
            start: 0,
            duration: None,
            adaptation_sets: sets.0,
        }],
        utc_timing: Vec::new(),
    }
    .render()
}

#[derive(Default)]
struct Sets(Vec<AdaptationSet>);

impl Sets {
    fn push(
        &mut self,
        content: Content,
        role: Option<Role>,
        representations: Vec<Representation>,
    ) -> &mut AdaptationSet {
        let id = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0.push_mut(AdaptationSet {
            id,
            content,
            language: None,
            label: None,
            role,
            producer_reference_time: None,
            aligned: false,
            starts_with_sap: content != Content::Text,
            representations,
        })
    }
}

/// The codec's name without parameters: `avc1`.
fn family(track: &Track) -> String {
    let codec = track.media.codec.rfc6381();
    codec.split('.').next().unwrap_or_default().to_owned()
}

fn representation(title: &Title, track: &Track) -> Representation {
    let (codec, timescale, version) = (&track.media.codec, track.media.timescale, title.version);
    let segments = track.segments().map(|segment| Segment {
        // Stream times are not negative, and a duration of 0 is not valid.
        start: segment.start.unsigned_abs(),
        duration: segment.duration.max(1),
    });
    Representation {
        id: track.name.clone(),
        bandwidth: track.bandwidth.peak.max(1),
        codecs: codec.rfc6381().into_owned(),
        video: track.resolution().map(|(width, height)| Video {
            width,
            height,
            frame_rate: track.frame_rate.map(|rate| (rate.frames, rate.seconds)),
        }),
        audio: codec.audio().map(|(sample_rate, channels)| Audio { sample_rate, channels }),
        address: Address::Template(SegmentTemplate {
            timescale,
            initialization: format!("$RepresentationID$/init.mp4?v={version}"),
            media: format!("$RepresentationID$/$Number$.m4s?v={version}"),
            start_number: Some(0),
            presentation_time_offset: title.shift.in_timescale(timescale).unsigned_abs(),
            availability_time_offset: None,
            segments: segments.collect(),
        }),
    }
}

fn file(title: &Title, text: &Text) -> Representation {
    Representation {
        id: text.name.clone(),
        bandwidth: bits_per_second(text.all().len(), title.duration),
        codecs: String::new(),
        video: None,
        audio: None,
        address: Address::File(format!("{}/all.vtt?v={}", text.name, title.version)),
    }
}

fn bits_per_second(bytes: usize, duration: Duration) -> u64 {
    let bits = 8 * bytes as u64;
    (bits.saturating_mul(1000) / millis(duration).max(1)).max(1)
}

/// Duration of a track's longest segment, in milliseconds.
fn longest(track: &Track) -> u64 {
    let ticks = track.segments().map(|segment| segment.duration).max().unwrap_or(0);
    ticks.saturating_mul(1000).div_ceil(u64::from(track.media.timescale.max(1)))
}

fn millis(duration: Duration) -> u64 {
    // Rounds up: a player would not play what rounding down cuts off.
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}
