//! One track of a stream: the side that viewers read, and the state that makes it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use media::{Codec, Kind, Sample};
use tokio::sync::watch;

use crate::change::NewPart;
use crate::dates::Dates;
use crate::error::Refused;
use crate::packager::{Boundaries, Cutting, Packager};
use crate::tap::{FromKeyframe, Handing, Tap, Taps};
use crate::window::{Header, Segment, Window};
use crate::{UnixMicros, rescale, silence};

/// How much video may come without audio before the audio counts as missing, in microseconds.
/// Players close behind live have about 0.6 s left to play.
const MISSING: std::ops::RangeInclusive<i64> = 250_000..=600_000;
/// Assumed lateness of a publisher's audio behind its video until its first samples show it, in
/// microseconds.
const ASSUMED_LATENESS: i64 = 300_000;
/// Each audio sample that comes earlier lowers the known lateness by one part in this many. After
/// about 6 s a third is left.
const FORGETS: i64 = 256;
/// Silence stands in for audio of another publisher than that of the leading video once none has come for
/// this long. A connection that lost packets usually goes on sooner, and then brings all that was held
/// back: silence would take the place of that. How late the audio usually is does not count here, because
/// that is a question of one publisher.
const STALLED: Duration = Duration::from_secs(2);
/// Silence that is made for a track is at most this many milliseconds, and a part, behind the video.
const BEHIND: i64 = 5000;
/// How many times the log tells that silence replaces a track's audio.
const SILENCES_TOLD: u32 = 8;

/// Context of silence on the stream's timeline: the period, the leading track's segment starts, and
/// the stream's dates.
pub(crate) type At<'a> = (u64, &'a Boundaries, &'a Dates);

/// One track of a stream, as viewers read it.
#[derive(Debug)]
pub struct Track {
    /// Name in URLs: `v0`, `a0`, …
    pub name: String,
    /// Video or audio.
    pub kind: Kind,
    /// Name of the rendition that its publisher gave, if any: that of `?rendition=`, or of a layer.
    pub rendition: Option<String>,
    /// The rendition that its publisher is, if that has a name, and the publisher's own number for the track.
    pub(crate) source: (Option<String>, u32),
    window: watch::Sender<Arc<Window>>,
    pub(crate) taps: Taps,
    header: ArcSwap<Header>,
    /// `PART-TARGET` in the track's timescale; 0 while unknown.
    part_limit: AtomicU32,
    /// Whether its samples are coming or expected.
    present: AtomicBool,
    /// Whether the track is only a source of other renditions and not offered to viewers.
    withheld: AtomicBool,
    /// When a viewer last asked for its playlist, in microseconds.
    asked: AtomicU64,
}

impl Track {
    pub(crate) fn new(
        name: String,
        rendition: Option<String>,
        source: (Option<String>, u32),
        header: Arc<Header>,
    ) -> Self {
        Self {
            name,
            kind: header.track.kind(),
            rendition,
            source,
            window: watch::Sender::default(),
            taps: Taps::default(),
            header: ArcSwap::new(header),
            part_limit: AtomicU32::new(0),
            present: AtomicBool::new(true),
            withheld: AtomicBool::new(false),
            asked: AtomicU64::new(0),
        }
    }

    /// Whether `name` is its name, or the name that its publisher gave the rendition.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.rendition.as_deref() == Some(name)
    }

    /// The window at this moment.
    pub fn window(&self) -> Arc<Window> {
        self.window.borrow().clone()
    }

    /// The window; the receiver is notified of every change.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Window>> {
        self.window.subscribe()
    }

    /// Reads its access units from the next one on, before the packager cuts them into parts. A
    /// decoder begins with the first [`sync`](Sample::sync) unit.
    pub fn tap(&self) -> Tap {
        self.taps.tap()
    }

    /// Reads its access units from the newest keyframe on, where a decoder can begin.
    pub fn tap_from_keyframe(&self) -> FromKeyframe {
        FromKeyframe::new(&self.taps, self.subscribe())
    }

    /// The newest header.
    pub fn header(&self) -> Arc<Header> {
        self.header.load_full()
    }

    /// Replaces the header.
    pub(crate) fn describe(&self, header: Arc<Header>) {
        self.header.store(header);
    }

    /// The longest that a part may be, in the track's timescale. The first part fixes it.
    pub fn part_limit(&self) -> Option<u32> {
        Some(self.part_limit.load(Ordering::Acquire)).filter(|&limit| limit > 0)
    }

    /// Whether manifests should offer the track: its samples are coming or expected, and it is not
    /// withheld.
    pub fn is_present(&self) -> bool {
        self.is_coming() && !self.withheld.load(Ordering::Acquire)
    }

    /// Whether its samples are coming or expected, even if the track is not offered.
    pub(crate) fn is_coming(&self) -> bool {
        self.present.load(Ordering::Acquire)
    }

    /// Whether viewers are offered the track, if its samples are coming.
    pub(crate) fn is_offered(&self) -> bool {
        !self.withheld.load(Ordering::Acquire)
    }

    /// Whether its publisher no longer sends it, and silence can stand in for its samples. Whether somebody
    /// makes that silence, [`Self::goes_on_beside`] tells.
    pub fn is_silenced(&self) -> bool {
        let withheld = self.withheld.load(Ordering::Acquire);
        !withheld && !self.is_coming() && silence::access_unit(&self.header().track.codec).is_some()
    }

    /// Whether its media go on beside a video of the stream's `tracks`: whether they reach as far as that
    /// video, but for [`BEHIND`]. Before silence begins in a new period, the track is behind. So of the video
    /// only the newest period counts.
    ///
    /// This is told from media, not from what makes them: a copy of the stream must say the same.
    pub fn goes_on_beside(&self, tracks: &[Arc<Self>]) -> bool {
        let millis =
            |segment: &Segment, ticks: i64| rescale(ticks, segment.header.track.timescale, 1000);
        let window = self.window();
        let Some(newest) = window.newest() else { return false };
        let end = millis(newest, newest.presented_end());
        let part = millis(newest, self.part_limit().map_or(0, i64::from));
        let mut videos =
            tracks.iter().filter(|track| track.kind == Kind::Video && track.is_coming());
        videos.any(|video| {
            let window = video.window();
            window.newest().is_some_and(|newest| {
                let from = end.max(millis(newest, newest.period_start));
                millis(newest, newest.presented_end()) - from <= BEHIND + part
            })
        })
    }

    /// Notes that a viewer asks for its playlist or its segments, and so plays it or is about to.
    pub fn ask(&self, now: UnixMicros) {
        self.asked.store(now.0, Ordering::Relaxed);
    }

    /// When a viewer asked for it last.
    pub(crate) fn asked(&self) -> UnixMicros {
        UnixMicros(self.asked.load(Ordering::Relaxed))
    }

    /// Whether a viewer asked for it within the last `recent`.
    pub(crate) fn is_asked_for(&self, now: UnixMicros, recent: Duration) -> bool {
        now.since(self.asked()) < recent
    }

    /// Sets whether viewers are offered the track. Returns whether that is new.
    pub(crate) fn set_offered(&self, offered: bool) -> bool {
        self.withheld.swap(!offered, Ordering::AcqRel) == offered
    }

    /// Sets whether its samples are coming or expected. Returns whether that is new.
    pub(crate) fn set_present(&self, present: bool) -> bool {
        self.present.swap(present, Ordering::AcqRel) != present
    }

    /// Samples per second of its newest full part, as a fraction.
    pub fn frame_rate(&self) -> Option<(u32, u32)> {
        let window = self.window();
        let timescale = u64::from(self.header().track.timescale);
        let part = window.all().rev().flat_map(|segment| segment.parts.iter().rev()).nth(1)?;
        let (mut n, mut d) = (timescale * part.samples.len() as u64, u64::from(part.duration));
        let (mut a, mut b) = (n, d);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        (n, d) = (n / a.max(1), d / a.max(1));
        Some((u32::try_from(n).ok()?, u32::try_from(d).ok().filter(|&d| d > 0)?))
    }

    /// Mean bits per second over the window, and bits per second of its densest segment. While no
    /// segment is complete, both come from the parts so far. `None` before the first part.
    pub fn bitrate(&self) -> Option<(u64, u64)> {
        self.window().bitrate()
    }
}

/// The source number of tracks that are made of the stream's own media. No publisher uses it for its own.
pub(crate) const DERIVED: u32 = u32::MAX;

/// The state that makes a track.
pub(crate) struct TrackState {
    pub(crate) handle: Arc<Track>,
    /// The rendition that its publisher is, if that has a name.
    pub(crate) publisher: Option<String>,
    /// The publisher's own number for it.
    pub(crate) source: u32,
    pub(crate) packager: Packager,
    pub(crate) last_sample: UnixMicros,
    /// What those got that read single units.
    pub(crate) handing: Handing,
    /// When its publisher said that no sample follows, if none has come since.
    pub(crate) over: Option<UnixMicros>,
    /// When its first sample came.
    pub(crate) began: Option<UnixMicros>,
    /// Duration of the leading video that came since its last sample, in microseconds. Of the time
    /// before this period, at most half of `patience` counts.
    waited: i64,
    /// How far its end was behind the leading video when the last frame came, in microseconds.
    behind: i64,
    /// The most that its samples come behind the leading video, in microseconds.
    lateness: i64,
    /// Whether silence replaces its missing samples.
    pub(crate) silent: bool,
    allowance: silence::Allowance,
    /// How many times silence has begun.
    silences: u32,
    /// Whether its samples are missing and silence cannot replace them.
    pub(crate) missing: bool,
}

impl std::fmt::Debug for TrackState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrackState").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl TrackState {
    pub(crate) fn new(handle: Arc<Track>, packager: Packager, now: UnixMicros) -> Self {
        let (publisher, source) = handle.source.clone();
        Self {
            handle,
            publisher,
            source,
            packager,
            last_sample: now,
            handing: Handing::default(),
            over: None,
            began: None,
            waited: 0,
            behind: 0,
            lateness: ASSUMED_LATENESS,
            silent: false,
            allowance: silence::Allowance::new(now),
            silences: 0,
            missing: false,
        }
    }

    /// Whether it is made of the stream's own media. Such a track may come at any time after them.
    pub(crate) fn is_derived(&self) -> bool {
        self.source == DERIVED
    }

    pub(crate) fn timescale(&self) -> u32 {
        self.packager.header().track.timescale
    }

    /// Its track_ID, which identifies it while the stream lasts.
    pub(crate) fn id(&self) -> u32 {
        self.packager.header().track.id
    }

    /// Where its last sample ends, in microseconds of stream time.
    pub(crate) fn end(&self) -> Option<i64> {
        Some(rescale(self.packager.end()?, self.timescale(), 1_000_000))
    }

    /// Whether the samples that follow have this codec and language.
    pub(crate) fn is_configured(&self, codec: &Codec, language: [u8; 3]) -> bool {
        let current = &self.packager.header().track;
        current.codec == *codec && current.language == language
    }

    /// Sets codec and language of the samples that follow. Returns whether either is new.
    pub(crate) fn configure(&mut self, codec: Codec, language: [u8; 3]) -> Result<bool, Refused> {
        if self.is_configured(&codec, language) {
            return Ok(false);
        }
        let current = &self.packager.header().track;
        // The timescale stays, because the published times count in it.
        let described =
            media::Track { id: current.id, timescale: current.timescale, codec, language };
        self.packager.reconfigure(header(self.packager.next_msn(), described)?);
        Ok(true)
    }

    /// Begins or resumes the track, whose next sample has decode time `dts` in its timescale.
    /// Silence fills the gap before it if the gap is no longer than a segment. Returns whether the
    /// track is offered again.
    pub(crate) fn resume(&mut self, dts: i64, at: At<'_>, now: UnixMicros) -> io::Result<bool> {
        self.waited = 0;
        let was_silent = std::mem::take(&mut self.silent);
        let behind = std::mem::take(&mut self.behind);
        if !was_silent && !self.missing {
            self.lateness = behind.min(*MISSING.end()).max(self.lateness - self.lateness / FORGETS);
        }
        if let Some(end) = self.packager.end()
            && self.packager.is_in(at.0)
        {
            let gap = dts - end;
            let is_short = gap < self.packager.longest_segment();
            let fills = was_silent || is_short && self.packager.leaves_hole(gap);
            if fills && let Some(unit) = silence::access_unit(&self.packager.header().track.codec) {
                self.fill(at, unit, (end, dts), now)?;
            }
        }
        Ok(std::mem::take(&mut self.missing) && self.handle.set_present(true))
    }

    /// Notes that a period begins. Silence does not fill the pause before it.
    pub(crate) fn begin_period(&mut self) {
        self.waited = self.waited.min(self.patience() / 2);
    }

    /// How far its end may be behind the leading video before its audio counts as missing.
    fn patience(&self) -> i64 {
        (2 * self.lateness).clamp(*MISSING.start(), *MISSING.end())
    }

    /// Whether no sample has come for [`STALLED`], of a track whose publisher may yet go on, while the
    /// leading video went on to `at`. Silence up to there must not be further ahead than time has passed,
    /// give or take a segment of `longest` microseconds: the samples of a publisher that goes on would
    /// be dropped until they have come as far.
    pub(crate) fn has_stalled(&self, at: i64, longest: i64, now: UnixMicros) -> bool {
        let quiet = now.since(self.last_sample);
        let passed = i64::try_from(quiet.as_micros()).unwrap_or(i64::MAX);
        let is_near = |end: i64| at.saturating_sub(end) <= passed.saturating_add(longest);
        quiet >= STALLED && self.end().is_some_and(is_near)
    }

    /// Notes that leading video of so many microseconds came, whose publisher is not that of the audio. No more
    /// than [`STALLED`] is noted: the audio may never come, or that video may be far ahead of it.
    pub(crate) fn wait(&mut self, lasts: i64) {
        self.waited = (self.waited + lasts).min(STALLED.as_micros() as i64);
    }

    /// Fills audio that has fallen behind the leading track with silence. The leading track's
    /// newest frame starts at `at` and probably lasts `lasts` microseconds. Audio that silence
    /// cannot replace is no longer offered. Returns whether that is new.
    pub(crate) fn stand_in(
        &mut self,
        stream: &str,
        (at, lasts): (i64, i64),
        context: At<'_>,
        now: UnixMicros,
    ) -> io::Result<bool> {
        // The newest frame's duration does not count yet: it is a guess, and a long one at low
        // frame rates.
        let waited = self.waited;
        self.waited += lasts;
        // The audio covers the time up to its end, unless that end is in an earlier period.
        let covered = self.end().filter(|_| self.packager.is_in(context.0));
        let behind = covered.map_or(waited, |end| waited.min(at - end));
        self.behind = covered.map_or(waited, |end| at - end);
        // Silence stays as far behind as the audio usually comes late. So audio that returns finds
        // its place free.
        let patience = self.patience();
        let reach = patience / 2;
        if self.missing || behind < if self.silent { reach } else { patience } {
            return Ok(false);
        }
        let Some(unit) = silence::access_unit(&self.packager.header().track.codec) else {
            self.missing = true;
            return Ok(self.handle.set_present(false));
        };
        if !self.silent {
            self.silent = true;
            self.silences += 1;
            // If audio comes and goes, only the first times are logged.
            if self.silences <= SILENCES_TOLD {
                tracing::warn!(
                    stream,
                    track = self.handle.name,
                    at_ms = at / 1000,
                    "no audio comes; silence stands in for it"
                );
            }
        }
        // Silence does not fill a pause after which the stream begins a period.
        let units = self.timescale();
        let from = rescale(at - waited, 1_000_000, units);
        let follows = self.packager.is_in(context.0);
        let from = match self.packager.end() {
            Some(end) if follows && from - end < self.packager.longest_segment() => end,
            Some(end) => end.max(from),
            None => from,
        };
        let until = rescale(at - reach, 1_000_000, units);
        self.fill(context, unit, (from, until), now)?;
        Ok(false)
    }

    /// Pushes `unit` repeatedly, from `from` to `until` in the track's timescale, as far as silence
    /// is allowed now.
    fn fill(
        &mut self,
        (period, boundaries, dates): At<'_>,
        (unit, duration): (Bytes, u32),
        (from, until): (i64, i64),
        now: UnixMicros,
    ) -> io::Result<()> {
        let described = &self.packager.header().track;
        let units = described.timescale;
        let rate = described.codec.audio().map_or(units, |(rate, _)| rate);
        let micros = u64::from(duration) * 1_000_000 / u64::from(rate.max(1));
        let duration = u32::try_from(rescale(i64::from(duration), rate, units)).unwrap_or(1);
        let mut changed = false;
        let mut dts = from;
        while dts + i64::from(duration) <= until && self.allowance.take(micros, now) {
            let sample = Sample { dts, cts: 0, duration, sync: true, data: unit.clone() };
            let cutting = Cutting::Following(boundaries);
            changed |= self.packager.push(sample, period, cutting, now, dates)?;
            dts = self.packager.end().unwrap_or(dts + i64::from(duration));
        }
        if changed {
            self.publish();
        }
        Ok(())
    }

    /// Notes that another machine than before tells how the stream goes on.
    pub(crate) fn follow_another(&mut self) {
        let newest =
            self.packager.segments().newest().and_then(|segment| {
                Some((segment.period, segment.parts.last()?.samples.last()?.dts))
            });
        self.handing.go_elsewhere(newest);
    }

    /// Gives the units of a part that another machine has cut to all that read single units.
    pub(crate) fn hand_part(&mut self, part: &NewPart, now: UnixMicros) {
        let Some(open) = self.packager.segments().open() else { return };
        self.handing.part(part, &self.handle.taps, (open.period, &open.header), now);
    }

    /// Empties and ends the window that viewers see.
    pub(crate) fn vanish(self) {
        self.handle.set_present(false);
        self.handle.taps.end();
        let version = self.packager.window().version + 1;
        let nothing = Window { ended: true, version, ..Window::default() };
        self.handle.window.send_replace(Arc::new(nothing));
    }

    /// Publishes the packager's window to viewers.
    pub(crate) fn publish(&self) {
        let window = self.packager.window();
        // The window comes last: viewers that it wakes must find the new limit and header.
        if let Some(limit) = self.packager.part_limit() {
            self.handle.part_limit.store(limit, Ordering::Release);
        }
        if let Some(newest) = window.newest()
            && !Arc::ptr_eq(&newest.header, &self.handle.header.load())
        {
            self.handle.describe(Arc::clone(&newest.header));
        }
        if window.ended {
            self.handle.taps.end();
        }
        self.handle.window.send_replace(Arc::new(window.clone()));
    }
}

/// The header of a track that is used from segment `msn` on.
pub(crate) fn header(msn: u64, track: media::Track) -> Result<Arc<Header>, Refused> {
    let bytes = media::cmaf::header(&[&track]);
    let bytes = bytes.map_err(|error| Refused::Codec(error.to_string()))?;
    Ok(Arc::new(Header { msn, track, bytes }))
}
