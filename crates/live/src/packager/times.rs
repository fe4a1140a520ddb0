//! When samples are decoded, and for how long.

use std::cmp::Ordering;
use std::io;
use std::time::Duration;

use media::Sample;

use super::Packager;
use crate::frames::{Cadence, Units};
use crate::{UnixMicros, rescale};

/// How long before it is due a frame is decoded, at most, where all frames come further apart than
/// this. hls.js places video by decode time and looks for audio there: with a lead as long as an
/// audio part it leaves out one or several audio parts.
const LEAD: Duration = Duration::from_millis(100);

/// Works out the times of a track's samples.
pub(super) enum Timing {
    /// For access units of audio, whose durations are known.
    Units(Units),
    /// For frames of video, each of which lasts until the next.
    Frames(Cadence),
}

impl Timing {
    pub(super) fn of(track: &media::Track) -> Self {
        match Units::of(track) {
            Some(units) => Self::Units(units),
            None => Self::Frames(Cadence::new(track.timescale)),
        }
    }
}

impl Packager {
    /// Whether audio is missing before a sample that begins `gap` after the end of the last one, in
    /// the track's timescale. Never for video, whose samples do not know their durations.
    pub(crate) fn leaves_hole(&self, gap: i64) -> bool {
        match &self.timing {
            Timing::Units(units) => units.judge(gap).is_gt(),
            Timing::Frames(_) => false,
        }
    }

    /// From the end of the last sample to when a sample that is due at `due` is decoded to its end,
    /// or for audio to when it begins, in the track's timescale.
    pub(crate) fn lasts_until(&self, due: i64) -> i64 {
        self.end().map_or(0, |end| due.saturating_add(self.slack()).saturating_sub(end))
    }

    /// For how long the newest frame waits for the next, before a pause is certain.
    pub(crate) fn awaits(&self) -> Duration {
        let timescale = self.header.track.timescale;
        let micros = rescale(self.expects.unwrap_or(0), timescale, 1_000_000);
        Duration::from_micros(micros.unsigned_abs())
    }

    /// How long after it is due the newest frame's decode duration ends. At a regular rate, the
    /// next frame comes no sooner.
    fn slack(&self) -> i64 {
        self.expects.map_or(0, |expects| expects - self.duration_ticks(LEAD))
    }

    /// Settles the sample's decode time and duration. Returns false if the sample has no place: it
    /// is audio that overlaps with the audio before it.
    pub(super) fn place(
        &mut self,
        sample: &mut Sample,
        new_period: bool,
        now: UnixMicros,
        changed: &mut bool,
    ) -> io::Result<bool> {
        let said = sample.dts;
        let end = self.end();
        let cadence = match &mut self.timing {
            Timing::Frames(cadence) => cadence,
            Timing::Units(units) => {
                let gap = end.map_or(0, |end| said - end);
                let told = if new_period { Ordering::Greater } else { units.judge(gap) };
                units.note(if new_period { 0 } else { gap });
                if told.is_lt() {
                    tracing::debug!(track = self.header.track.id, gap, "overlapping audio dropped");
                    return Ok(false);
                }
                // Missing audio leaves a hole. Where possible `TrackState` has filled the hole with
                // silence. Audio can be decoded from any access unit on.
                let follows = told.is_eq();
                let at = if follows { end } else { end.map(|end| end.max(said)) };
                if !follows && end.is_some() {
                    *changed |= self.flush(now)?;
                }
                let Timing::Units(units) = &mut self.timing else { return Ok(false) };
                sample.dts = at.unwrap_or(said).max(0);
                sample.duration = units.duration(sample);
                units.advance();
                self.newest = sample.dts;
                return Ok(true);
            }
        };
        let usual = cadence.usual();
        let due = cadence.observe(said, sample.duration);
        let shown = due + i64::from(sample.cts);
        // A period begins, or nothing came for longer than a segment may last.
        let breaks_off = new_period || self.lasts_until(due) > self.longest_segment();
        if !new_period {
            self.follows(due);
        }
        if self.expects.is_some() && !breaks_off {
            let most = self.longest_part();
            self.settle(due, most);
            self.expects = Some((due - self.newest).clamp(1, most));
            *changed |= self.publish_parts(now)?;
        }
        let end = self.end();
        let early = match self.expects {
            Some(_) => self.duration_ticks(LEAD),
            // The frame lasts as long as frames did before, but no longer than a part.
            None => usual.unwrap_or(0).min(self.part_limit.map_or(i64::MAX, i64::from)),
        };
        let ends = due + self.slack();
        sample.dts = match end {
            Some(end) if breaks_off => (due - early).max(end),
            Some(end) => end,
            None => (due - early).max(0),
        };
        self.newest = due;
        self.told = due.max(self.told + 1);
        self.frames =
            if usual.is_none() && end.is_none() { 1 } else { self.frames.saturating_add(1) };
        // If the source's clock runs back, the frame is shown when it is decoded. It is shown
        // earlier only by as much as the publisher's own composition offset says.
        sample.cts = narrow((shown - sample.dts).max(i64::from(sample.cts.min(0))));
        sample.duration = u32::try_from(ends - sample.dts).unwrap_or(1).max(1);
        Ok(true)
    }

    /// Adjusts the pending frames to a frame that is due at `due`.
    fn follows(&mut self, due: i64) {
        let step = due - self.newest;
        let (lead, longest) = (self.duration_ticks(LEAD), self.longest_part());
        let decode = |sample: &mut Sample, later: i64| {
            sample.dts += later;
            sample.cts = narrow(i64::from(sample.cts) - later);
        };
        match (self.frames, &mut self.pending[..]) {
            // The first frame is decoded as early as if a frame had come one step before it.
            (1, [first]) => {
                let lasts = step.clamp(1, first.dts.max(1));
                decode(first, -lasts);
                first.duration = u32::try_from(lasts).unwrap_or(1);
                self.segments.begin_at(first.dts);
            }
            // After two steps of about the same length, all frames are expected so far apart.
            (2, [first, second]) => {
                let before = i64::from(second.duration);
                let later = step.min(before) - lead;
                if step.abs_diff(before) * 5 <= before.unsigned_abs() && later > 0 {
                    self.expects = Some(step.min(longest));
                    decode(first, later);
                    decode(second, later);
                    self.segments.begin_at(first.dts);
                }
            }
            _ => {}
        }
    }

    /// Sets the duration of the newest frame, if it waits for the next. The frame then lasts until the
    /// next, which is due at `due`, is decoded. But the segment must not become too long. A frame that
    /// makes up for a pause, and so lasts longer than `most`, is never made longer.
    pub(super) fn settle(&mut self, due: i64, most: i64) {
        let until = due - self.duration_ticks(LEAD);
        let at_latest = self.at_latest(true);
        if self.expects.is_some()
            && let (Some(newest), Some(open)) = (self.pending.last_mut(), self.segments.open())
        {
            let expected = i64::from(newest.duration);
            let longest = if expected > most { expected } else { i64::MAX };
            let lasts = (until.min(open.start + at_latest) - newest.dts).min(longest);
            newest.duration = u32::try_from(lasts).unwrap_or(1).max(1);
        }
    }
}

/// Lets a frame be decoded `earlier`, and until the same time.
pub(super) fn begin_earlier(sample: &mut Sample, earlier: i64) {
    sample.dts -= earlier;
    sample.cts = narrow(i64::from(sample.cts) + earlier);
    sample.duration += u32::try_from(earlier).unwrap_or(0);
}

fn narrow(cts: i64) -> i32 {
    i32::try_from(cts).unwrap_or(if cts < 0 { i32::MIN } else { i32::MAX })
}
