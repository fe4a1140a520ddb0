//! One session: a peer connection, and the stream that it brings or takes.

use std::pin::pin;
use std::time::Duration;

use str0m::net::{DatagramRecv, Protocol, Receive};
use str0m::{Event, IceConnectionState, Input, Output, Rtc};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::end::{End, SILENCE};
use super::play::{Due, Play};
use super::publish::Publish;
use super::sessions::{Datagram, Message, Waiting, Wanted};
use super::shared::Shared;

/// What the peer does. A session that plays stays on its thread.
enum Role {
    Publish(Box<Publish>),
    Play(Box<Play>),
}

struct Session<'a> {
    rtc: Rtc,
    role: Role,
    shared: &'a Shared,
    /// Until when the peer has time to connect, while it is not connected.
    connects: Option<Instant>,
    heard: Instant,
}

/// Runs a session to its end.
pub(super) async fn run(waiting: Waiting, shared: &Shared) {
    let Waiting { rtc, wanted, mut inbox, peer, permit } = waiting;
    let role = match wanted {
        Wanted::Publish(publish) => Role::Publish(publish),
        Wanted::Play(watched) => Role::Play(Box::new(Play::new(watched))),
    };
    let now = Instant::now();
    let connects = Some(now + SILENCE);
    let mut session = Session { rtc, role, shared, connects, heard: now };
    let end = match session.drive(&mut inbox).await {
        Ok(never) => match never {},
        Err(end) => end,
    };
    let stream = session.name();
    match (&session.role, &end) {
        (_, End::Rtc(error)) => tracing::warn!(%peer, stream, %error, "webrtc session failed"),
        (Role::Publish(_), _) => tracing::info!(%peer, stream, reason = %end, "whip session over"),
        (Role::Play(_), _) => tracing::debug!(%peer, stream, reason = %end, "whep session over"),
    }
    session.close();
    drop(permit);
}

impl Session<'_> {
    fn name(&self) -> &str {
        match &self.role {
            Role::Publish(publish) => publish.name(),
            Role::Play(play) => play.name(),
        }
    }

    async fn drive(
        &mut self,
        inbox: &mut mpsc::Receiver<Message>,
    ) -> Result<std::convert::Infallible, End> {
        let mut drained = self.shared.drain.begun();
        loop {
            let now = Instant::now();
            let timeout = self.flush(now)?;
            self.check(now)?;
            let until = timeout.min(self.heard + SILENCE);
            let until = self.connects.map_or(until, |connects| until.min(connects));
            let mut asleep = pin!(sleep_until(until.max(now + Duration::from_millis(1))));
            let due = match &mut self.role {
                Role::Play(play) => Some(play),
                Role::Publish(_) => None,
            };
            let due = async {
                match due {
                    Some(play) => play.next().await,
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
                    Some(Message::End) | None => return Err(End::Asked),
                },
                due = due => self.send(due)?,
                () = &mut asleep => self.rtc.handle_input(Input::Timeout(Instant::now().into_std()))?,
                () = &mut drained => return Err(End::Drained),
            }
        }
    }

    /// Takes a datagram. A wrong one ends nothing: anybody can send one in the peer's name.
    fn receive(&mut self, datagram: &Datagram) {
        self.heard = datagram.came;
        let Ok(contents) = DatagramRecv::try_from(&*datagram.bytes) else {
            return self.shared.sessions.count_dropped();
        };
        let (source, destination) = (datagram.source, datagram.destination);
        let receive = Receive { proto: Protocol::Udp, source, destination, contents };
        let input = Input::Receive(datagram.came.into_std(), receive);
        if let Err(error) = self.rtc.handle_input(input) {
            tracing::debug!(%source, stream = self.name(), %error, "datagram refused");
            self.shared.sessions.count_dropped();
        }
    }

    /// Sends a viewer what is due.
    fn send(&mut self, due: Due) -> Result<(), End> {
        let now = Instant::now();
        if let Role::Play(play) = &mut self.role {
            play.send(due, &mut self.rtc, now, self.shared.origin.now())?;
        }
        // What was written is sent only after time has passed.
        self.rtc.handle_input(Input::Timeout(now.into_std()))?;
        Ok(())
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
                Output::Transmit(transmit) => self.shared.socket.send(&transmit),
                Output::Event(event) => self.handle(event, now)?,
                Output::Timeout(timeout) => return Ok(Instant::from_std(timeout)),
            }
        }
    }

    fn handle(&mut self, event: Event, now: Instant) -> Result<(), End> {
        match (event, &mut self.role) {
            (Event::Connected, role) => {
                self.connects = None;
                if let Role::Play(play) = role {
                    play.begin(&self.shared.feeds);
                }
            }
            (Event::IceConnectionStateChange(IceConnectionState::Disconnected), _)
            | (Event::Closed, _) => return Err(End::Lost),
            (Event::RtpPacket(packet), Role::Publish(publish)) => {
                publish.take(packet, &mut self.rtc, now);
            }
            (Event::SenderFeedback(feedback), Role::Publish(publish)) => publish.report(&feedback),
            (Event::KeyframeRequest(request), Role::Play(play)) if play.is_video(request.mid) => {
                let is_asked = play.begin_again(now);
                let asks = self.shared.sessions.as_ref();
                is_asked.then(|| asks.ask_for_keyframe(play.name()));
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends the session if its time is over.
    fn check(&mut self, now: Instant) -> Result<(), End> {
        if self.connects.is_some_and(|until| now >= until) {
            return Err(End::NeverConnected);
        }
        if now.duration_since(self.heard) >= SILENCE {
            return Err(End::Silent);
        }
        match &self.role {
            Role::Publish(publish) if publish.is_replaced() => Err(End::Replaced),
            _ => Ok(()),
        }
    }

    /// Tells the peer that this is the end, as far as one datagram can.
    fn close(&mut self) {
        if self.rtc.close().is_err() {
            return;
        }
        while let Ok(output) = self.rtc.poll_output() {
            match output {
                Output::Transmit(transmit) => self.shared.socket.send(&transmit),
                Output::Event(_) => {}
                Output::Timeout(_) => break,
            }
        }
    }
}
