//! Writes elements and attributes. The schema of ISO/IEC 23009-1 fixes the order of elements:
//! [`Element`]'s methods write them in the order in which they are called.

use std::fmt::{self, Display, Write};

use super::model::{
    AdaptationSet, Address, Audio, Content, Live, Manifest, Period, Presentation,
    ProducerReferenceTime, Representation, Role, SegmentTemplate, ServiceDescription, UtcTiming,
    Video,
};
use crate::utc::{Utc, UtcMicros};

impl Manifest {
    /// The manifest's text.
    pub fn render(&self) -> String {
        let mut out = String::with_capacity(4096);
        self.write(&mut out).expect("a String takes every write");
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        out.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let mut mpd = Element::open(out, "MPD")?;
        mpd.attribute("xmlns", "urn:mpeg:dash:schema:mpd:2011")?;
        mpd.attribute("profiles", self.profiles.join(","))?;
        match &self.presentation {
            Presentation::Static { duration } => {
                mpd.attribute("type", "static")?;
                mpd.attribute("mediaPresentationDuration", Duration(*duration))?;
            }
            Presentation::Dynamic(live) => {
                mpd.attribute("type", "dynamic")?;
                live.write(&mut mpd)?;
            }
        }
        mpd.attribute("minBufferTime", Duration(self.min_buffer_time))?;
        mpd.optional("maxSegmentDuration", self.max_segment_duration.map(Duration))?;
        if let Some(description) = &self.service_description {
            mpd.child("ServiceDescription", |element| description.write(element))?;
        }
        for period in &self.periods {
            mpd.child("Period", |element| period.write(element, &self.utc_timing))?;
        }
        for timing in &self.utc_timing {
            mpd.child("UTCTiming", |element| timing.write(element))?;
        }
        mpd.close()?;
        out.push('\n');
        Ok(())
    }
}

impl Live {
    fn write(&self, mpd: &mut Element<'_>) -> fmt::Result {
        mpd.attribute("availabilityStartTime", Utc(self.availability_start_time))?;
        mpd.attribute("publishTime", UtcMicros(self.publish_time))?;
        mpd.optional("minimumUpdatePeriod", self.minimum_update_period.map(Duration))?;
        mpd.optional("timeShiftBufferDepth", self.time_shift_buffer_depth.map(Duration))?;
        mpd.optional("suggestedPresentationDelay", self.suggested_presentation_delay.map(Duration))
    }
}

impl ServiceDescription {
    fn write(&self, element: &mut Element<'_>) -> fmt::Result {
        element.attribute("id", 0)?;
        element.child("Latency", |latency| {
            latency.optional("min", self.latency_min)?;
            latency.optional("max", self.latency_max)?;
            latency.attribute("target", self.latency_target)
        })?;
        if let Some(rate) = &self.playback_rate {
            element.child("PlaybackRate", |element| {
                element.attribute("min", Hundredths(rate.min))?;
                element.attribute("max", Hundredths(rate.max))
            })?;
        }
        Ok(())
    }
}

impl UtcTiming {
    fn write(&self, element: &mut Element<'_>) -> fmt::Result {
        element.attribute("schemeIdUri", &self.scheme)?;
        element.attribute("value", &self.value)
    }
}

impl Period {
    fn write(&self, element: &mut Element<'_>, utc_timing: &[UtcTiming]) -> fmt::Result {
        element.attribute("id", &self.id)?;
        element.attribute("start", Duration(self.start))?;
        element.optional("duration", self.duration.map(Duration))?;
        // Neither an empty set nor an empty timeline is valid.
        for set in self.adaptation_sets.iter().filter(|set| set.listed().next().is_some()) {
            element.child("AdaptationSet", |element| set.write(element, utc_timing))?;
        }
        Ok(())
    }
}

impl AdaptationSet {
    fn write(&self, element: &mut Element<'_>, utc_timing: &[UtcTiming]) -> fmt::Result {
        let (content, mime) = match self.content {
            Content::Video => ("video", "video/mp4"),
            Content::Audio => ("audio", "audio/mp4"),
            Content::Text => ("text", "text/vtt"),
        };
        element.attribute("id", self.id)?;
        element.attribute("contentType", content)?;
        element.optional("lang", self.language.as_ref())?;
        element.attribute("mimeType", mime)?;
        let aligned = self.aligned || self.listed().nth(1).is_none();
        element.optional("segmentAlignment", aligned.then_some(true))?;
        element.optional("startWithSAP", self.starts_with_sap.then_some(1))?;
        let sizes = || self.listed().filter_map(|r| r.video);
        element.optional("maxWidth", sizes().map(|video| video.width).max())?;
        element.optional("maxHeight", sizes().map(|video| video.height).max())?;
        if let Some(label) = &self.label {
            element.child("Label", |element| element.text(label))?;
        }
        if let Some(reference) = &self.producer_reference_time {
            element.child("ProducerReferenceTime", |element| {
                reference.write(element, utc_timing.first())
            })?;
        }
        if let Some(role) = self.role {
            element.child("Role", |element| {
                element.attribute("schemeIdUri", "urn:mpeg:dash:role:2011")?;
                element.attribute("value", role.value())
            })?;
        }
        let common = self.common_template();
        if let Some(template) = common {
            element.child("SegmentTemplate", |element| template.write(element))?;
        }
        for representation in self.listed() {
            element.child("Representation", |element| {
                representation.write(element)?;
                match &representation.address {
                    Address::Template(_) if common.is_some() => Ok(()),
                    Address::Template(template) => {
                        element.child("SegmentTemplate", |element| template.write(element))
                    }
                    Address::File(url) => element.child("BaseURL", |element| element.text(url)),
                }
            })?;
        }
        Ok(())
    }

    /// The representations that are written: those with segments or a file.
    fn listed(&self) -> impl Iterator<Item = &Representation> {
        self.representations.iter().filter(|representation| match &representation.address {
            Address::Template(template) => !template.segments.is_empty(),
            Address::File(_) => true,
        })
    }

    /// The segment template of all representations, where it is the same for all.
    fn common_template(&self) -> Option<&SegmentTemplate> {
        let mut templates = self.listed().map(|representation| match &representation.address {
            Address::Template(template) => Some(template),
            Address::File(_) => None,
        });
        let first = templates.next()??;
        templates.all(|other| other == Some(first)).then_some(first)
    }
}

impl Role {
    fn value(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Alternate => "alternate",
            Self::Subtitle => "subtitle",
        }
    }
}

impl ProducerReferenceTime {
    fn write(&self, element: &mut Element<'_>, clock: Option<&UtcTiming>) -> fmt::Result {
        element.attribute("id", self.id)?;
        element.attribute("inband", true)?;
        element.attribute("type", "captured")?;
        element.attribute("wallClockTime", Utc(self.wall_clock_time))?;
        element.attribute("presentationTime", self.presentation_time)?;
        if let Some(clock) = clock {
            element.child("UTCTiming", |element| clock.write(element))?;
        }
        Ok(())
    }
}

impl Representation {
    fn write(&self, element: &mut Element<'_>) -> fmt::Result {
        element.attribute("id", &self.id)?;
        element.attribute("bandwidth", self.bandwidth)?;
        element.optional("codecs", Some(&self.codecs).filter(|codecs| !codecs.is_empty()))?;
        if let Some(video) = &self.video {
            video.write(element)?;
        }
        if let Some(audio) = &self.audio {
            audio.write(element)?;
        }
        Ok(())
    }
}

impl Video {
    fn write(&self, element: &mut Element<'_>) -> fmt::Result {
        element.attribute("width", self.width)?;
        element.attribute("height", self.height)?;
        match self.frame_rate {
            Some((frames, 1)) => element.attribute("frameRate", frames),
            Some((frames, seconds @ 2..)) => {
                element.attribute("frameRate", format_args!("{frames}/{seconds}"))
            }
            Some((_, 0)) | None => Ok(()),
        }
    }
}

impl Audio {
    fn write(&self, element: &mut Element<'_>) -> fmt::Result {
        element.attribute("audioSamplingRate", self.sample_rate)?;
        // ISO/IEC 23091-3: the usual layout for each number of channels.
        let layout = match self.channels {
            channels @ 1..=6 => channels,
            7 => 11,
            8 => 12,
            _ => return Ok(()),
        };
        element.child("AudioChannelConfiguration", |element| {
            element.attribute("schemeIdUri", "urn:mpeg:mpegB:cicp:ChannelConfiguration")?;
            element.attribute("value", layout)
        })
    }
}

impl SegmentTemplate {
    fn write(&self, element: &mut Element<'_>) -> fmt::Result {
        element.attribute("timescale", self.timescale)?;
        element.attribute("initialization", &self.initialization)?;
        element.attribute("media", &self.media)?;
        element.optional("startNumber", self.start_number)?;
        if self.presentation_time_offset > 0 {
            element.attribute("presentationTimeOffset", self.presentation_time_offset)?;
        }
        if let Some(offset) = self.availability_time_offset {
            element.attribute("availabilityTimeOffset", Thousandths(offset))?;
            element.attribute("availabilityTimeComplete", false)?;
        }
        element.child("SegmentTimeline", |timeline| self.write_timeline(timeline))
    }

    /// Writes runs of segments with equal durations as one `S`. Its time is written only where it
    /// is not the end of the segment before.
    fn write_timeline(&self, timeline: &mut Element<'_>) -> fmt::Result {
        let mut end = None;
        let mut rest = self.segments.as_slice();
        while let Some(first) = rest.first() {
            let mut next = first.start.saturating_add(first.duration);
            let repeats = rest[1..]
                .iter()
                .take_while(|segment| {
                    let follows = segment.start == next && segment.duration == first.duration;
                    next = if follows { next.saturating_add(first.duration) } else { next };
                    follows
                })
                .count();
            timeline.child("S", |s| {
                s.optional("t", Some(first.start).filter(|_| end != Some(first.start)))?;
                s.attribute("d", first.duration)?;
                s.optional("r", Some(repeats).filter(|&repeats| repeats > 0))
            })?;
            end = Some(next);
            rest = &rest[1 + repeats..];
        }
        Ok(())
    }
}

/// An element that is being written: first its attributes, then its content.
struct Element<'a> {
    out: &'a mut String,
    name: &'static str,
    open: bool,
}

impl<'a> Element<'a> {
    fn open(out: &'a mut String, name: &'static str) -> Result<Self, fmt::Error> {
        write!(out, "<{name}")?;
        Ok(Self { out, name, open: true })
    }

    fn attribute(&mut self, name: &str, value: impl Display) -> fmt::Result {
        write!(self.out, " {name}=\"")?;
        write!(Escaped(self.out), "{value}")?;
        self.out.push('"');
        Ok(())
    }

    fn optional(&mut self, name: &str, value: Option<impl Display>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.attribute(name, value))
    }

    fn child(
        &mut self,
        name: &'static str,
        content: impl FnOnce(&mut Element<'_>) -> fmt::Result,
    ) -> fmt::Result {
        self.end_start_tag();
        self.out.push('\n');
        let mut child = Element::open(self.out, name)?;
        content(&mut child)?;
        child.close()
    }

    fn text(&mut self, text: &str) -> fmt::Result {
        self.end_start_tag();
        Escaped(self.out).write_str(text)
    }

    fn end_start_tag(&mut self) {
        if self.open {
            self.out.push('>');
            self.open = false;
        }
    }

    fn close(self) -> fmt::Result {
        if self.open {
            self.out.push_str("/>");
            Ok(())
        } else {
            write!(self.out, "</{}>", self.name)
        }
    }
}

/// Escapes text so that it reads back unchanged from an attribute or an element, XML 1.0 2.4.
/// Characters that XML cannot represent become U+FFFD.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\t' | '\n' | '\r' => write!(self.0, "&#{};", u32::from(c))?,
                '\0'..' ' | '\u{FFFE}' | '\u{FFFF}' => self.0.push('\u{FFFD}'),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

/// Milliseconds as an xs:duration.
struct Duration(u64);

impl Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PT{}S", Thousandths(self.0))
    }
}

/// Thousandths as a decimal number, without trailing zeros.
struct Thousandths(u64);

impl Display for Thousandths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, thousandths) = (self.0 / 1000, self.0 % 1000);
        write!(f, "{whole}")?;
        match thousandths {
            0 => Ok(()),
            t if t % 100 == 0 => write!(f, ".{}", t / 100),
            t if t % 10 == 0 => write!(f, ".{:02}", t / 10),
            t => write!(f, ".{t:03}"),
        }
    }
}

/// A percentage as a factor.
struct Hundredths(u32);

impl Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Thousandths(u64::from(self.0) * 10))
    }
}
