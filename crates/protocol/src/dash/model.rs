/// A Media Presentation Description, ISO/IEC 23009-1 5.3.1. Durations are in milliseconds, points
/// in time in milliseconds since 1970 UTC, where nothing else is said.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Live or complete.
    pub presentation: Presentation,
    /// `@profiles`, such as [`PROFILE_LIVE`](super::PROFILE_LIVE).
    pub profiles: Vec<String>,
    /// `@minBufferTime`: with so much buffered, each representation's `bandwidth` suffices.
    pub min_buffer_time: u64,
    /// `@maxSegmentDuration`: no segment is longer.
    pub max_segment_duration: Option<u64>,
    /// How far behind live to play.
    pub service_description: Option<ServiceDescription>,
    /// One per discontinuity, in order; at least one.
    pub periods: Vec<Period>,
    /// Where players get the time from, in order of preference.
    pub utc_timing: Vec<UtcTiming>,
}

/// `@type` and what depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presentation {
    /// `static`: everything is there.
    Static {
        /// `@mediaPresentationDuration`.
        duration: u64,
    },
    /// `dynamic`: segments come and go.
    Dynamic(Live),
}

/// The times of a live presentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live {
    /// `@availabilityStartTime`: the instant that Period starts are counted from.
    pub availability_start_time: u64,
    /// `@publishTime`: when this manifest was made.
    pub publish_time: u64,
    /// `@minimumUpdatePeriod`: a player need not ask for a new manifest sooner. `None`: this is
    /// the last one.
    pub minimum_update_period: Option<u64>,
    /// `@timeShiftBufferDepth`: how far back segments can be had. `None`: to the start.
    pub time_shift_buffer_depth: Option<u64>,
    /// `@suggestedPresentationDelay`: how far behind live players without low latency play.
    pub suggested_presentation_delay: Option<u64>,
}

/// `ServiceDescription`, ISO/IEC 23009-1 annex K.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServiceDescription {
    /// `Latency@target`.
    pub latency_target: u64,
    /// `Latency@min`.
    pub latency_min: Option<u64>,
    /// `Latency@max`: beyond it, seek rather than catch up.
    pub latency_max: Option<u64>,
    /// `PlaybackRate`: how players may catch up.
    pub playback_rate: Option<PlaybackRate>,
}

/// Playback speeds in percent of normal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaybackRate {
    /// The slowest.
    pub min: u32,
    /// The fastest.
    pub max: u32,
}

/// `UTCTiming`, ISO/IEC 23009-1 5.8.4.11.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UtcTiming {
    /// `@schemeIdUri`, such as [`UTC_HTTP_XSDATE`](super::UTC_HTTP_XSDATE).
    pub scheme: String,
    /// `@value`: as the scheme has it.
    pub value: String,
}

/// `Period`, ISO/IEC 23009-1 5.3.2.
#[derive(Debug, Clone, PartialEq)]
pub struct Period {
    /// `@id`: unique, and kept while the stream lasts.
    pub id: String,
    /// `@start`: counted from `@availabilityStartTime`, or from the presentation's start.
    pub start: u64,
    /// `@duration`, where the next Period's start does not tell.
    pub duration: Option<u64>,
    /// Its tracks.
    pub adaptation_sets: Vec<AdaptationSet>,
}

/// `AdaptationSet`, ISO/IEC 23009-1 5.3.3: renditions that a player may switch between.
///
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptationSet {
    /// `@id`, unique within the Period.
    pub id: u32,
    /// `@contentType`.
    pub content: Content,
    /// `@lang`, an RFC 5646 tag.
    pub language: Option<String>,
    /// `Label`: a name for viewers to choose by.
    pub label: Option<String>,
    /// `Role`: what it is for among those of its content.
    pub role: Option<Role>,
    /// Which wall-clock time belongs to which media time.
    pub producer_reference_time: Option<ProducerReferenceTime>,
    /// Whether several renditions are cut at the same times. `@segmentAlignment` is written where
    /// they are, and where there is one: it holds then.
    pub aligned: bool,
    /// `@startWithSAP="1"`: every segment starts with a sample that decoding can start at.
    pub starts_with_sap: bool,
    /// The renditions, in any order.
    pub representations: Vec<Representation>,
}

/// `@contentType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Frames, in `video/mp4`.
    Video,
    /// Audio, in `audio/mp4`.
    Audio,
    /// Subtitles, in `text/vtt`: WebVTT files of their own.
    Text,
}

/// `Role@value` of the scheme `urn:mpeg:dash:role:2011`, ISO/IEC 23009-1 5.8.5.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Played where the viewer has no other wish.
    Main,
    /// To choose instead of the main one.
    Alternate,
    /// What is said, for those who do not understand or hear it.
    Subtitle,
}

/// `ProducerReferenceTime`, ISO/IEC 23009-1 5.12, of type `captured`, also in the segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerReferenceTime {
    /// `@id`.
    pub id: u32,
    /// `@wallClockTime`.
    pub wall_clock_time: u64,
    /// `@presentationTime`: media time in ticks of the representations' timescale.
    pub presentation_time: u64,
}

/// `Representation`, ISO/IEC 23009-1 5.3.5.
#[derive(Debug, Clone, PartialEq)]
pub struct Representation {
    /// `@id`, unique within the Period; stands for `$RepresentationID$`, so without slashes,
    /// spaces or quotes.
    pub id: String,
    /// `@bandwidth` in bits per second.
    pub bandwidth: u64,
    /// `@codecs`, RFC 6381; empty, and not written, where the media type says it all.
    pub codecs: String,
    /// Of video.
    pub video: Option<Video>,
    /// Of audio.
    pub audio: Option<Audio>,
    /// Where its bytes are.
    pub address: Address,
}

/// Where a representation's bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// In segments; without any the representation is not written. Where the templates of all
    /// representations of a set are alike, one is written for the set.
    Template(SegmentTemplate),
    /// In one file: `BaseURL`, relative to the manifest.
    File(String),
}

/// What a video representation looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Video {
    /// `@width` in pixels.
    pub width: u32,
    /// `@height` in pixels.
    pub height: u32,
    /// `@frameRate`: frames per second as numerator and denominator.
    pub frame_rate: Option<(u32, u32)>,
}

/// What an audio representation audio like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audio {
    /// `@audioSamplingRate` in Hz.
    pub sample_rate: u32,
    /// Channels.
    pub channels: u16,
}

/// `SegmentTemplate`, ISO/IEC 23009-1 5.3.9.4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentTemplate {
    /// `@timescale`: ticks in a second.
    pub timescale: u32,
    /// `@initialization`: URL of the header, relative to the manifest.
    pub initialization: String,
    /// `@media`: URL of a segment, with `$Number$` or `$Time$` in it.
    pub media: String,
    /// `@startNumber`: the first listed segment's, where segments are named by number.
    pub start_number: Option<u64>,
    /// `@presentationTimeOffset`: the media time, in ticks, of the Period's start.
    pub presentation_time_offset: u64,
    /// `@availabilityTimeOffset` in milliseconds: how long before its end a segment can be asked
    /// for. Present where segments can be had while they are made; `@availabilityTimeComplete`
    /// is then false.
    pub availability_time_offset: Option<u64>,
    /// `SegmentTimeline`, in order; the last may be the one being made, with the duration it is
    /// expected to have.
    pub segments: Vec<Segment>,
}

/// A segment's place on its track's timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its first sample's presentation time in ticks.
    pub start: u64,
    /// Its duration in ticks; not 0.
    pub duration: u64,
}
