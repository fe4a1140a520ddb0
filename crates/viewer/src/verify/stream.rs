use std::sync::Arc;

use media::codec::{av1, nal, opus};
use media::{Codec, Sample};

use super::Reference;
use super::reference::{Matched, Positions};
use crate::playback::Track;
use crate::skim::micros;
use crate::stats::Verified;
use crate::{Error, Micros, seconds};

/// Decode times may differ by this from where the access unit before ended: packagers round.
const ROUNDING: Micros = 2_000;
/// A step past the end of the access unit before that is longer is media missing.
const HOLE: Micros = 8_000;
/// Longest step between frames whose durations the container does not say.
const MAX_FRAME: Micros = 1_000_000;

/// One track's access units in their order.
#[derive(Debug)]
pub struct Stream {
    track: Option<Track>,
    reference: Option<Arc<Reference>>,
    place: Positions,
    /// Decode time of the last access unit, and where it ended if that is known.
    last: Option<(Micros, Option<Micros>)>,
}

impl Stream {
    /// A track of that kind (`None`: neither video nor audio), to be compared with the reference.
    pub fn new(track: Option<Track>, reference: Option<Arc<Reference>>) -> Self {
        Self { track, reference, place: Positions::default(), last: None }
    }

    /// What comes next need not continue what was: a discontinuity that the server announced.
    pub fn restart(&mut self) {
        self.last = None;
        self.place = Positions::default();
    }

    /// Checks the next access unit, its times in `timescale`; a duration of 0 is not known.
    ///
    /// # Errors
    /// It is broken, runs back in time, or is none of the source's.
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
            // Times in milliseconds, as FLV has them, are up to one apart from the truth, each.
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

/// How long each access unit lasts, where the codec alone says it.
fn known_duration(codec: &Codec) -> Option<Micros> {
    match codec {
        Codec::Aac(config) => Some(micros(config.frame_length.into(), config.sample_rate)),
        _ => None,
    }
}

/// Whether an access unit is what its codec's framing allows.
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
