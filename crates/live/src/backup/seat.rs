//! A publisher's place: its media go on, or it waits.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

use media::{Codec, Kind, Sample};

use super::Role;
use super::rules::{Rules, Standing};
use super::seats::{Pair, Seats};
use crate::error::{MOST_TRACKS, PublishError, Refused};
use crate::names::{is_name, is_rendition, shown};
use crate::publisher::{Publisher, packageable};
use crate::stream::Entry;
use crate::{PublisherInfo, Stream, UnixMicros};

/// A publisher's seat. It takes tracks and samples as [`Publisher`] does. While the publisher waits, it keeps the
/// configuration of the tracks and drops the samples. Dropping it frees the seat.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    name: Arc<str>,
    info: PublisherInfo,
    /// `None` for a publisher of a rendition, which has no backup.
    membership: Option<Membership>,
    /// The right to publish, while its media go on.
    publisher: Option<Publisher>,
    /// The names of the renditions that its tracks are, if they have names of their own.
    renditions: BTreeMap<u32, String>,
    /// Its tracks, by the publisher's own numbers for them. There are at most [`MOST_TRACKS`].
    tracks: BTreeMap<u32, Described>,
    /// Why it could not go on when it last tried. The log says each reason once.
    refused: Option<PublishError>,
}

/// The part of a publisher in a pair: the first or the backup.
#[derive(Debug)]
struct Membership {
    pair: Arc<Pair>,
    role: Role,
    id: u64,
}

impl Membership {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.pair.lock()
    }

    fn standing(&self) -> Standing {
        self.rules().standing(self.role, self.id)
    }
}

/// A track as its publisher described it last.
#[derive(Debug, Clone)]
struct Described {
    codec: Codec,
    timescale: u32,
    language: [u8; 3],
    /// Whether the publisher ended the track, and has sent no sample since.
    over: bool,
}

impl Seats {
    /// Gives a publisher of `name` its seat. Its media go on at once if nobody else's do, here or, as `elsewhere` says,
    /// on another machine.
    ///
    /// # Errors
    /// Somebody else has the seat, a rendition is to have a backup, or those of [`Registry::publish`](crate::Registry::publish).
    pub fn enter(
        self: &Arc<Self>,
        name: &str,
        (role, info): (Role, PublisherInfo),
        elsewhere: Option<(Role, u64)>,
        now: UnixMicros,
    ) -> Result<Seat, PublishError> {
        if !is_name(name) {
            return Err(PublishError::BadName(shown(name)));
        }
        let mut seat = Seat {
            seats: Arc::clone(self),
            name: name.into(),
            info,
            membership: None,
            publisher: None,
            renditions: BTreeMap::new(),
            tracks: BTreeMap::new(),
            refused: None,
        };
        if seat.info.rendition.is_some() {
            if role == Role::Backup {
                return Err(PublishError::BackupOfRendition);
            }
            seat.publisher =
                Some(self.registry().publish_here(name, seat.info.clone(), Entry::First, now)?);
            return Ok(seat);
        }
        let (membership, publisher) = self.with(name, |pair, rules| {
            let (id, before) = rules.enter(role, seat.info.clone(), now)?;
            rules.place(elsewhere, now);
            match seat.turn(rules, role, now) {
                Ok(publisher) => Ok((Membership { pair: Arc::clone(pair), role, id }, publisher)),
                // The publisher that had the seat keeps it.
                Err(error) => {
                    rules.restore(role, before);
                    Err(error)
                }
            }
        })?;
        (seat.membership, seat.publisher) = (Some(membership), publisher);
        Ok(seat)
    }
}

impl Seat {
    /// The name of the stream.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Information about the publisher.
    pub fn info(&self) -> &PublisherInfo {
        &self.info
    }

    /// The stream, while this one's media go on.
    pub fn stream(&self) -> Option<&Arc<Stream>> {
        self.publisher.as_ref().map(Publisher::stream)
    }

    /// Whether it is a backup.
    pub fn is_backup(&self) -> bool {
        self.membership.as_ref().is_some_and(|membership| membership.role == Role::Backup)
    }

    /// Whether another publisher took its place because it was silent.
    pub fn is_replaced(&self) -> bool {
        let has_lost = self.publisher.as_ref().is_none_or(Publisher::is_replaced);
        let waits = || self.membership.as_ref().is_some_and(|it| it.standing() == Standing::Waits);
        has_lost && !waits()
    }

    /// Names the rendition that the samples of `source` are, as [`Publisher::name`].
    ///
    /// # Errors
    /// Those of [`Publisher::name`]. For a publisher that waits, names of others are found when it goes on.
    pub fn rendition(&mut self, source: u32, rendition: &str) -> Result<(), PublishError> {
        match &mut self.publisher {
            Some(publisher) => publisher.name(source, rendition)?,
            None if !is_rendition(rendition) => {
                return Err(PublishError::BadRendition(shown(rendition)));
            }
            None => {}
        }
        self.renditions.insert(source, rendition.to_owned());
        Ok(())
    }

    /// Announces a track, or a new configuration of one, as [`Publisher::track`].
    ///
    /// # Errors
    /// Those of [`Publisher::track`]. For a publisher that waits, most are found when it goes on.
    pub fn track(
        &mut self,
        source: u32,
        codec: Codec,
        timescale: u32,
        language: [u8; 3],
        now: UnixMicros,
    ) -> Result<(), Refused> {
        packageable(&codec)?;
        if !self.tracks.contains_key(&source) && self.tracks.len() >= MOST_TRACKS {
            return Err(Refused::TooManyTracks);
        }
        let described = Described { codec, timescale, language, over: false };
        self.tracks.insert(source, described.clone());
        let Described { codec, .. } = described;
        self.publish(|publisher| publisher.track(source, codec, timescale, language, now))
    }

    /// Marks that no sample of a track follows, as [`Publisher::end_track`].
    pub fn end_track(&mut self, source: u32, now: UnixMicros) {
        if let Some(described) = self.tracks.get_mut(&source) {
            described.over = true;
        }
        if let Some(publisher) = &mut self.publisher {
            publisher.end_track(source, now);
        }
    }

    /// Takes a sample of an announced track, as [`Publisher::sample`]. If the publisher waits, and its turn has come,
    /// its media go on with the first keyframe.
    ///
    /// # Errors
    /// Those of [`Publisher::sample`].
    pub fn sample(&mut self, source: u32, sample: Sample, now: UnixMicros) -> Result<(), Refused> {
        let described = self.tracks.get_mut(&source).ok_or(Refused::UnknownTrack)?;
        let was_over = std::mem::replace(&mut described.over, false);
        let standing = match &self.membership {
            Some(membership) => membership.rules().hear(membership.role, membership.id, now),
            None => Standing::Live,
        };
        match standing {
            Standing::Replaced => Err(Refused::Replaced),
            Standing::Live => {
                if was_over {
                    self.announce(source, now)?;
                }
                self.publish(|publisher| publisher.sample(source, sample, now))
            }
            Standing::Waits => {
                self.publisher = None;
                if self.can_begin_with(source, &sample) && self.tries(now) {
                    self.publish(|publisher| publisher.sample(source, sample, now))
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Announces a track that was over when the publisher's media went on, and that goes on after all.
    fn announce(&mut self, source: u32, now: UnixMicros) -> Result<(), Refused> {
        let described = self.tracks.get(&source).ok_or(Refused::UnknownTrack)?;
        let Described { codec, timescale, language, .. } = described.clone();
        self.publish(|publisher| match publisher.knows(source) {
            true => Ok(()),
            false => publisher.track(source, codec, timescale, language, now),
        })
    }

    /// Publishes, if its media go on. If another took over meanwhile, it waits from now on.
    fn publish(
        &mut self,
        publish: impl FnOnce(&mut Publisher) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let Some(publisher) = &mut self.publisher else { return Ok(()) };
        let published = publish(publisher);
        if matches!(published, Err(Refused::Replaced))
            && self
                .membership
                .as_ref()
                .is_some_and(|membership| membership.standing() == Standing::Waits)
        {
            self.publisher = None;
            return Ok(());
        }
        published
    }

    /// Whether viewers can go on with this sample. Audio alone goes on with any.
    fn can_begin_with(&self, source: u32, sample: &Sample) -> bool {
        let is_video = |described: &Described| described.codec.kind() == Kind::Video;
        let has_video = self.tracks.values().any(|it| is_video(it) && !it.over);
        sample.sync && (!has_video || self.tracks.get(&source).is_some_and(is_video))
    }

    /// Lets the media of a publisher that waits go on, if that is its turn. Returns whether they do.
    fn tries(&mut self, now: UnixMicros) -> bool {
        match self.begin(now) {
            Ok(begins) => begins,
            Err(error) => {
                if self.refused.as_ref() != Some(&error) {
                    let peer = self.info.peer.map(tracing::field::display);
                    tracing::warn!(stream = %self.name, peer, %error, "publisher cannot go on");
                    self.refused = Some(error);
                }
                false
            }
        }
    }

    /// The right to publish, if that is its turn.
    ///
    /// # Errors
    /// Those of [`Registry::publish`](crate::Registry::publish).
    fn turn(
        &self,
        rules: &mut Rules,
        role: Role,
        now: UnixMicros,
    ) -> Result<Option<Publisher>, PublishError> {
        if !rules.may_begin(role, now) {
            return Ok(None);
        }
        let entry = if rules.is_switch(role) { Entry::Switch } else { Entry::Turn };
        let registry = self.seats.registry();
        let publisher = registry.publish_here(&self.name, self.info.clone(), entry, now)?;
        if rules.begin(role, now) {
            self.seats.switched(&self.name, &self.info, role);
        }
        Ok(Some(publisher))
    }

    /// Lets its media go on, if that is its turn. Returns whether they do.
    ///
    /// # Errors
    /// Those of [`Registry::publish`](crate::Registry::publish).
    fn begin(&mut self, now: UnixMicros) -> Result<bool, PublishError> {
        let Some(membership) = &self.membership else { return Ok(true) };
        let turn = self.turn(&mut membership.rules(), membership.role, now)?;
        let Some(mut publisher) = turn else { return Ok(false) };
        self.refused = None;
        let (stream, peer) = (&*self.name, self.info.peer.map(tracing::field::display));
        for (&source, rendition) in &self.renditions {
            if let Err(error) = publisher.name(source, rendition) {
                tracing::warn!(stream, peer, rendition, %error, "rendition of a publisher");
            }
        }
        for (&source, described) in self.tracks.iter().filter(|(_, described)| !described.over) {
            let Described { codec, timescale, language, .. } = described.clone();
            if let Err(error) = publisher.track(source, codec, timescale, language, now) {
                tracing::warn!(stream, peer, source, %error, "track of a publisher");
            }
        }
        self.publisher = Some(publisher);
        Ok(true)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // The stream loses its publisher before another may take the seat.
        self.publisher = None;
        if let Some(Membership { pair, role, id }) = &self.membership {
            self.seats.with(&self.name, |current, rules| {
                // Numbers begin anew with each pair.
                if Arc::ptr_eq(pair, current) {
                    rules.leave(*role, *id);
                }
            });
        }
    }
}
