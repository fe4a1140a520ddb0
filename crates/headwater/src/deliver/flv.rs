//! Live media as FLV tags and RTMP messages.

use std::sync::Arc;

use bytes::Bytes;
use live::{Beside, Part, Segment, Track};
use media::flv::{Message, Metadata, Packetizer};

/// Gives `out` a part in another container, written once for all viewers: each of its samples as
/// `write` writes it. Answers whether there is room to keep that.
///
/// # Errors
/// FLV has no form for the track.
pub(crate) fn converted<B: AsRef<[u8]>>(
    kept: &Beside,
    segment: &Segment,
    part: &Part,
    write: impl Fn(&Message) -> B,
    out: &mut Vec<Bytes>,
) -> Result<bool, media::Error> {
    let form = kept.get_or_make(part, || {
        let mut bytes = Vec::new();
        for message in messages(segment, part)? {
            bytes.extend_from_slice(write(&message).as_ref());
        }
        Ok::<_, media::Error>(bytes)
    })?;
    let has_room = form.is_some();
    out.extend(form);
    Ok(has_room)
}

/// What decodes a segment's samples, as of the time of one of its parts.
///
/// # Errors
/// FLV has no form for the track.
pub(crate) fn sequence_header(segment: &Segment, part: &Part) -> Result<Message, media::Error> {
    let time = milliseconds(part.start, &segment.header.track);
    packetizer(&segment.header.track)?.sequence_header(time)
}

/// How `track`'s samples are written as FLV tags and RTMP messages.
pub(super) fn packetizer(track: &media::Track) -> Result<Packetizer, media::Error> {
    Packetizer::new(0, &track.codec, track.timescale)
}

/// A part's samples as FLV tags or RTMP messages.
fn messages(segment: &Segment, part: &Part) -> Result<Vec<Message>, media::Error> {
    let packetizer = packetizer(&segment.header.track)?;
    let bytes = part.region.to_bytes();
    let mut out = Vec::with_capacity(part.samples.len());
    for layout in &part.samples {
        let start = layout.offset as usize;
        out.push(packetizer.sample(&media::Sample {
            dts: layout.dts,
            cts: layout.cts,
            duration: 0,
            sync: layout.sync,
            data: bytes.slice(start..start + layout.size as usize),
        })?);
    }
    Ok(out)
}

/// `onMetaData` for a viewer of `tracks` that begins so many seconds `behind` live.
pub(crate) fn metadata(tracks: &[Arc<Track>], behind: f64) -> Metadata {
    let headers: Vec<_> = tracks.iter().map(|track| track.header()).collect();
    let mut metadata = Metadata::describe(headers.iter().map(|header| &header.track.codec));
    metadata.behind = Some((behind * 1000.0).round() / 1000.0);
    for track in tracks {
        let rate = track.bitrate().map(|(mean, _)| mean as f64 / 1000.0);
        match track.kind {
            media::Kind::Video => metadata.video_data_rate = rate,
            _ => metadata.audio_data_rate = rate,
        }
    }
    metadata
}

/// A track's time in milliseconds.
fn milliseconds(time: i64, track: &media::Track) -> i64 {
    live::rescale(time, track.timescale, 1000)
}
