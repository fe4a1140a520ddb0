//! How a stream's life goes on: publishers enter, time passes, tracks and the stream end.

use std::time::Duration;

use super::Stream;
use super::inner::{Active, Derives, Inner, Limiter};
use crate::error::{MOST_PUBLISHERS, PublishError};
use crate::gop::Learnt;
use crate::timeline::Timeline;
use crate::{PublisherInfo, UnixMicros};

/// Samples that do not fill a part, or wait for the next, are published after this time without new
/// samples. It is longer than the distance between the frames of a slide show: otherwise their parts
/// would be too short.
const HELD: Duration = Duration::from_secs(3);

/// How a publisher comes to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It replaces only one that is silent for long enough.
    First,
    /// It has the seat of the publisher of the same source or rendition, and replaces that one.
    Turn,
    /// As [`Self::Turn`], and it is the backup of the publisher before, or the other way round. Its media do not
    /// continue what came before, and it belongs to the stream even if its address is another.
    Switch,
}

impl Stream {
    /// Adds a publisher and returns its number.
    ///
    /// # Errors
    /// The stream is over, the publisher may not add a rendition, somebody else publishes, there are
    /// too many publishers, or periods begin too often.
    pub(crate) fn enter(
        &self,
        info: &PublisherInfo,
        (derives, entry): (Option<Derives>, Entry),
        now: UnixMicros,
    ) -> Result<u64, PublishError> {
        let mut inner = self.lock();
        if inner.is_over() {
            return Err(PublishError::Over);
        }
        if inner.is_mirrored {
            return Err(PublishError::Elsewhere);
        }
        let is_switch = entry == Entry::Switch;
        let is_checked = derives.is_none() && !is_switch && !self.settings.foreign_renditions;
        if is_checked && inner.is_foreign(info) {
            return Err(PublishError::Foreign);
        }
        if let Some(other) = inner.sends_among_others(info.rendition.as_ref()) {
            return Err(PublishError::InUse(other.clone()));
        }
        let before =
            inner.publishers.iter().position(|active| active.info.rendition == info.rendition);
        if let Some(active) = before.map(|at| &inner.publishers[at]) {
            // A rendition made of the stream's own media may be silent while it has no input.
            let is_here = active.derives.is_some()
                || entry == Entry::First && now.since(active.last_sample) < self.settings.silence;
            if is_here {
                return Err(PublishError::InUse(active.info.clone()));
            }
        }
        // The source itself may always return, however many renditions others have added to it.
        let renditions = inner.publishers.iter().filter(|active| active.info.rendition.is_some());
        if info.rendition.is_some() && renditions.count() >= MOST_PUBLISHERS {
            return Err(PublishError::TooManyPublishers);
        }
        if derives.is_none() {
            // A returning publisher's media do not continue the earlier media, so they begin a
            // period. If others publish, it finds its place on their timeline, and begins a period only in place
            // of another publisher.
            // No publisher continues the media of another machine: there may be more of these than are here.
            let is_adopted = inner.owner.is_none() && inner.period_begun;
            let returns =
                is_adopted || inner.tracks.iter().any(|track| track.publisher == info.rendition);
            let mut others = (0..).zip(&inner.publishers).filter(|(at, _)| Some(*at) != before);
            let is_alone = others.all(|(_, active)| active.derives.is_some());
            if returns && (is_alone || is_switch) {
                if inner.period_begun && !inner.turns.allows(now) {
                    return Err(PublishError::TooOften);
                }
                inner.next_period();
            }
            if is_alone {
                inner.owner = Some(info.clone());
            }
            inner.lost = None;
            inner.account.resume();
        }
        if let Some(replaced) = before.map(|at| inner.publishers.remove(at)) {
            let peer = replaced.info.peer.map(tracing::field::display);
            // Where publishers take turns, that is told by who takes over.
            if !is_switch {
                tracing::info!(stream = %self.name, peer, "silent publisher replaced");
            }
        }
        inner.next_publisher += 1;
        let id = inner.next_publisher;
        inner.publishers.push(Active {
            id,
            info: info.clone(),
            last_sample: now,
            tracks: Vec::new(),
            timeline: Timeline::default(),
            turns: Limiter::default(),
            derives,
        });
        self.announce(&inner);
        Ok(id)
    }

    /// Does all work that depends on time. Returns whether the stream is over and may be forgotten.
    pub(crate) fn sweep(&self, now: UnixMicros) -> bool {
        self.viewers.sweep(now);
        let mut inner = self.lock();
        // Time passes for a copy as its changes say.
        if inner.is_mirrored {
            return false;
        }
        inner.give_way();
        if let Some(ended) = inner.ended {
            return now.since(ended) > self.window();
        }
        let mut changed = false;
        for active in inner.publishers.iter_mut().filter_map(|active| active.derives.as_mut()) {
            active.awaited.take_if(|until| now >= *until);
        }
        let live = inner.is_published();
        if !live && inner.lost.is_none() {
            inner.lost = Some(now);
        }
        if inner.lost.is_some_and(|lost| now.since(lost) >= self.settings.reconnect) {
            for track in &mut inner.tracks {
                if let Err(error) = track.packager.end_stream(now) {
                    tracing::warn!(stream = %self.name, track = track.handle.name, %error, "end");
                }
                track.publish();
            }
            inner.ended = Some(now);
            changed = true;
            tracing::info!(stream = %self.name, "stream ended");
        }
        let inner = &mut *inner;
        // Frames may come further apart than publishers may be away.
        inner.disown(self.settings.reconnect.max(self.settings.silence));
        let mut gone = Vec::new();
        let published = inner.tracks.iter().filter(|track| !track.is_derived());
        let newest = published.map(|track| track.last_sample).max().unwrap_or(now);
        let patience = self.target_duration() / 2;
        for track in &mut inner.tracks {
            let quiet = now.since(track.last_sample);
            // A track that stops while others go on leads them no more. Otherwise its pause would begin a
            // period for all when it comes again.
            if newest.since(track.last_sample) >= patience && track.began.is_some() {
                track.began = Some(now);
            }
            if track.packager.quiet(now) > HELD.max(track.packager.awaits()) {
                match track.packager.flush(now) {
                    Ok(true) => track.publish(),
                    Ok(false) => {}
                    Err(error) => {
                        let track = &track.handle.name;
                        tracing::warn!(stream = %self.name, track, %error, "samples held back");
                    }
                }
            }
            // A rendition that is made of the stream's own media may still come.
            if inner.ended.is_some() || !live && track.is_derived() {
                continue;
            }
            // While nobody publishes, the stream waits for the tracks that were there to the end,
            // not for those that had gone before.
            if !live {
                let recent = newest.since(track.last_sample) < self.settings.silence;
                let there = track.packager.window().newest().is_some() && (recent || track.silent);
                changed |= track.handle.set_present(there && track.handle.is_coming());
                continue;
            }
            let id = track.id();
            let announced = inner.publishers.iter().any(|active| active.tracks.contains(&id));
            let returned = |active: &Active| active.info.rendition == track.publisher;
            // The publisher is back without this track, or may yet send it. If no track gets
            // samples, as when the publisher's network is interrupted, the stream waits for all
            // tracks.
            let behind = newest.since(track.last_sample);
            let expected = match announced || !inner.publishers.iter().any(returned) {
                true => behind < self.settings.silence || announced && track.silent,
                false => quiet < Duration::from_secs(1),
            };
            changed |= track.handle.set_present(expected && !track.missing);
            // A viewer who plays a track that has gone gets silence as long as the viewer asks for
            // it, if silence can be made. Otherwise a segment player that plays two tracks would
            // wait for ever.
            let played = track.silent && track.handle.is_asked_for(now, self.settings.reconnect);
            let waited = track.over.is_some() || quiet >= self.settings.reconnect;
            if !announced && waited && !played {
                gone.push(id);
            }
        }
        for id in gone {
            changed = true;
            self.remove(inner, id, now);
        }
        if let Some(learnt) = inner.learn_by_waiting(now, &self.settings) {
            self.learn(inner, learnt);
        }
        if changed {
            self.announce(inner);
        }
        self.note_readiness(inner);
        // A stream whose only publisher left before any sample has nothing to wait for.
        let abandoned = !inner.is_published() && inner.tracks.is_empty();
        if abandoned {
            inner.ended = Some(now);
            self.announce(inner);
        }
        abandoned
    }

    /// Ends a track whose publisher has gone, tells its followers, and removes it.
    fn remove(&self, inner: &mut Inner, id: u32, now: UnixMicros) {
        let Some(at) = inner.track(id) else { return };
        let mut track = inner.tracks.remove(at);
        let name = &track.handle.name;
        if let Err(error) = track.packager.end_stream(now) {
            tracing::warn!(stream = %self.name, track = name, %error, "end of a track");
        }
        tracing::info!(stream = %self.name, track = name, "track ended: nobody publishes it");
        track.handle.set_present(false);
        track.publish();
    }

    /// Sets what segments may last.
    pub(crate) fn learn(&self, inner: &mut Inner, learnt: Learnt) {
        inner.learnt = Some(learnt);
        for track in &mut inner.tracks {
            track.packager.set_target_duration(learnt.target_duration, learnt.regular);
        }
        self.target_duration.send_replace(Some(learnt.target_duration));
        tracing::debug!(stream = %self.name, ?learnt, "what a segment may last");
    }
}
