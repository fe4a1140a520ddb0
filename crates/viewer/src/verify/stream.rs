use std::sync::Arc;

use media::codec::{av1, nal, opus};
use media::{Codec, Sample};

use super::Reference;
use super::reference::{Matched, Positions};
use crate::playback::Track;
use crate::skim::micros;
use crate::stats::Verified;
use crate::{Error, Micros, seconds};

/// A decode time may differ by this much from the end of the access unit before: packagers round.
const ROUNDING: Micros = 2_000;
/// A longer step from the end of the access unit before is a hole: media are missing.
const HOLE: Micros = 8_000;
/// Longest step between frames if the container does not give durations.
const MAX_FRAME: Micros = 1_000_000;

/// The access units of one track, in their order.
#[derive(Debug)]
pub struct Stream {
    track: Option<Track>,
    reference: Option<Arc<Reference>>,
    place: Positions,
    /// Decode time of the last access unit, and its end if known.
    last: Option<(Micros, Option<Micros>)>,
}

impl Stream {
    /// Makes a stream of a track (`None`: neither video nor audio), to be compared with the
    /// reference.
    pub fn new(track: Option<Track>, reference: Option<Arc<Reference>>) -> Self {
        Self { track, reference, place: Positions::default(), last: None }
    }

    /// Allows the next access unit to start anew, because the server announced a discontinuity.
    pub fn restart(&mut self) {
        self.last = None;
        self.place = Positions::default();
    }

    /// Checks the next access unit. Its times are in `timescale`; a duration of 0 is unknown.
    ///
    /// # Errors
    /// It is broken, runs back in time, or is not the source's.
    pub fn sample(
        &mut self,
        codec: &Codec,
        timescale: u32,
        sample: &Sample,
        counts: &mut Verified,
    ) -> Result<(), Error> {
        let at = micros(sample.dts, timescale);
        let place = || format!("decode time {:.6} s", seconds(at));
        framing(codec, &sample.data).map_err(|error| error.at(place()))?;
        let mut hole = false;
        if let Some((last, end)) = self.last {
            let length =
                end.or_else(|| known_duration(codec).map(|duration| last.saturating_add(duration)));
            // Each time in whole milliseconds, as in FLV, is off by up to 1 ms.
            let coarse = if end.is_none() { 2_000 } else { 0 };
            let limit = length
                .map_or(last.saturating_add(MAX_FRAME), |end| end.saturating_add(HOLE + coarse));
            hole = at > limit;
            let (earliest, rounding) = end.map_or((last, 0), |end| (end, ROUNDING));
            if at < earliest.saturating_sub(rounding) {
                let what = format!(
                    "decode time runs back by {:.6} s",
                    seconds(earliest.saturating_sub(at))
                );
                return Err(Error::corrupt(what).at(place()));
            }
        }
        let duration = micros(sample.duration.into(), timescale);
        self.last = Some((at, (duration > 0).then(|| at.saturating_add(duration))));
        counts.samples += 1;
        counts.holes += u64::from(hole);
        if let (Some(track), Some(reference)) = (self.track, &self.reference) {
            match reference.next(track, &mut self.place, codec, &sample.data) {
                Matched::Next => counts.matched += 1,
                Matched::After(missing) => {
                    counts.matched += 1;
                    counts.missing += missing;
                }
                Matched::Before(back) => {
                    let what = format!("access unit {back} before the one that should come");
                    return Err(Error::corrupt(what).at(place()));
                }
                Matched::Foreign => {
                    return Err(Error::corrupt("access unit that is not the source's").at(place()));
                }
            }
        }
        Ok(())
    }
}

/// Duration of each access unit, if the codec alone tells it.
fn known_duration(codec: &Codec) -> Option<Micros> {
    match codec {
        Codec::Aac(config) => Some(micros(config.frame_length.into(), config.sample_rate)),
        _ => None,
    }
}

/// Checks that an access unit has the framing of its codec.
fn framing(codec: &Codec, data: &[u8]) -> Result<(), Error> {
    if data.is_empty() {
        return Err(Error::corrupt("empty access unit"));
    }
    match codec {
        Codec::Avc(config) => Ok(nal::check(data, config.nal_length_size)?),
        Codec::Hevc(config) => Ok(nal::check(data, config.nal_length_size)?),
        Codec::Av1(_) => Ok(av1::check(data)?),
        Codec::Opus(_) if opus::packet_duration(data).is_none() => {
            Err(Error::corrupt("Opus packet of impossible duration"))
        }
        _ => Ok(()),
    }
}
