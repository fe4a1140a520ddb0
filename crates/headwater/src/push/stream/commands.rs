//! Commands that a viewer sends while it watches: another rendition, another time, a pause.

use std::sync::Arc;

use live::Track;
use live::cursor::{Choice, Cursor};
use media::Kind;
use protocol::push::message::{Command, Discontinuity, Event};
use protocol::push::query::Unit;

use super::{Mode, Watching, header};
use crate::broadcast::Follower;
use crate::push::abr;
use crate::push::session::{Error, Heard, Said};

impl Watching {
    /// Reads what has arrived and carries out the commands. Returns false when the viewer has left
    /// without a close.
    pub(super) fn read(&mut self) -> Result<bool, Error> {
        let Heard { said, left } = self.session.read()?;
        self.heed(said)?;
        Ok(!left)
    }

    pub(super) fn heed(&mut self, said: Vec<Said>) -> Result<(), Error> {
        for said in said {
            match said {
                Said::Command(command) => self.obey(command)?,
                Said::Close(code) => {
                    self.leave()?;
                    self.session.answer_close(code);
                }
            }
        }
        Ok(())
    }

    /// Carries out a command of the viewer.
    fn obey(&mut self, command: Command) -> Result<(), Error> {
        let Command { rendition, max, seek, pause } = command;
        if rendition.is_some() || max.is_some() {
            let before = self.choice.clone();
            if let Some(rendition) = rendition {
                self.choice.rendition = rendition;
            }
            if let Some(max) = max {
                self.choice.max = max;
            }
            if self.choice != before {
                self.choose_again()?;
            }
        }
        if let Some(time) = seek {
            self.leave()?;
            match &mut self.mode {
                Mode::Alone(follower) => {
                    if follower.cursor.seek(time) {
                        self.session.say(&Event::Discontinuity { reason: Discontinuity::Seek });
                    }
                }
                Mode::None | Mode::Subscribed(_) => self.sought = Some(time),
            }
        }
        if let Some(pause) = pause {
            self.paused = pause;
        }
        if self.paused {
            self.leave()?;
            self.mode = Mode::None;
        }
        Ok(())
    }

    /// Follows the rendition that suits its wishes now, from a keyframe on.
    fn choose_again(&mut self) -> Result<(), Error> {
        self.leave()?;
        self.watched = None;
        let Mode::Alone(follower) = &mut self.mode else { return Ok(()) };
        let cursor = &mut follower.cursor;
        let best = cursor.wish(self.choice.clone());
        let is_allowed =
            |track: &Arc<Track>| abr::allows(&self.stream.state(), &self.choice, track);
        // If the server chooses, the viewer keeps its rendition if that is allowed, and goes up
        // when its link shows room.
        let stays = cursor.tracks().find(|track| track.kind == Kind::Video).is_some_and(is_allowed);
        match best {
            Some(best) if !stays => cursor.switch_to(&best),
            _ => cursor.stay(),
        }
        Ok(())
    }

    /// Starts again where the viewer sought while it had no place, or else at the newest keyframe.
    /// It keeps its rendition if that is allowed. Returns false if it has a place, or if there are
    /// no media.
    pub(super) fn begin(&mut self) -> Result<bool, Error> {
        let Mode::None = self.mode else { return Ok(false) };
        let limits = self.session.push.origin.viewer_limits();
        let (state, whole) = (self.stream.state(), self.unit == Unit::Segment);
        let before = self.counted.clone();
        let first = before.filter(|track| abr::allows(&state, &self.choice, track));
        let first = first.or_else(|| abr::begin(&state, &self.choice));
        let first = Choice { rendition: first.map(|track| track.name.clone()), ..self.choice };
        let Some(cursor) = Cursor::chosen(&self.stream, limits, first, whole) else {
            return Ok(false);
        };
        let mut cursor = cursor.with_choice(self.choice.clone());
        let reason = match self.sought.take() {
            Some(time) if cursor.seek(time) => Discontinuity::Seek,
            _ => Discontinuity::Pause,
        };
        let mut follower = Box::new(Follower::new(cursor));
        let header = header(&mut follower)?;
        self.mode = Mode::Alone(follower);
        self.session.say(&Event::Discontinuity { reason });
        match self.video().flatten() {
            Some(track) if !self.counted.as_ref().is_some_and(|now| Arc::ptr_eq(now, &track)) => {
                self.follows(track);
            }
            Some(_) => {}
            None => self.count(None),
        }
        self.session.send_queue.push(header);
        Ok(true)
    }
}
