//! DASH manifests, ISO/IEC 23009-1, with the additions of the DASH-IF's low-latency guidelines.
//!
//! A server fills in a [`Manifest`] and renders it, once per state of the stream. Segments are
//! addressed by number or time and listed in a timeline, so that players need no clock to know which
//! segments exist. Each representation's [`SegmentTemplate`] may list the segment that is still
//! being made. Subtitles are whole WebVTT files.

mod model;
mod write;

pub use model::{
    AdaptationSet, Address, Audio, Content, Live, Manifest, Period, PlaybackRate, Presentation,
    ProducerReferenceTime, Representation, Role, Segment, SegmentTemplate, ServiceDescription,
    UtcTiming, Video,
};

/// `@profiles`: segments addressed by template, ISO/IEC 23009-1 8.4.
pub const PROFILE_LIVE: &str = "urn:mpeg:dash:profile:isoff-live:2011";
/// `@profiles`: segments are CMAF, ISO/IEC 23009-1 8.12.
pub const PROFILE_CMAF: &str = "urn:mpeg:dash:profile:cmaf:2019";
/// `@profiles`: DASH-IF, low-latency modes for DASH.
pub const PROFILE_LOW_LATENCY: &str = "http://www.dashif.org/guidelines/low-latency-live-v5";

/// [`UtcTiming::scheme`]: `value` is a URL whose body is an xs:dateTime.
pub const UTC_HTTP_XSDATE: &str = "urn:mpeg:dash:utc:http-xsdate:2014";
/// [`UtcTiming::scheme`]: `value` is a URL whose body is an ISO 8601 time.
pub const UTC_HTTP_ISO: &str = "urn:mpeg:dash:utc:http-iso:2014";
