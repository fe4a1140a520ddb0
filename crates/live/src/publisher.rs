//! The right to publish a stream, and the handling of each sample.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use media::{Codec, Kind, Sample};
use payload::memory::Arena;

use crate::error::{MOST_TRACKS, PublishError, Refused};
use crate::gop::Learnt;
use crate::names::{is_rendition, shown};
use crate::packager::Packager;
use crate::stream::{Entry, Inner, Stream};
use crate::timeline::{Mapped, TrackClock};
use crate::track::{self, Track, TrackState};
use crate::{PublisherInfo, Settings, UnixMicros, rescale};

/// The right to publish a stream, or one rendition of it. When it is dropped, the stream waits for
/// the publisher's return.
#[derive(Debug)]
pub struct Publisher {
    stream: Arc<Stream>,
    id: u64,
    info: PublisherInfo,
    /// The renditions that its tracks are, if they have names of their own.
    names: HashMap<u32, String>,
    /// Its tracks, by the publisher's own numbers for them.
    sources: HashMap<u32, Source>,
}

impl Publisher {
    /// Admits a publisher. If it takes over, it replaces the publisher of the same source or rendition.
    pub(crate) fn admit(
        stream: &Arc<Stream>,
        info: PublisherInfo,
        entry: Entry,
        now: UnixMicros,
    ) -> Result<Self, PublishError> {
        let id = stream.enter(&info, (None, entry), now)?;
        Ok(Self {
            stream: Arc::clone(stream),
            id,
            info,
            names: HashMap::new(),
            sources: HashMap::new(),
        })
    }

    /// The stream it publishes.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Information about the publisher.
    pub fn info(&self) -> &PublisherInfo {
        &self.info
    }

    /// Whether another publisher took its place because it was silent.
    pub fn is_replaced(&self) -> bool {
        self.stream.lock().publisher(self.id).is_none()
    }

    /// Names the rendition that the samples of `source` are: one publisher may send several. Call it before
    /// [`Publisher::track`]. A publisher of a rendition `R` has renditions `R-NAME`.
    ///
    /// # Errors
    /// The name is no name of a rendition, or another publisher's.
    pub fn name(&mut self, source: u32, rendition: &str) -> Result<(), PublishError> {
        let name = match &self.info.rendition {
            Some(own) => format!("{own}-{rendition}"),
            None => rendition.to_owned(),
        };
        if !is_rendition(&name) {
            return Err(PublishError::BadRendition(shown(&name)));
        }
        if let Some(other) = self.stream.lock().publishes(&name) {
            return Err(PublishError::InUse(other.clone()));
        }
        self.names.insert(source, name);
        Ok(())
    }

    /// Announces a track, or a new configuration of one. The samples of `source` that follow use
    /// `codec`, and their times count in `timescale`.
    ///
    /// # Errors
    /// The codec cannot be packaged, there are too many tracks, the configuration changed too
    /// often, memory ran out, or the publisher was replaced.
    pub fn track(
        &mut self,
        source: u32,
        codec: Codec,
        timescale: u32,
        language: [u8; 3],
        now: UnixMicros,
    ) -> Result<(), Refused> {
        packageable(&codec)?;
        let kind = codec.kind();
        let mut inner = self.stream.lock();
        let publisher = inner.publisher(self.id).ok_or(Refused::Replaced)?;
        inner.publishers[publisher].last_sample = now;
        let rendition = self.names.get(&source).or(self.info.rendition.as_ref());
        let mut alike = (0..).zip(&inner.tracks).filter(|(_, track)| {
            track.publisher == self.info.rendition
                && track.handle.rendition.as_ref() == rendition
                && track.handle.kind == kind
        });
        let is_others = |id| self.sources.iter().any(|(at, it)| *at != source && it.track == id);
        let known = match alike.clone().find(|(_, track)| track.source == source) {
            // Protocols number tracks differently. Where there is one video or one audio, that is it.
            None => alike.next().filter(|(_, one)| alike.next().is_none() && !is_others(one.id())),
            // Another track of this publisher may have taken over one that a former publisher gave this number.
            known => known.filter(|(_, one)| !is_others(one.id())),
        };
        let known = known.map(|(index, _)| index);
        let index = match known {
            Some(index) => {
                if !inner.tracks[index].is_configured(&codec, language) {
                    // A track without a sample in this period begins the period with its new configuration.
                    let changes = inner.tracks[index].packager.is_in(inner.period);
                    if changes && !inner.may_begin_period(publisher, now) {
                        return Err(Refused::TooOften);
                    }
                    inner.tracks[index].configure(codec.clone(), language)?;
                    if changes {
                        inner.next_period();
                    }
                }
                if inner.tracks[index].handle.set_present(true) {
                    self.stream.announce(&inner);
                }
                index
            }
            None => {
                // The track had gone, and comes back as a new one.
                let returns = self.sources.contains_key(&source);
                if returns && !inner.publishers[publisher].turns.allows(now) {
                    return Err(Refused::TooOften);
                }
                let called = (self.info.rendition.clone(), rendition.cloned(), source);
                let settings = self.stream.settings();
                let from = (inner.period, inner.joining_msn());
                let described = (codec.clone(), language);
                add(&mut inner, settings, called, from, described, now)?;
                self.stream.announce(&inner);
                inner.tracks.len() - 1
            }
        };
        inner.tracks[index].over = None;
        let id = inner.tracks[index].id();
        inner.publishers[publisher].owns(id);
        match self.sources.get_mut(&source).filter(|known| known.track == id) {
            Some(known) => known.described = (codec, language),
            None => {
                self.sources.insert(source, Source::new(id, timescale, (codec, language)));
            }
        }
        Ok(())
    }

    /// Whether a track was announced.
    pub(crate) fn knows(&self, source: u32) -> bool {
        self.sources.contains_key(&source)
    }

    /// Marks that no sample of a track follows. If the publisher goes on with other tracks, the
    /// track ends for its viewers. Samples that come after all begin a new track, or continue one
    /// that has not ended yet.
    pub fn end_track(&mut self, source: u32, now: UnixMicros) {
        let Some(source) = self.sources.get(&source) else { return };
        let mut inner = self.stream.lock();
        if inner.publisher(self.id).is_some()
            && let Some(index) = inner.track(source.track)
        {
            inner.tracks[index].over.get_or_insert(now);
        }
    }

    /// Publishes a sample of an announced track. Its times are by the publisher's own clock.
    ///
    /// # Errors
    /// The track was not announced, the publisher was replaced, its clock jumped or it paused too
    /// often, or memory ran out.
    pub fn sample(
        &mut self,
        number: u32,
        mut sample: Sample,
        now: UnixMicros,
    ) -> Result<(), Refused> {
        let source = self.sources.get_mut(&number).ok_or(Refused::UnknownTrack)?;
        let mut guard = self.stream.lock();
        let inner = &mut *guard;
        let publisher = inner.publisher(self.id).ok_or(Refused::Replaced)?;
        if inner.track(source.track).is_none() {
            let (codec, language) = source.described.clone();
            let timescale = source.timescale;
            drop(guard);
            self.track(number, codec, timescale, language, now)?;
            return self.sample(number, sample, now);
        }
        inner.publishers[publisher].last_sample = now;
        if source.holds_back(&sample, self.stream.target_duration()) {
            return Ok(());
        }
        let index = inner.track(source.track).ok_or(Refused::UnknownTrack)?;
        inner.tracks[index].last_sample = now;
        inner.tracks[index].over = None;
        inner.publishers[publisher].owns(source.track);
        let ahead = self.stream.ahead();
        if inner.begin(now, ahead) {
            self.stream.announce(inner);
        }
        let said = rescale(sample.dts, source.timescale, 1_000_000);
        let end = inner.tracks[index].end();
        let mapped = inner.place(publisher, &mut source.clock, (said, end), now, ahead);
        let offset = match mapped.ok_or(Refused::TooOften)? {
            Mapped::Offset(offset) => offset,
            Mapped::Jumped { offset, by } => {
                tracing::debug!(
                    stream = self.stream.name(), peer = ?self.info.peer,
                    track = inner.tracks[index].handle.name,
                    at_ms = said / 1000, by_ms = by / 1000, "publisher's clock jumped"
                );
                offset
            }
        };

        if end.is_none() && said.saturating_add(offset) < 0 {
            // It was captured before the timeline begins, and CMAF has no time for it. Video begins
            // anew with a keyframe.
            source.shut();
            return Ok(());
        }
        inner.tracks[index].began.get_or_insert(now);
        let leader = inner.leader();
        let leads = leader == Some(index);
        source.translate(&mut sample, offset, inner.tracks[index].timescale());
        if leads {
            // What segments may last decides whether a pause before this sample ends the period.
            if let Some(learnt) = inner.learn(index, &sample, self.stream.settings()) {
                self.stream.learn(inner, learnt);
            }
        }
        if leads || inner.is_main(publisher) {
            let tracks = (index, leader.unwrap_or(index));
            let from = (said.saturating_add(offset), sample.sync);
            if !inner.breaks_off(publisher, tracks, from, now, ahead) {
                return Err(Refused::TooOften);
            }
        }
        if inner.resume(index, sample.dts, now)? {
            self.stream.announce(inner);
        }
        inner.push(index, leads, inner.period, sample, now)?;
        if leads && inner.stand_in(self.stream.name(), publisher, now)? {
            self.stream.announce(inner);
        }
        self.stream.note_readiness(inner);
        Ok(())
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let mut inner = self.stream.lock();
        let Some(at) = inner.publisher(self.id) else { return };
        let last = inner.publishers.remove(at).last_sample;
        for source in self.sources.values() {
            let Some(index) = inner.track(source.track) else { continue };
            let track = &mut inner.tracks[index];
            // Encoders end their tracks when they stop. They may come back to all of them.
            track.over = None;
            match track.packager.flush(last) {
                Ok(true) => track.publish(),
                Ok(false) => {}
                Err(error) => tracing::warn!(stream = self.stream.name(), %error, "last samples"),
            }
        }
        // The samples that would decide the target duration will not come.
        if inner.learnt.is_none() {
            let settings = self.stream.settings();
            let has_video = inner.tracks.iter().any(|track| {
                track.handle.kind == Kind::Video && track.packager.window().newest().is_some()
            });
            let learnt = if has_video { Learnt::irregular } else { Learnt::regular }(settings);
            self.stream.learn(&mut inner, learnt);
        }
        if !inner.is_published() {
            let holder: Weak<Stream> = Arc::downgrade(&self.stream);
            inner.account.rest(holder);
        }
        self.stream.announce(&inner);
        self.stream.note_readiness(&inner);
    }
}

/// Refuses a codec that no track can have.
pub(crate) fn packageable(codec: &Codec) -> Result<(), Refused> {
    match codec.kind() == Kind::Other || matches!(codec, Codec::Other(_)) {
        true => Err(Refused::Codec(codec.rfc6381().into_owned())),
        false => Ok(()),
    }
}

/// Adds a track of a publisher of `publisher`, which is the rendition `rendition`. It begins in `period`, with
/// segment number `msn`.
pub(crate) fn add(
    inner: &mut Inner,
    settings: &Settings,
    (publisher, rendition, source): (Option<String>, Option<String>, u32),
    (period, msn): (u64, u64),
    (codec, language): (Codec, [u8; 3]),
    now: UnixMicros,
) -> Result<(), Refused> {
    if inner.tracks.len() >= MOST_TRACKS {
        return Err(Refused::TooManyTracks);
    }
    let kind = codec.kind();
    let letter = if kind == Kind::Video { 'v' } else { 'a' };
    let id = inner.named.iter().sum::<u32>() + 1;
    let named = usize::from(kind != Kind::Video);
    let number = inner.named[named];
    // Audio counts time in its own samples, so that access units abut exactly.
    let timescale = codec.audio().map_or(90_000, |(rate, _)| rate);
    let described = media::Track { id, timescale, codec, language };
    let header = track::header(msn, described)?;
    let arena = Arena::new(&inner.memory, Arc::clone(&inner.account))?;
    // Audio that comes before any video frame is cut without waiting for keyframes.
    let yet = if kind == Kind::Video { Learnt::irregular } else { Learnt::regular };
    let learnt = inner.learnt.unwrap_or_else(|| yet(settings));
    let target = learnt.target_duration;
    let mut packager = Packager::new(settings, target, Arc::clone(&header), period, arena);
    packager.set_target_duration(target, learnt.regular);
    let name = format!("{letter}{number}");
    let handle = Arc::new(Track::new(name, rendition, (publisher, source), header));
    inner.tracks.push(TrackState::new(handle, packager, now));
    inner.named[named] += 1;
    Ok(())
}

/// One track, with the publisher's numbers and clock.
#[derive(Debug)]
struct Source {
    /// The track_ID of the stream's track.
    track: u32,
    timescale: u32,
    /// Its newest codec and language.
    described: (Codec, [u8; 3]),
    clock: TrackClock,
    gate: Gate,
}

/// Samples are dropped until the first that decoding can start at, but not for ever: a stream may
/// have none.
#[derive(Debug, Clone, Copy)]
enum Gate {
    /// No sample has come.
    Shut,
    /// Only samples that decoding cannot start at have come. The decode time of the first of them,
    /// in the publisher's timescale.
    Since(i64),
    /// Samples are taken.
    Open,
}

impl Source {
    fn new(track: u32, timescale: u32, described: (Codec, [u8; 3])) -> Self {
        let (clock, gate) = (TrackClock::default(), Gate::Open);
        let mut source = Self { track, timescale, described, clock, gate };
        source.shut();
        source
    }

    /// Waits for a sample that decoding can start at. Audio can start at any.
    fn shut(&mut self) {
        let is_video = self.described.0.kind() == Kind::Video;
        self.gate = if is_video { Gate::Shut } else { Gate::Open };
    }

    /// Whether to drop a sample because decoding cannot start at it. Samples are dropped for
    /// `longest` at most.
    fn holds_back(&mut self, sample: &Sample, longest: Duration) -> bool {
        let first = match self.gate {
            Gate::Open => return false,
            Gate::Shut => sample.dts,
            Gate::Since(first) => first,
        };
        let longest = i64::try_from(longest.as_millis()).unwrap_or(0);
        let longest = rescale(longest, 1000, self.timescale);
        let held = !sample.sync && sample.dts.saturating_sub(first) < longest;
        self.gate = if held { Gate::Since(first) } else { Gate::Open };
        held
    }

    /// Converts a sample's times to `units` a second and moves them to the stream's timeline,
    /// `offset` microseconds later.
    fn translate(&self, sample: &mut Sample, offset: i64, units: u32) {
        let scale = |time: i64| rescale(time, self.timescale, units);
        sample.dts = scale(sample.dts).saturating_add(rescale(offset, 1_000_000, units));
        sample.cts = i32::try_from(scale(i64::from(sample.cts))).unwrap_or(0);
        sample.duration = u32::try_from(scale(i64::from(sample.duration))).unwrap_or(0);
    }
}
