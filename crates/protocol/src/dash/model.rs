/// A Media Presentation Description, ISO/IEC 23009-1 5.3.1. Unless noted otherwise, durations are
/// in milliseconds and points in time in milliseconds since 1970 UTC.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Live or complete.
    pub presentation: Presentation,
    /// `@profiles`, such as [`PROFILE_LIVE`](super::PROFILE_LIVE).
    pub profiles: Vec<String>,
    /// `@minBufferTime`: a player that has buffered this much can play each representation at its
    /// `bandwidth`.
    pub min_buffer_time: u64,
    /// `@maxSegmentDuration`: no segment is longer.
    pub max_segment_duration: Option<u64>,
    /// How far behind live players should play.
    pub service_description: Option<ServiceDescription>,
    /// One period per discontinuity, plus one; in order, at least one.
    pub periods: Vec<Period>,
    /// Sources of the current time for players, in order of preference.
    pub utc_timing: Vec<UtcTiming>,
}

/// `@type`, and the fields that depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presentation {
    /// `static`: all segments exist.
    Static {
        /// `@mediaPresentationDuration`.
        duration: u64,
    },
    /// `dynamic`: segments appear and disappear.
    Dynamic(Live),
}

/// The times of a live presentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live {
    /// `@availabilityStartTime`: the instant from which the starts of Periods count.
    pub availability_start_time: u64,
    /// `@publishTime`: when this manifest was made, in microseconds since 1970.
    pub publish_time: u64,
    /// `@minimumUpdatePeriod`: players need not request a new manifest sooner. `None` means that
    /// this is the last manifest.
    pub minimum_update_period: Option<u64>,
    /// `@timeShiftBufferDepth`: how far back segments are available. `None` means to the start.
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
    /// `Latency@max`: above it, players should seek rather than catch up.
    pub latency_max: Option<u64>,
    /// `PlaybackRate`: the speeds at which players may catch up.
    pub playback_rate: Option<PlaybackRate>,
}

/// Playback speeds in percent of normal speed.
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
    /// `@value`: its meaning depends on the scheme.
    pub value: String,
}

/// `Period`, ISO/IEC 23009-1 5.3.2.
#[derive(Debug, Clone, PartialEq)]
pub struct Period {
    /// `@id`: unique, and constant while the stream lasts.
    pub id: String,
    /// `@start`: from `@availabilityStartTime`, or from the start of a static presentation.
    pub start: u64,
    /// `@duration`, where the start of the next Period does not imply it.
    pub duration: Option<u64>,
    /// Its tracks.
    pub adaptation_sets: Vec<AdaptationSet>,
}

/// `AdaptationSet`, ISO/IEC 23009-1 5.3.3: renditions that a player may switch between.
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptationSet {
    /// `@id`, unique within the Period.
    pub id: u32,
    /// `@contentType`.
    pub content: Content,
    /// `@lang`, an RFC 5646 tag.
    pub language: Option<String>,
    /// `Label`: a name that is shown to viewers for choosing.
    pub label: Option<String>,
    /// `Role`: the purpose of this set among the sets with the same content.
    pub role: Option<Role>,
    /// Relates a wall-clock time to a media time.
    pub producer_reference_time: Option<ProducerReferenceTime>,
    /// Whether several renditions are cut at the same times. `@segmentAlignment` is written if they
    /// are, and always for a single rendition.
    pub aligned: bool,
    /// `@startWithSAP="1"`: decoding can start at the first sample of every segment.
    pub starts_with_sap: bool,
    /// The renditions, in any order.
    pub representations: Vec<Representation>,
}

/// `@contentType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Video, in `video/mp4`.
    Video,
    /// Audio, in `audio/mp4`.
    Audio,
    /// Subtitles, in `text/vtt`: separate WebVTT files.
    Text,
}

/// `Role@value` of the scheme `urn:mpeg:dash:role:2011`, ISO/IEC 23009-1 5.8.5.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Played unless the viewer chooses otherwise.
    Main,
    /// An alternative to the main one.
    Alternate,
    /// The dialogue as text, for viewers who do not understand or hear it.
    Subtitle,
}

/// `ProducerReferenceTime`, ISO/IEC 23009-1 5.12, of type `captured`. The segments contain it as
/// well.
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
    /// `@id`, unique within the Period. It replaces `$RepresentationID$` in URLs, so it has no
    /// slashes, spaces or quotes.
    pub id: String,
    /// `@bandwidth` in bits per second.
    pub bandwidth: u64,
    /// `@codecs`, RFC 6381. Empty, and not written, where the media type alone describes the
    /// content.
    pub codecs: String,
    /// Properties of video.
    pub video: Option<Video>,
    /// Properties of audio.
    pub audio: Option<Audio>,
    /// Where its bytes are.
    pub address: Address,
}

/// Location of a representation's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// In segments. A representation without segments is not written. Where the templates of all
    /// representations of a set are equal, one is written for the whole set.
    Template(SegmentTemplate),
    /// In one file: `BaseURL`, relative to the manifest.
    File(String),
}

/// Properties of a video representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Video {
    /// `@width` in pixels.
    pub width: u32,
    /// `@height` in pixels.
    pub height: u32,
    /// `@frameRate`: frames per second as numerator and denominator.
    pub frame_rate: Option<(u32, u32)>,
}

/// Properties of an audio representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audio {
    /// `@audioSamplingRate` in Hz.
    pub sample_rate: u32,
    /// Number of channels.
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
    /// `@startNumber`: number of the first listed segment, where segment URLs have numbers.
    pub start_number: Option<u64>,
    /// `@presentationTimeOffset`: the media time, in ticks, of the Period's start.
    pub presentation_time_offset: u64,
    /// `@availabilityTimeOffset` in milliseconds: how long before its end a segment can be
    /// requested. Present where segments are available while they are made;
    /// `@availabilityTimeComplete` is then false.
    pub availability_time_offset: Option<u64>,
    /// `SegmentTimeline`, in order. The last segment may be the one that is being made, with its
    /// expected duration.
    pub segments: Vec<Segment>,
}

/// Position of a segment on its track's timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its first sample's presentation time in ticks.
    pub start: u64,
    /// Its duration in ticks; not 0.
    pub duration: u64,
}
