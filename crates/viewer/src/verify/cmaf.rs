use std::sync::Arc;

use bytes::Bytes;
use media::cmaf::{Header, chunks, read_header};
use media::{Codec, Kind};

use super::{Reference, Stream};
use crate::playback::{Stamps, Track};
use crate::skim::{micros, track_of};
use crate::stats::Verified;
use crate::{Error, Micros};

/// Reads CMAF headers and chunks, or any fragmented MP4, and checks them.
#[derive(Debug)]
pub struct Cmaf {
    header: Option<Header>,
    tracks: Vec<CmafTrack>,
    reference: Option<Arc<Reference>>,
}

#[derive(Debug)]
struct CmafTrack {
    id: u32,
    timescale: u32,
    codec: Codec,
    stream: Stream,
}

/// Media of one track that have been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Media {
    /// Video or audio.
    pub track: Track,
    /// Decode time of the first access unit.
    pub from: Micros,
    /// End of the last access unit.
    pub to: Micros,
    /// What `prft` says: microseconds since 1970, and the media time in microseconds.
    pub captured: Option<(Micros, Micros)>,
    /// Stamps of the first and the last access unit of video, if both have one.
    pub stamps: Option<Stamps>,
}

impl Cmaf {
    /// Makes a verifier that waits for a header.
    pub fn new(reference: Option<Arc<Reference>>) -> Self {
        Self { header: None, tracks: Vec::new(), reference }
    }

    /// Takes a header. A track with the same ID and codec as before goes on.
    ///
    /// # Errors
    /// It is broken, or has neither video nor audio.
    pub fn header(&mut self, data: &[u8], counts: &mut Verified) -> Result<(), Error> {
        let header = read_header(data).map_err(|error| Error::from(error).at("header"))?;
        let mut known = std::mem::take(&mut self.tracks);
        let mut seen = Vec::new();
        for track in &header.tracks {
            let of = track_of(track.kind());
            // The reference has only the first track of each kind.
            let first = !seen.contains(&of);
            seen.push(of);
            let before = known.iter().position(|t| t.id == track.id && t.codec == track.codec);
            let stream = match before {
                Some(at) => known.swap_remove(at).stream,
                None => Stream::new(of, self.reference.clone().filter(|_| first)),
            };
            self.tracks.push(CmafTrack {
                id: track.id,
                timescale: track.timescale,
                codec: track.codec.clone(),
                stream,
            });
        }
        if header.tracks.iter().all(|track| track.kind() == Kind::Other) {
            return Err(Error::corrupt("no video or audio in the header"));
        }
        self.header = Some(header);
        counts.units += 1;
        Ok(())
    }

    /// Whether a header has been read.
    pub fn has_header(&self) -> bool {
        self.header.is_some()
    }

    /// Allows the next media to start anew, without continuing those before.
    pub fn restart(&mut self) {
        for track in &mut self.tracks {
            track.stream.restart();
        }
    }

    /// Takes whole chunks or segments. Calls `media` for each chunk.
    ///
    /// # Errors
    /// They are broken, do not continue the media before, or are not the source's.
    pub fn media(
        &mut self,
        data: &Bytes,
        counts: &mut Verified,
        media: &mut impl FnMut(Media),
    ) -> Result<(), Error> {
        let Some(header) = &self.header else {
            return Err(Error::corrupt("media without a header"));
        };
        let mut found = false;
        for chunk in chunks(data, Some(header)) {
            let chunk = chunk?;
            found = true;
            counts.units += 1;
            let number = chunk.sequence_number;
            let place = || format!("fragment {number}");
            let Some(track) = self.tracks.iter_mut().find(|track| track.id == chunk.track_id)
            else {
                let what = format!("track_ID {} that the header does not have", chunk.track_id);
                return Err(Error::corrupt(what).at(place()));
            };
            let timescale = track.timescale;
            for sample in &chunk.samples {
                track
                    .stream
                    .sample(&track.codec, timescale, sample, counts)
                    .map_err(|error| error.at(place()))?;
            }
            let (Some(first), Some(last)) = (chunk.samples.first(), chunk.samples.last()) else {
                continue;
            };
            let Some(of) = track_of(track.codec.kind()) else { continue };
            let captured = chunk.reference.map(|reference| {
                // Both are far below 2^63.
                (reference.unix_micros as Micros, micros(reference.media_time as i64, timescale))
            });
            let stamps = match of {
                Track::Video => Stamps::find(&first.data, &last.data),
                Track::Audio => None,
            };
            media(Media {
                track: of,
                from: micros(first.dts, timescale),
                to: micros(last.dts.saturating_add(last.duration.into()), timescale),
                captured,
                stamps,
            });
        }
        if found { Ok(()) } else { Err(Error::corrupt("no fragment where there should be media")) }
    }
}
