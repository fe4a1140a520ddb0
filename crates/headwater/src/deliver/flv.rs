//! Live media as FLV tags and RTMP messages.

use std::sync::Arc;

use bytes::Bytes;
use live::{Beside, Part, Segment, Track};
use media::flv::{Message, Metadata, Packetizer};

/// Adds a part in another container to `out`. The bytes are written once for all viewers, with each
/// sample as `write` writes it. Returns whether there is room to keep them.
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

/// Makes the sequence header for a segment's samples, with the time of one of its parts.
///
/// # Errors
/// FLV has no form for the track.
pub(crate) fn sequence_header(segment: &Segment, part: &Part) -> Result<Message, media::Error> {
    let time = milliseconds(part.start, &segment.header.track);
    packetizer(&segment.header.track)?.sequence_header(time)
}

/// Makes the packetizer that writes `track`'s samples as FLV tags and RTMP messages.
pub(super) fn packetizer(track: &media::Track) -> Result<Packetizer, media::Error> {
    Packetizer::new(0, &track.codec, track.timescale)
}

/// Makes FLV tags or RTMP messages of a part's samples.
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

/// Makes `onMetaData` for a viewer of `tracks` that begins `behind` seconds behind live.
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

/// Converts a track's time to milliseconds.
fn milliseconds(time: i64, track: &media::Track) -> i64 {
    live::rescale(time, track.timescale, 1000)
}
