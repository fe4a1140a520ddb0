//! The part of a stream that its publishers change, under the stream's mutex.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use media::{Kind, Sample};
use payload::memory::{Account, Memory, Pressure};

use crate::change::Adoption;
use crate::dates::Dates;
use crate::gop::{Gop, Learnt};
use crate::packager::{Boundaries, Cutting};
use crate::timeline::{Mapped, ORIGIN, Timeline, TrackClock};
use crate::track::TrackState;
use crate::{PublisherInfo, Settings, UnixMicros, rescale};

/// The most periods that may begin in a minute. A publisher whose clock jumps, or that pauses,
/// changes or returns, more often than that is refused: each period makes all viewers' players start
/// anew.
const MOST_TURNS: u32 = 20;
/// A track that its publisher ended has gone once the publisher goes on for this long. Encoders that
/// stop end all tracks, and may come back.
const OVER: Duration = Duration::from_secs(1);
/// Streams without video count as regular once this much audio has come, in microseconds.
const AUDIO_ALONE: i64 = 300_000;
/// A publisher's clock may lag the wall clock by this many microseconds before the lag counts as
/// drift. Less is jitter.
const DRIFT: u64 = 500_000;

/// The part of a stream that publishers change.
#[derive(Debug)]
pub(crate) struct Inner {
    /// Time of stream time 0, by the clock that never steps.
    pub(crate) epoch: UnixMicros,
    /// The same by the wall clock. Viewers see these dates.
    pub(crate) dates: Dates,
    /// Wall-clock time of stream time 0 as it was with the first sample. DASH clients never update
    /// it.
    pub(crate) began: Option<UnixMicros>,
    pub(super) gop: Gop,
    pub(crate) learnt: Option<Learnt>,
    /// The first publisher of those who publish. Its address decides who may add renditions.
    pub(crate) owner: Option<PublisherInfo>,
    pub(crate) turns: Limiter,
    /// The limiter of the periods that publishers of other renditions cause, all of them together. A publisher that
    /// connects again gets no new one.
    renditions_turns: Limiter,
    pub(crate) period: u64,
    /// Whether a sample of this period has come.
    pub(super) period_begun: bool,
    /// Whether the main publisher's clock has jumped, and a period is to begin for that.
    pub(super) has_jumped: bool,
    pub(crate) publishers: Vec<Active>,
    pub(super) next_publisher: u64,
    pub(crate) tracks: Vec<TrackState>,
    /// Number of the first segment.
    pub(super) first_msn: u64,
    pub(crate) boundaries: Boundaries,
    /// How many video tracks and other tracks there have been. No name is used twice.
    pub(crate) named: [u32; 2],
    /// When a sweep first found that no publisher is left.
    pub(crate) lost: Option<UnixMicros>,
    pub(super) ended: Option<UnixMicros>,
    /// Where this machine, or the one that has it, went on with it.
    pub(crate) adoptions: Vec<Adoption>,
    /// Whether another machine cuts it, and this is a copy ([`mirror`](crate::mirror)).
    pub(crate) is_mirrored: bool,
    /// The memory that holds its tracks' windows.
    pub(crate) memory: Arc<Memory>,
    /// How much of that memory this stream holds.
    pub(crate) account: Arc<Account>,
}

/// A publisher that is connected.
#[derive(Debug)]
pub(crate) struct Active {
    pub(super) id: u64,
    pub(super) info: PublisherInfo,
    pub(crate) last_sample: UnixMicros,
    /// Its tracks, by track_ID.
    pub(crate) tracks: Vec<u32>,
    pub(super) timeline: Timeline,
    pub(crate) turns: Limiter,
    /// Set for a rendition that is made of the stream's own media.
    pub(crate) derives: Option<Derives>,
}

impl Active {
    /// Marks that it sends a track. A track is announced again with each configuration, and so
    /// perhaps with each frame.
    pub(crate) fn owns(&mut self, track: u32) {
        if !self.tracks.contains(&track) {
            self.tracks.push(track);
        }
    }
}

/// State of a rendition that is made of the stream's own media.
#[derive(Debug, Default)]
pub(crate) struct Derives {
    /// Until when manifests wait for its first segment; `None` if they do not wait.
    pub(crate) awaited: Option<UnixMicros>,
}

/// Allows an event [`MOST_TURNS`] times a minute.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    since: UnixMicros,
    count: u32,
}

impl Limiter {
    /// Counts one event. Returns whether it is allowed.
    pub(crate) fn allows(&mut self, now: UnixMicros) -> bool {
        if now.since(self.since) >= Duration::from_secs(60) {
            *self = Self { since: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= MOST_TURNS
    }
}

impl Inner {
    /// A stream that nobody publishes yet. No segment of it has a number below `after`.
    pub(super) fn new(
        settings: &Settings,
        memory: &Arc<Memory>,
        now: UnixMicros,
        after: u64,
    ) -> Self {
        Self {
            epoch: now,
            dates: Dates::default(),
            began: None,
            gop: Gop::default(),
            learnt: None,
            owner: None,
            turns: Limiter::default(),
            renditions_turns: Limiter::default(),
            period: 0,
            period_begun: false,
            has_jumped: false,
            publishers: Vec::new(),
            next_publisher: 0,
            tracks: Vec::new(),
            first_msn: first_msn(settings, now).max(after),
            boundaries: Boundaries::default(),
            named: [0; 2],
            lost: None,
            ended: None,
            adoptions: Vec::new(),
            is_mirrored: false,
            account: Account::open(memory.budget()),
            memory: Arc::clone(memory),
        }
    }

    /// Index of the publisher `id`; `None` if another took its place.
    pub(crate) fn publisher(&self, id: u64) -> Option<usize> {
        self.publishers.iter().position(|active| active.id == id)
    }

    /// Index of the track with this track_ID; `None` if it is gone.
    pub(crate) fn track(&self, id: u32) -> Option<usize> {
        self.tracks.iter().position(|track| track.id() == id)
    }

    /// Whether the publisher would add a rendition from another address than the first publisher's.
    /// While nobody publishes, nobody owns the stream: anybody may take its name without a
    /// rendition, so a rendition harms it no more. An encoder whose address changed may return.
    pub(super) fn is_foreign(&self, info: &PublisherInfo) -> bool {
        let address = |info: &PublisherInfo| info.peer.map(|peer| peer.ip().to_canonical());
        let from: Option<IpAddr> = address(info);
        // Renditions made here of the stream's own media belong to no publisher.
        let mut others = self.publishers.iter().filter(|active| active.derives.is_none());
        let others = others.any(|active| active.info.rendition != info.rendition);
        self.is_published()
            && (info.rendition.is_some() || others)
            && self.owner.as_ref().is_some_and(|owner| address(owner) != from)
    }

    /// The publisher of this rendition.
    pub(crate) fn publishes(&self, rendition: &str) -> Option<&PublisherInfo> {
        let mut infos = self.publishers.iter().map(|active| &active.info);
        infos.find(|info| info.rendition.as_deref() == Some(rendition))
    }

    /// The publisher that sends this rendition as one of several.
    pub(super) fn sends_among_others(&self, rendition: Option<&String>) -> Option<&PublisherInfo> {
        let name = rendition?;
        let mut named = self.tracks.iter().filter(|it| it.handle.rendition.as_ref() == Some(name));
        let track = named.find(|track| track.publisher.as_ref() != Some(name))?;
        let mut infos = self.publishers.iter().map(|active| &active.info);
        infos.find(|info| info.rendition == track.publisher)
    }

    /// Whether the stream's timeline follows this publisher: the first of those that publish.
    pub(crate) fn is_main(&self, publisher: usize) -> bool {
        let mut others = self.publishers[..publisher].iter();
        !others.any(|active| active.derives.is_none())
    }

    /// Forgets which publisher sends a track, if that publisher ended the track or has sent nothing
    /// of it for `patience`, and goes on with others. From then on the track is one that its
    /// publisher came back without.
    pub(super) fn disown(&mut self, patience: Duration) {
        let tracks = &self.tracks;
        for active in &mut self.publishers {
            let goes_on = active.last_sample;
            active.tracks.retain(|&id| {
                let Some(track) = tracks.iter().find(|track| track.id() == id) else {
                    return false;
                };
                let ended = track.over.is_some_and(|over| goes_on.since(over) >= OVER);
                !ended && goes_on.since(track.last_sample) < patience
            });
        }
    }

    /// Whether anybody publishes it, here or, if it is a copy, elsewhere. Renditions made of its own media do not
    /// count.
    pub(crate) fn is_published(&self) -> bool {
        self.is_mirrored || self.publishers.iter().any(|active| active.derives.is_none())
    }

    /// Whether manifests wait for a rendition that is being made of its own media.
    pub(super) fn awaits_derived(&self) -> bool {
        let derives = self.publishers.iter().filter_map(|active| active.derives.as_ref());
        derives.into_iter().any(|derives| derives.awaited.is_some())
    }

    /// A number above those of all complete segments, and of those of removed tracks.
    pub(super) fn next_msn(&self) -> u64 {
        let tracks = self.tracks.iter().map(|track| track.packager.next_msn());
        tracks.fold(self.first_msn, u64::max)
    }

    /// Whether the stream is over.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Begins the timeline with the first sample. Returns whether this is the first.
    pub(crate) fn begin(&mut self, now: UnixMicros, ahead: i64) -> bool {
        if self.began.is_some() {
            return false;
        }
        self.epoch = UnixMicros(now.0.saturating_sub(ORIGIN.unsigned_abs()));
        self.dates.begin(ORIGIN, signed(now), ahead);
        self.began = Some(UnixMicros(u64::try_from(self.dates.epoch(0)).unwrap_or(0)));
        true
    }

    /// The limiter of the periods, jumps and changes that a publisher makes.
    ///
    /// The main publisher uses the stream's limiter: a publisher that returns as the main one takes it over.
    /// One publisher never uses up what another has.
    pub(crate) fn turns_of(&mut self, publisher: usize) -> &mut Limiter {
        match self.is_main(publisher) {
            true => &mut self.turns,
            false => &mut self.publishers[publisher].turns,
        }
    }

    /// Whether a publisher may begin a period. Of several reasons before the next sample, only the first counts.
    pub(crate) fn may_begin_period(&mut self, publisher: usize, now: UnixMicros) -> bool {
        !self.period_begun || self.turns_of(publisher).allows(now)
    }

    /// Places time `t` of a publisher's track, in microseconds, on the stream's timeline. The
    /// track's media end at `end`. If the clock of the main publisher jumps, a period begins with the
    /// next keyframe of the leading track, because players show nothing of a period before its first keyframe. If
    /// another publisher's clock jumps, its samples are moved to where the stream is now, which
    /// affects no other publisher. `None` if the clock jumps too often.
    pub(crate) fn place(
        &mut self,
        publisher: usize,
        clock: &mut TrackClock,
        (t, end): (i64, Option<i64>),
        now: UnixMicros,
        ahead: i64,
    ) -> Option<Mapped> {
        let here = self.here(publisher, now);
        if self.publishers[publisher].timeline.offset().is_none() {
            let others = self.publishers.iter().find_map(|active| active.timeline.offset());
            self.publishers[publisher].timeline = Timeline::beside(others);
        }
        let main = self.is_main(publisher);
        let active = &mut self.publishers[publisher];
        let mapped = active.timeline.map(clock, t, (signed(now), here), end);
        if matches!(mapped, Mapped::Jumped { .. }) {
            if !self.turns_of(publisher).allows(now) {
                return None;
            }
            // A period that is to begin anyway begins with this sample.
            self.has_jumped |= main && self.period_begun;
        }
        self.begin_period(ahead);
        Some(mapped)
    }

    /// Notes that this machine has not seen the samples of this period: another one has cut them.
    pub(crate) fn set_period_begun(&mut self) {
        self.period_begun = true;
    }

    /// Marks that a sample of this period has come.
    fn begin_period(&mut self, ahead: i64) {
        if !std::mem::replace(&mut self.period_begun, true) && self.period > 0 {
            self.dates.turn(self.period, ahead);
            self.tracks.iter_mut().for_each(TrackState::begin_period);
        }
    }

    /// Begins a period if the media from stream time `t` of track `index` do not continue what came before: if that
    /// track and the leading one have paused for longer than a segment may last, whichever of them goes on first.
    /// Whether the leading track has paused is a question of the wall clock, too: the times of another track may
    /// leap alone. Also begins a period at a keyframe of the leading track if dates are off by too much. Returns
    /// false if `publisher`, who sends track `index`, begins periods too often. Dates count too, because a publisher's
    /// times can make them wrong; a wall clock is never set so often.
    pub(crate) fn breaks_off(
        &mut self,
        publisher: usize,
        (index, leader): (usize, usize),
        (t, sync): (i64, bool),
        now: UnixMicros,
        ahead: i64,
    ) -> bool {
        let leads = leader == index;
        // The jump itself was counted.
        if leads && sync && self.has_jumped {
            self.next_period();
            self.begin_period(ahead);
        }
        let longest = self.learnt.map_or(i64::MAX, |learnt| {
            i64::try_from(learnt.target_duration.as_micros()).unwrap_or(i64::MAX)
        });
        let has_paused = |track: &TrackState| {
            let lasts = track.packager.lasts_until(rescale(t, 1_000_000, track.timescale()));
            track.packager.is_in(self.period)
                && rescale(lasts, track.timescale(), 1_000_000) > longest
        };
        let quiet = self.tracks[leader].packager.quiet(now).as_micros();
        let is_quiet = i64::try_from(quiet).unwrap_or(i64::MAX) > longest / 2;
        let paused = has_paused(&self.tracks[index])
            && (leads || is_quiet && has_paused(&self.tracks[leader]));
        if self.period_begun && (paused || leads && sync && self.dates.is_off(ahead)) {
            // The publisher that causes the period answers for it: a rendition that leads must not use up what the
            // main publisher needs to return. A jump was counted already.
            let turns = match self.is_main(publisher) {
                true => &mut self.turns,
                false => &mut self.renditions_turns,
            };
            if !self.has_jumped && !turns.allows(now) {
                return false;
            }
            // If the publisher's clock leapt ahead, the new period's dates must know that already.
            if leads {
                self.dates.observe(t, signed(now));
            }
            self.next_period();
            self.begin_period(ahead);
        }
        true
    }

    /// Packages a sample of this period. Its times are on the stream's timeline, in its track's
    /// timescale. The leading track's segment starts decide where other tracks cut.
    pub(crate) fn push(
        &mut self,
        index: usize,
        leads: bool,
        period: u64,
        sample: Sample,
        now: UnixMicros,
    ) -> io::Result<()> {
        self.give_way();
        let units = self.tracks[index].timescale();
        let at = rescale(sample.dts, units, 1_000_000);
        if leads {
            self.keep_time(at, now);
            self.dates.observe(at, signed(now));
        }
        let track = &mut self.tracks[index];
        let video = track.handle.kind == Kind::Video;
        let cutting = if (leads || video) && self.learnt.is_none() {
            Cutting::Nowhere
        } else if leads || video {
            Cutting::Leading
        } else {
            Cutting::Following(&self.boundaries)
        };
        let tapped = track.handle.taps.are_read().then(|| sample.clone());
        let before = track.packager.next_msn();
        let opens = track.packager.is_between_segments();
        let changed = track.packager.push(sample, period, cutting, now, &self.dates)?;
        match tapped {
            Some(mut sample) => {
                let header = Arc::clone(track.packager.header());
                // A unit has the time that it has in its part.
                if let Some(due) = track.packager.placed() {
                    sample.dts = due;
                    track.handing.hand(&track.handle.taps, (period, &header), sample, now);
                }
            }
            None => track.handle.taps.rest(),
        }
        let begins = leads && (opens || track.packager.next_msn() != before);
        if let Some((start, end)) = track.packager.segment_times().filter(|_| begins) {
            self.boundaries.push(rescale(start, units, 1_000_000));
            self.boundaries.next = end.map(|end| rescale(end, units, 1_000_000));
        }
        if changed {
            track.publish();
        }
        Ok(())
    }

    /// Gives up the oldest segment of each track if memory runs out and this stream holds more than
    /// its share.
    pub(super) fn give_way(&mut self) {
        if let Some(pressure) = self.account.pressure() {
            let given_up = self.shorten(pressure);
            self.account.gave_up(given_up);
        }
    }

    /// Removes the oldest segment of each track that can spare one. Returns how many it removed.
    pub(super) fn shorten(&mut self, pressure: Pressure) -> u64 {
        let mut given_up = 0;
        for track in &mut self.tracks {
            if track.packager.give_way(pressure) {
                track.publish();
                given_up += 1;
            }
        }
        given_up
    }

    /// Begins a period: the next media do not continue what came before. Several reasons before the
    /// next sample, such as a publisher that returns with another configuration, make one
    /// discontinuity. There is one tag for it, and numbers that count discontinuities must agree
    /// with the tags.
    pub(crate) fn next_period(&mut self) {
        self.period += u64::from(self.period_begun);
        (self.period_begun, self.has_jumped) = (false, false);
    }

    /// The track whose keyframes decide where segments end: of the tracks with samples the one that
    /// came first. A track that was announced but sends nothing decides nothing.
    pub(crate) fn leader(&self) -> Option<usize> {
        let first = |kind: Kind| {
            let tracks = self.tracks.iter().enumerate();
            let coming = tracks
                .filter(|(_, track)| track.handle.kind == kind && track.handle.is_coming())
                .min_by_key(|(_, track)| track.began.map_or(u64::MAX, |began| began.0));
            coming.map(|(index, _)| index)
        };
        first(Kind::Video).or_else(|| first(Kind::Audio))
    }

    /// The latest time that the stream has reached for this publisher, in microseconds of stream
    /// time. Other publishers than the main one may be far ahead, and count only for themselves.
    fn here(&self, publisher: usize, now: UnixMicros) -> i64 {
        let wall = i64::try_from(now.since(self.epoch).as_micros()).unwrap_or(i64::MAX);
        let main = self.publishers.iter().find(|active| active.derives.is_none());
        let counts = |track: &&TrackState| {
            let of = |active: &Active| active.info.rendition == track.publisher;
            main.is_some_and(of) || of(&self.publishers[publisher])
        };
        self.tracks.iter().filter(counts).filter_map(TrackState::end).fold(wall, i64::max)
    }

    /// Number of a new track's first segment: the number of the leading track's newest segment or,
    /// for the first track, the stream's first number.
    pub(crate) fn joining_msn(&self) -> u64 {
        let leader = self.leader().map(|index| self.tracks[index].packager.next_msn());
        leader.unwrap_or(self.first_msn)
    }

    /// Fills audio that has fallen behind the leading track with silence. This covers the tracks of
    /// `publisher`, those without a publisher, and those that another publisher no longer sends. Returns whether a
    /// track is no longer offered.
    pub(crate) fn stand_in(
        &mut self,
        stream: &str,
        publisher: usize,
        now: UnixMicros,
    ) -> io::Result<bool> {
        let leader = self.leader().map(|index| &self.tracks[index]);
        let Some(leader) = leader.filter(|leader| leader.handle.kind == Kind::Video) else {
            return Ok(false);
        };
        let Some(end) = leader.end() else { return Ok(false) };
        let lasts = rescale(leader.packager.last_duration(), leader.timescale(), 1_000_000);
        // The audio should reach the time at which the newest frame is due.
        let newest = (end - lasts, lasts);
        let longest = rescale(leader.packager.longest_segment(), leader.timescale(), 1_000_000);
        let mut changed = false;
        for track in self.tracks.iter_mut().filter(|track| track.handle.kind == Kind::Audio) {
            let id = track.id();
            let mut others = (0..).zip(&self.publishers).filter(|(at, _)| *at != publisher);
            let elsewhere = others.any(|(_, active)| active.tracks.contains(&id));
            if elsewhere && !track.has_stalled(newest.0, longest, now) {
                track.wait(lasts);
                continue;
            }
            let at = (self.period, &self.boundaries, &self.dates);
            changed |= track.stand_in(stream, newest, at, now)?;
        }
        Ok(changed)
    }

    /// Begins or resumes the audio track `index`, whose next sample has decode time `dts`. Silence
    /// fills the gap before it. Returns whether the track is offered again.
    pub(crate) fn resume(&mut self, index: usize, dts: i64, now: UnixMicros) -> io::Result<bool> {
        let track = &mut self.tracks[index];
        track.resume(dts, (self.period, &self.boundaries, &self.dates), now)
    }

    /// Learns what segments may last from a sample of the leading track.
    pub(crate) fn learn(
        &mut self,
        index: usize,
        sample: &Sample,
        settings: &Settings,
    ) -> Option<Learnt> {
        if self.learnt.is_some() {
            return None;
        }
        let TrackState { handle, packager, .. } = &self.tracks[index];
        let units = packager.header().track.timescale;
        let at = rescale(sample.pts(), units, 1_000_000);
        if handle.kind == Kind::Video {
            // No segment is complete before it is known what segments may last.
            let ends = packager.must_end_segment(self.period)
                || self.has_jumped && sample.sync && !packager.is_between_segments();
            // hls.js cannot place audio that begins long before video, and stands still later on
            // (docs/player.md). So playlists begin with the video.
            if packager.window().newest().is_none() && packager.is_between_segments() {
                self.tracks.iter_mut().for_each(|track| track.packager.list_from(at));
            }
            let times = (at, rescale(sample.dts, units, 1_000_000), sample.sync);
            let learnt = self.gop.observe(times, &sample.data, settings);
            return learnt.or_else(|| ends.then(|| Learnt::irregular(settings)));
        }
        let first = *self.boundaries.starts.front()?;
        (at - first >= AUDIO_ALONE).then(|| Learnt::regular(settings))
    }

    /// What segments may last, if time decides because no sample tells. Viewers that wait for
    /// playlists must not wait for a video that was announced and never comes, nor for a keyframe
    /// without end.
    pub(super) fn learn_by_waiting(&self, now: UnixMicros, settings: &Settings) -> Option<Learnt> {
        let leader = &self.tracks[self.leader().filter(|_| self.learnt.is_none())?];
        let waited = {
            let window = leader.packager.window();
            let first = window.all().next()?.parts.first()?.published;
            now.since(first)
        };
        match leader.handle.kind {
            Kind::Video if waited <= settings.keyframe_distance => None,
            Kind::Video => Some(Learnt::irregular(settings)),
            _ => Some(Learnt::regular(settings)),
        }
    }

    /// Adjusts the epoch to the wall clock: a sample for stream time `t` arrived at `now`. An
    /// earlier arrival than ever gives a better epoch. A much later one shows that the publisher's
    /// clock drifts.
    fn keep_time(&mut self, t: i64, now: UnixMicros) {
        let epoch = now.0.saturating_sub(u64::try_from(t).unwrap_or(0));
        if epoch < self.epoch.0 || epoch > self.epoch.0 + DRIFT {
            self.epoch = UnixMicros(epoch);
        }
    }
}

fn signed(time: UnixMicros) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

/// Number of a stream's first segment: seconds since 1970, or parts of a second if segments may be
/// shorter. No stream makes more segments than that for long, because half a segment target is the
/// shortest segment. So the numbers of a stream that ended, or of one before a restart, are not
/// used again. Old segments in caches can do no harm.
fn first_msn(settings: &Settings, now: UnixMicros) -> u64 {
    let shortest = u64::try_from(settings.segment_target.as_micros() / 2).unwrap_or(u64::MAX);
    (now.0 / shortest.clamp(1, 1_000_000)).max(1)
}
