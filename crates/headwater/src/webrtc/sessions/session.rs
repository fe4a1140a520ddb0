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

use super::shared::Shared;
use super::stun::binding_request;
use super::viewer::Viewer;
use super::{Datagram, Message, Waiting, Wanted};
use crate::sessions::Session as Listed;
use crate::webrtc::end::{End, SILENCE, Unconnected};
use crate::webrtc::play::Heard;
use crate::webrtc::publish::Publish;
use crate::webrtc::send::path::Path;

/// The shortest time after which str0m is asked again.
const SHORTEST: Duration = Duration::from_millis(1);

/// How long a session still takes datagrams that came before its end. Where this process was not run for a while, a
/// publisher's request to end the session may be read before them, and a peer whose datagrams wait may seem to be silent.
/// The time has a limit because others may send to the same socket without a pause.
const CLOSING: Duration = Duration::from_secs(1);

/// What the peer does. A session that plays stays on its thread.
enum Role {
    Publish(Box<Publish>),
    Play(Rc<Viewer>),
}

struct Session {
    rtc: Rtc,
    role: Role,
    shared: Rc<Shared>,
    /// Until when the peer has time to connect, while it is not connected.
    connects: Option<Instant>,
    /// Whether ICE has agreed on a path.
    has_path: bool,
    /// Ends when the peer may no longer publish or play.
    listed: Listed,
    /// The error of the datagram that was refused last.
    refused: Option<RtcError>,
    heard: Instant,
    /// The path on which the peer's last check of connectivity came.
    checked: Option<Path>,
}

/// Runs a session to its end.
pub(super) async fn run(waiting: Waiting, shared: Rc<Shared>) {
    let Waiting { rtc, wanted, mut inbox, peer, permit, listed, id: _ } = waiting;
    let role = match wanted {
        Wanted::Publish(publish) => Role::Publish(publish),
        Wanted::Play(watched) => Role::Play(Viewer::new(watched, &shared)),
    };
    let now = Instant::now();
    let connects = Some(now + SILENCE);
    let mut session = Session {
        rtc,
        role,
        shared,
        connects,
        has_path: false,
        listed,
        refused: None,
        heard: now,
        checked: None,
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
                        viewer.play.borrow_mut().ask_for_path(self.checked, &mut self.rtc, now)
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
        let transport = &self.shared.transport;
        if binding_request(&datagram.bytes).is_some() && !transport.has_ended(path) {
            self.checked = Some(path);
            if let Role::Play(viewer) = &self.role {
                let mut play = viewer.play.borrow_mut();
                if play.path().is_some_and(|path| transport.has_ended(path)) {
                    play.follow(path);
                }
                play.check(path, &mut self.rtc, now);
            }
        }
    }

    /// The path that str0m takes, or that of the peer's last check if the connection has ended. The peer then connects
    /// again, but str0m would go on with the ended one for 15 s.
    fn way(&self, path: Path) -> Path {
        let has_ended = self.shared.transport.has_ended(path);
        self.checked.filter(|_| has_ended).unwrap_or(path)
    }

    /// Sends what str0m wants to send, except RTCP to a viewer: str0m lacks the keys (see `offer::keys`), and `play`
    /// reports in its place.
    fn transmit(&mut self, transmit: &Transmit) {
        let path = self.way(Path::from(transmit));
        if let Role::Play(viewer) = &self.role {
            let mut play = viewer.play.borrow_mut();
            match kind(&transmit.contents) {
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
                publish.take(packet, &mut self.rtc, now);
            }
            (Event::SenderFeedback(feedback), Role::Publish(publish)) => publish.report(&feedback),
            _ => {}
        }
        Ok(())
    }

    /// When the session ends, if the peer does not connect or is not heard of until then.
    fn deadline(&self) -> Instant {
        self.connects.unwrap_or(self.heard + SILENCE)
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
mod tests {
    use std::cell::RefCell;
    use std::net::UdpSocket;
    use std::sync::Arc;

    use live::{PublisherInfo, backup};
    use quinn_udp::RecvMeta;
    use str0m::net::Protocol;

    use super::*;
    use crate::Origin;
    use crate::access::Grant;
    use crate::config::Config;
    use crate::sessions::{Doing, Who};
    use crate::webrtc::send::Transport;
    use crate::webrtc::send::socket::{BUFFERS, Socket};

    /// A session of a publisher, which has a socket of its own.
    fn session() -> Session {
        let origin = Arc::new(Origin::new(Config::default()));
        let info = PublisherInfo { peer: None, protocol: "whip", rendition: None };
        let publisher = origin.publish("x", backup::Role::Primary, info).unwrap();
        let publish = Publish::new(publisher, (SHORTEST, SHORTEST), (None, &[]), None).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let datagrams = Socket::new(socket).unwrap();
        let who = Who {
            doing: Doing::Publish,
            path: "live/x".to_owned(),
            by: "whip",
            peer: datagrams.address,
        };
        let listed = origin.sessions.begin(who, Grant::default());
        let shared = Shared {
            origin,
            sessions: Default::default(),
            crypto: str0m::crypto::from_feature_flags().into(),
            transport: Transport { datagrams, connections: Default::default() },
            batch: RefCell::default(),
            feeds: Default::default(),
            drain: Default::default(),
        };
        let heard = Instant::now();
        Session {
            rtc: Rtc::builder().build(heard.into_std()),
            role: Role::Publish(Box::new(publish)),
            shared: Rc::new(shared),
            connects: None,
            has_path: false,
            listed,
            refused: None,
            heard,
            checked: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_before_the_peer_ended_its_session_is_taken() {
        let ends = drive(async |peer, shared, to_session| {
            // The time counts from the request on.
            tokio::time::advance(2 * CLOSING).await;
            send(peer, shared);
            to_session.try_send(Message::End).unwrap();
        });
        assert!(matches!(ends.await, (End::Asked, 1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_whose_datagrams_wait_is_not_silent() {
        let begun = Instant::now();
        let ends = drive(async |peer, shared, _| {
            send(peer, shared);
            // As if this process was not run meanwhile.
            tokio::time::advance(SILENCE).await;
        });
        assert!(matches!(ends.await, (End::Silent, 1)));
        assert_eq!(begun.elapsed().as_secs(), 2 * SILENCE.as_secs());
    }

    /// Drives a session while its peer acts, and after that gives it the datagram that the peer has sent. Returns the
    /// session's end, and how many datagrams it has taken.
    async fn drive(
        acts: impl AsyncFnOnce(&UdpSocket, &Shared, &mpsc::Sender<Message>),
    ) -> (End, u64) {
        let mut session = session();
        let shared = Rc::clone(&session.shared);
        let (to_session, mut inbox) = mpsc::channel(8);
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let all = async {
            acts(&peer, &shared, &to_session).await;
            hand_over(&peer, &shared, &to_session).await
        };
        let end = tokio::select! {
            biased;
            end = session.drive(&mut inbox) => end.unwrap_err(),
            never = all => match never {},
        };
        (end, shared.sessions.dropped())
    }

    /// Sends a datagram that has no meaning, so that it is counted when it is taken.
    fn send(peer: &UdpSocket, shared: &Shared) {
        let datagrams = &shared.transport.datagrams;
        peer.send_to(&[99], datagrams.address).unwrap();
        while !datagrams.is_readable() {
            std::thread::yield_now();
        }
    }

    /// Gives that datagram to the session, as the task that receives does.
    async fn hand_over(
        peer: &UdpSocket,
        shared: &Shared,
        to_session: &mpsc::Sender<Message>,
    ) -> std::convert::Infallible {
        let (source, destination) =
            (shared.transport.datagrams.address, peer.local_addr().unwrap());
        let path = Path { protocol: Protocol::Udp, source, destination };
        let mut buffers = vec![vec![0; 100]; BUFFERS];
        let mut metas = [RecvMeta::default(); BUFFERS];
        shared.transport.datagrams.receive(&mut buffers, &mut metas).await.unwrap();
        let datagram = Datagram { path, bytes: [99].into(), came: Instant::now() };
        to_session.send(Message::Datagram(datagram)).await.unwrap();
        std::future::pending().await
    }
}
