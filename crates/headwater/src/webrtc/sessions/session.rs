//! One session: a peer connection, and the stream that it brings or takes.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use str0m::net::{DatagramRecv, Receive, Transmit};
use str0m::{Event, Input, Output, Rtc, RtcError};
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::paths::Paths;
use super::shared::Shared;
use super::stun::binding_request;
use super::viewer::Viewer;
use super::{Datagram, Message, Waiting, Wanted};
use crate::sessions::Session as Listed;
use crate::webrtc::end::{CONNECTS, End, SILENCE, Unconnected};
use crate::webrtc::play::Heard;
use crate::webrtc::publish::Publish;
use crate::webrtc::send::path::Path;

/// The shortest time after which str0m is asked again.
const SHORTEST: Duration = Duration::from_millis(1);

/// How long a session still takes datagrams that came before its end. Where this process was not run for a while, a
/// publisher's request to end the session may be read before them, and a peer whose datagrams wait may seem to be silent.
/// The time has a limit because others may send to the same socket without a pause.
const CLOSING: Duration = Duration::from_secs(1);

/// A session that is not connected after [`SILENCE`] goes on while no time as long as this passes without a datagram: on
/// a bad link, messages of DTLS are lost, and sent again after 1 s, 2 s and 4 s. Checks of connectivity come meanwhile.
const HEARD: Duration = Duration::from_secs(5);

/// What the peer does. A session that plays stays on its thread.
enum Role {
    Publish(Box<Publish>),
    Play(Rc<Viewer>),
}

struct Session {
    rtc: Rtc,
    role: Role,
    shared: Rc<Shared>,
    /// Since when the peer connects, while it is not connected.
    connects: Option<Instant>,
    /// Whether ICE has agreed on a path.
    has_path: bool,
    /// Ends when the peer may no longer publish or play.
    listed: Listed,
    /// The error of the datagram that was refused last.
    refused: Option<RtcError>,
    heard: Instant,
    /// The paths on which the peer's checks of connectivity came.
    paths: Paths,
}

/// Runs a session to its end.
pub(super) async fn run(waiting: Waiting, shared: Rc<Shared>) {
    let Waiting { rtc, wanted, mut inbox, peer, permit, listed, id: _ } = waiting;
    let role = match wanted {
        Wanted::Publish(publish) => Role::Publish(publish),
        Wanted::Play(watched) => Role::Play(Viewer::new(watched, &shared)),
    };
    let now = Instant::now();
    let mut session = Session {
        rtc,
        role,
        shared,
        connects: Some(now),
        has_path: false,
        listed,
        refused: None,
        heard: now,
        paths: Paths::default(),
    };
    let end = match session.drive(&mut inbox).await {
        Ok(never) => match never {},
        Err(end) => end,
    };
    if !matches!(end, End::Asked) {
        session.listed.because(&end);
    }
    let stream = session.name();
    match (&session.role, &end) {
        (_, End::Rtc(error)) => tracing::warn!(%peer, stream, %error, "webrtc session failed"),
        (Role::Publish(_), _) => tracing::info!(%peer, stream, reason = %end, "whip session over"),
        (Role::Play(_), _) => tracing::debug!(%peer, stream, reason = %end, "whep session over"),
    }
    if let Role::Play(viewer) = &session.role {
        viewer.play.borrow_mut().failed(&end);
    }
    session.close();
    drop(permit);
}

impl Session {
    fn name(&self) -> &str {
        match &self.role {
            Role::Publish(publish) => publish.name(),
            Role::Play(viewer) => viewer.name(),
        }
    }

    async fn drive(
        &mut self,
        inbox: &mut mpsc::Receiver<Message>,
    ) -> Result<std::convert::Infallible, End> {
        let mut drained = self.shared.drain.begun();
        let viewer = match &self.role {
            Role::Publish(_) => None,
            Role::Play(viewer) => Some(Rc::clone(viewer)),
        };
        let now = Instant::now();
        // str0m's times may be over already.
        let mut timeout = self.flush(now)?.max(now + SHORTEST);
        let mut asleep = pin!(sleep_until(timeout));
        // Whether the peer has ended the session, and until when datagrams are still taken at the session's end.
        let (mut leaves, mut closes) = (false, None);
        loop {
            let now = Instant::now();
            self.check()?;
            let is_over = leaves || now >= self.deadline();
            closes = is_over.then(|| closes.unwrap_or(now + CLOSING));
            let datagrams = &self.shared.transport.datagrams;
            let has_all = || inbox.is_empty() && !datagrams.is_readable();
            if closes.is_some_and(|until| now >= until || has_all()) {
                return Err(if leaves { End::Asked } else { self.late() });
            }
            let due = match &viewer {
                Some(viewer) => viewer.send(now)?,
                None => None,
            };
            let ends = closes.unwrap_or_else(|| self.deadline());
            let until = due.into_iter().fold(timeout.min(ends), Instant::min);
            if asleep.deadline() != until {
                asleep.as_mut().reset(until);
            }
            let changed = async {
                match &viewer {
                    Some(viewer) => viewer.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(Message::Datagram(datagram)) => self.receive(&datagram),
                    Some(Message::Keyframe) => {
                        if let Role::Publish(publish) = &mut self.role {
                            publish.ask_for_viewers(&mut self.rtc, Instant::now());
                        }
                    }
                    Some(Message::Restart(restart)) => restart.apply(&mut self.rtc)?,
                    // What a viewer sent is of no use any more.
                    Some(Message::End) if viewer.is_some() => return Err(End::Asked),
                    Some(Message::End) => leaves = true,
                    None => return Err(End::Asked),
                },
                // The task that receives datagrams runs meanwhile.
                () = yield_now(), if closes.is_some() => continue,
                // str0m has no part in what a viewer gets, so it need not be asked.
                () = changed => continue,
                () = &mut asleep => {
                    let now = Instant::now();
                    let asks = |viewer: &Rc<Viewer>| {
                        let checked = self.paths.newest();
                        viewer.play.borrow_mut().ask_for_path(checked, &mut self.rtc, now)
                    };
                    if !viewer.as_ref().is_some_and(asks) && now < timeout {
                        continue;
                    }
                    self.rtc.handle_input(Input::Timeout(now.into_std()))?;
                }
                () = &mut drained => return Err(End::Drained),
                over = poll_fn(|cx| self.listed.poll_over(cx)) => return Err(End::Over(over)),
            }
            let now = Instant::now();
            // A peer that leaves may also close the connection.
            let ended = |end| match end {
                End::Lost if leaves => End::Asked,
                end => end,
            };
            timeout = self.flush(now).map_err(ended)?.max(now + SHORTEST);
        }
    }

    /// Takes a datagram. A wrong one ends nothing: anybody can send one in the peer's name.
    fn receive(&mut self, datagram: &Datagram) {
        let now = Instant::now();
        self.heard = now;
        if let Role::Play(viewer) = &self.role
            && kind(&datagram.bytes) == Kind::Rtp
        {
            // str0m would take much longer for it.
            let now = (now, self.shared.origin.now());
            match viewer.play.borrow_mut().hear(&datagram.bytes, now) {
                Heard::Known => {}
                Heard::WantsKeyframe => self.shared.sessions.ask_for_keyframe(viewer.name()),
                Heard::Refused => self.shared.sessions.count_dropped(),
            }
            return;
        }
        if let Role::Publish(publish) = &mut self.role
            && kind(&datagram.bytes) == Kind::Rtp
            && !publish.admits(&datagram.bytes)
        {
            return self.shared.sessions.count_dropped();
        }
        let Ok(contents) = DatagramRecv::try_from(&*datagram.bytes) else {
            return self.shared.sessions.count_dropped();
        };
        let path = datagram.path;
        // The path is ours, so it ends where the datagram came from.
        let (source, destination) = (path.destination, path.source);
        let receive = Receive { proto: path.protocol, source, destination, contents };
        // str0m tells the publisher when a packet came. All else it does now, however long the packet waited here: its
        // time does not go back.
        let (stepped, came) = match kind(&datagram.bytes) {
            Kind::Stun => (Ok(()), now),
            _ => (self.rtc.handle_input(Input::Timeout(now.into_std())), datagram.came),
        };
        let taken =
            stepped.and_then(|()| self.rtc.handle_input(Input::Receive(came.into_std(), receive)));
        if let Err(error) = taken {
            tracing::debug!(%source, stream = self.name(), %error, "datagram refused");
            self.shared.sessions.count_dropped();
            self.refused = Some(error);
        }
        if let Some(request) = binding_request(&datagram.bytes)
            && !self.shared.transport.has_ended(path)
        {
            self.paths.take(path, request.use_candidate(), now);
            if let Role::Play(viewer) = &self.role {
                let mut play = viewer.play.borrow_mut();
                if let Some(before) = play.path() {
                    play.follow(self.way(before));
                }
                play.check(path, &mut self.rtc, now);
            }
        }
    }

    /// The path that str0m takes, or another one that the peer goes over to: that of its last check if the connection
    /// has ended, because the peer then connects again, or the one that it has nominated since. str0m would go on with
    /// the path before for up to 15 s.
    fn way(&self, path: Path) -> Path {
        if self.shared.transport.has_ended(path) {
            return self.paths.newest().unwrap_or(path);
        }
        let other = self.paths.in_place_of(path);
        other.filter(|other| !self.shared.transport.has_ended(*other)).unwrap_or(path)
    }

    /// Sends what str0m wants to send, except RTCP to a viewer: str0m lacks the keys (see `offer::keys`), and `play`
    /// reports in its place.
    fn transmit(&mut self, transmit: &Transmit) {
        let (path, kind) = (Path::from(transmit), kind(&transmit.contents));
        // An answer to a check goes back on its path.
        let is_answer = kind == Kind::Stun && !self.shared.transport.has_ended(path);
        let path = if is_answer { path } else { self.way(path) };
        if let Role::Play(viewer) = &self.role {
            let mut play = viewer.play.borrow_mut();
            match kind {
                Kind::Stun => {}
                Kind::Rtp => return play.find_path(path, &mut self.rtc),
                Kind::Other => play.follow(path),
            }
        }
        self.shared.transport.send(path, &transmit.contents);
    }

    /// Handles all that the connection has to send and tell. Returns when to wake up.
    fn flush(&mut self, now: Instant) -> Result<Instant, End> {
        let timeout = self.poll(now)?;
        let Role::Publish(publish) = &mut self.role else { return Ok(timeout) };
        let own = publish.let_pass(&mut self.rtc, now, &self.shared.origin)?;
        let timeout = if publish.take_asked() {
            // What was asked for is sent only after time has passed.
            self.rtc.handle_input(Input::Timeout(now.into_std()))?;
            self.poll(now)?
        } else {
            timeout
        };
        Ok(own.map_or(timeout, |own| timeout.min(own)))
    }

    fn poll(&mut self, now: Instant) -> Result<Instant, End> {
        loop {
            match self.rtc.poll_output()? {
                Output::Transmit(transmit) => self.transmit(&transmit),
                Output::Event(event) => self.handle(event, now)?,
                Output::Timeout(timeout) => return Ok(Instant::from_std(timeout)),
            }
        }
    }

    fn handle(&mut self, event: Event, now: Instant) -> Result<(), End> {
        match (event, &mut self.role) {
            (Event::IceConnectionStateChange(state), _) => self.has_path |= state.is_connected(),
            (Event::Connected, role) => {
                self.connects = None;
                if let Role::Play(viewer) = role {
                    viewer.play.borrow_mut().begin()?;
                }
            }
            // That ICE is disconnected ends nothing: not all peers send requests while media go (RFC 8445 11
            // asks for indications only, libnice). A silent peer has a `deadline`.
            (Event::Closed, _) => return Err(End::Lost),
            (Event::RtpPacket(packet), Role::Publish(publish)) => {
                publish.take(packet, &mut self.rtc, now)?;
            }
            (Event::SenderFeedback(feedback), Role::Publish(publish)) => publish.report(&feedback),
            _ => {}
        }
        Ok(())
    }

    /// When the session ends, if the peer does not connect or is not heard of until then.
    fn deadline(&self) -> Instant {
        match self.connects {
            None => self.heard + SILENCE,
            // A peer whose messages are refused does not connect by sending more of them.
            Some(since) if self.refused.is_some() => since + SILENCE,
            Some(since) => (since + SILENCE).max(self.heard + HEARD).min(since + CONNECTS),
        }
    }

    /// The end of a session whose deadline is over.
    fn late(&mut self) -> End {
        if self.connects.is_none() {
            return End::Silent;
        }
        End::NeverConnected(match self.refused.take() {
            Some(why) => Unconnected::Refused(why),
            None if self.has_path => Unconnected::Dtls,
            None => Unconnected::Ice,
        })
    }

    /// Ends the session if its peer may no longer publish or play, or if another publisher has its place.
    fn check(&mut self) -> Result<(), End> {
        if let Some(over) = self.listed.look() {
            return Err(End::Over(over));
        }
        match &self.role {
            Role::Publish(publish) if publish.is_replaced() => Err(End::Replaced),
            _ => Ok(()),
        }
    }

    /// Tells the peer that this is the end, as far as one datagram can.
    fn close(&mut self) {
        if let Role::Play(viewer) = &self.role {
            let Shared { origin, transport, batch, .. } = &*self.shared;
            let now = (Instant::now(), origin.now());
            viewer.play.borrow_mut().report(transport, &mut batch.borrow_mut(), now, true);
        }
        if self.rtc.close().is_err() {
            return;
        }
        while let Ok(output) = self.rtc.poll_output() {
            match output {
                Output::Transmit(transmit) => self.transmit(&transmit),
                Output::Event(_) => {}
                Output::Timeout(_) => break,
            }
        }
    }
}

/// What a datagram is, RFC 7983 7.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Stun,
    /// RTP and RTCP, encrypted.
    Rtp,
    Other,
}

fn kind(datagram: &[u8]) -> Kind {
    match datagram.first() {
        Some(0..=3) => Kind::Stun,
        Some(128..=191) => Kind::Rtp,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests;
