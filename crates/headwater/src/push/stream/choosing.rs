//! Chooses a viewer's rendition by what its connection shows.

use live::Delivery;
use live::cursor::Next;
use protocol::push::abr::Decision;
use protocol::push::message::{Discontinuity, Event};

use super::{Mode, Watching};
use crate::push::abr::{LiveAbr, Watched};
use crate::push::session::Error;

/// Bytes that TLS holds if it holds any: a record (RFC 8446 5.1). TLS does not tell how much of it
/// is left.
const HELD: usize = 16 << 10;

impl Watching {
    /// Looks at the connection when it is time, and acts on the result. `idle`: nothing is unsent.
    pub(super) fn choose_rendition(&mut self, idle: bool) -> Result<(), Error> {
        self.renew_abr();
        let (Mode::Alone(follower), Some(watched)) = (&mut self.mode, &self.watched) else {
            return Ok(());
        };
        let cursor = &mut follower.cursor;
        let due = {
            let abr = watched.abr.borrow();
            !abr.has_decided() && abr.is_due()
        };
        if due {
            let held = if self.session.wire.transport.holds() { HELD } else { 0 };
            let queued = cursor.waiting() + (self.session.send_queue.len() + held) as u64;
            // A segment comes all at once and takes as long as the link needs.
            let is_segment = cursor.is_whole() && queued > 0;
            watched.look_at(queued, cursor.is_catching_up() || is_segment);
        }
        let mut abr = watched.abr.borrow_mut();
        match abr.take_decided() {
            Decision::Stay => {}
            Decision::Up(rendition) => {
                abr.leaves = false;
                match abr.rendition(rendition) {
                    Some(track) => cursor.switch_to(track),
                    None => cursor.stay(),
                }
            }
            Decision::Down { to, drop } => {
                if let Some(track) = abr.rendition(to) {
                    cursor.switch_to(track);
                    abr.leaves = drop;
                }
            }
            Decision::SkipToLive => {
                let origin = &self.session.push.origin;
                match cursor.skip(origin.now()) {
                    Some(Next::Skipped) => {
                        let (stream, peer) = (self.stream.name(), self.session.peer);
                        origin.slow_viewers.skipped(Delivery::Push, stream, peer);
                        self.session.say(&Event::Discontinuity { reason: Discontinuity::Skipped });
                    }
                    Some(_) => return Err(Error::TooSlow),
                    None => {}
                }
            }
        }
        // There is room for the next media, so this is the time to decide whether to send them.
        if idle && abr.leaves && !abr.is_worth_sending(cursor.waiting()) {
            abr.leaves = false;
            cursor.drop_video();
        }
        Ok(())
    }

    /// Renews the list of renditions to choose from, if it may be out of date.
    fn renew_abr(&mut self) {
        let Some(Some(video)) = self.video() else { return };
        let state = self.stream.state();
        if self.watched.as_ref().is_some_and(|watched| !watched.abr.borrow().is_old(&state)) {
            return;
        }
        match &self.watched {
            Some(watched) => {
                if !watched.abr.borrow_mut().renew(&state, &self.choice, &video) {
                    self.watched = None;
                }
            }
            None => {
                let rule = self.session.rule();
                let abr = LiveAbr::new(rule, &state, &self.choice, &video);
                self.watched = abr.map(|abr| Watched::new(&self.session.wire, abr));
            }
        }
    }
}
