//! WebRTC by WHEP: frames as RTP packets over UDP. str0m does all of its protocols. A viewer's zero is the
//! moment when it is connected.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use str0m::change::SdpOffer;
use str0m::format::Codec;
use str0m::media::{MediaKind, MediaTime, Mid, Pt};
use str0m::net::{DatagramRecv, Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc};
use tokio::net::UdpSocket;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::session::Session;
use crate::calibrate::script::Script;
use crate::calibrate::stream::{Stream, TICKS};

/// Longest datagram that is read.
const MAX_DATAGRAM: usize = 2000;
/// How long a viewer may take to connect.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses between frames that are due at once, because a receive buffer holds only some forty frames.
///
/// The first is for live streams, so that a stall is hardly prolonged. The second is for others.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(5)];
/// Units of RTP's time in a frame.
const RTP_TICKS: u64 = 90 * TICKS as u64;

/// Answers an offer, and serves the viewer from then on.
pub(super) async fn begin(session: &Rc<Session>, offer: &[u8]) -> anyhow::Result<String> {
    let offer = std::str::from_utf8(offer).context("offer")?;
    let offer = SdpOffer::from_sdp_string(offer).context("offer")?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let local = socket.local_addr()?;
    let mut rtc = Rtc::builder()
        .set_crypto_provider(Arc::new(str0m::crypto::from_feature_flags()))
        .set_ice_lite(true)
        .set_stats_interval(None)
        .clear_codecs()
        .enable_h264(true)
        .build(Instant::now().into_std());
    rtc.add_local_candidate(Candidate::host(local, "udp")?);
    let answer = rtc.sdp_api().accept_offer(offer)?.to_sdp_string();
    let buffer = vec![0; MAX_DATAGRAM];
    let mut sender = Sender {
        rtc,
        socket,
        local,
        buffer,
        video: None,
        is_connected: false,
        losses: Losses::default(),
    };
    let session = Rc::clone(session);
    spawn_local(async move { sender.run(&session).await.is_ok() });
    Ok(answer)
}

/// The connection to a viewer.
struct Sender {
    rtc: Rtc,
    socket: UdpSocket,
    local: SocketAddr,
    buffer: Vec<u8>,
    /// The media line of the video.
    video: Option<Mid>,
    is_connected: bool,
    losses: Losses,
}

/// The packets of media that are not sent.
#[derive(Debug, Default)]
struct Losses {
    /// The payload type of media that are sent the first time. What is sent again has another.
    first: u8,
    /// How many of the next packets of media are lost.
    next: usize,
    /// Whether what is sent again is lost.
    again: bool,
}

impl Losses {
    /// Prepares for a frame.
    fn begin(&mut self, script: &Script, picture: u32) {
        let Some(loss) = &script.loss else { return };
        self.next = match picture {
            _ if picture == loss.always => usize::MAX,
            _ if loss.once.contains(&picture) => 1,
            _ => 0,
        };
        // What is lost once is asked for long before that.
        self.again = picture >= loss.always;
    }

    /// Whether a datagram is lost.
    fn take(&mut self, datagram: &[u8]) -> bool {
        // RTP has payload types from 96 on here. The types of RTCP look like 72 to 79 in this place (RFC 5761 4).
        let (Some(128..=191), Some(kind)) = (datagram.first(), datagram.get(1)) else {
            return false;
        };
        let payload_type = kind & 0x7f;
        if payload_type < 96 {
            return false;
        }
        if payload_type != self.first {
            return self.again;
        }
        let is_lost = self.next > 0;
        self.next = self.next.saturating_sub(usize::from(is_lost));
        is_lost
    }
}

impl Sender {
    /// Connects, sends the stream, and ends.
    async fn run(&mut self, session: &Session) -> anyhow::Result<()> {
        timeout(PATIENCE, self.connect()).await??;
        session.asked();
        self.drive(session.delay()).await?;
        let (mid, payload) = self.line()?;
        self.losses.first = *payload;
        let pause = PAUSES[usize::from(!session.script.is_live())];
        for piece in 0..session.script.pieces() {
            self.drive(session.wait_for(piece)).await?;
            for sample in session.samples(piece)? {
                let data = Stream::annex_b(&sample);
                self.drive(session.carry(data.len())).await?;
                self.losses.begin(&session.script, piece);
                let number = u64::try_from(sample.dts).unwrap_or_default() / u64::from(TICKS);
                let time = MediaTime::from_90khz(number * RTP_TICKS);
                let captured = session.instant(session.script.captured(piece));
                let writer = self.rtc.writer(mid).context("no video")?;
                writer.write(payload, captured, time, data)?;
                self.drive(sleep(pause)).await?;
            }
        }
        self.rtc.close()?;
        self.transmit().await?;
        Ok(())
    }

    async fn connect(&mut self) -> anyhow::Result<()> {
        while !self.is_connected {
            self.step(std::future::pending::<()>()).await?;
        }
        Ok(())
    }

    /// The media line and payload type of H.264.
    fn line(&mut self) -> anyhow::Result<(Mid, Pt)> {
        let mid = self.video.context("an offer without video")?;
        let writer = self.rtc.writer(mid).context("no video")?;
        let mut ours = writer.payload_params();
        let h264 = ours.find(|ours| ours.spec().codec == Codec::H264).context("no H.264")?;
        Ok((mid, h264.pt()))
    }

    /// Serves the connection until something else is done.
    async fn drive<T>(&mut self, until: impl Future<Output = T>) -> anyhow::Result<T> {
        let mut until = pin!(until);
        loop {
            if let Some(done) = self.step(&mut until).await? {
                return Ok(done);
            }
        }
    }

    /// Sends what is to be sent, and waits: for a datagram, for str0m's time, or for something else.
    async fn step<T>(&mut self, until: impl Future<Output = T>) -> anyhow::Result<Option<T>> {
        let wakes = self.transmit().await?;
        ensure!(self.rtc.is_alive(), "the viewer has left");
        let (size, source) = tokio::select! {
            biased;
            received = self.socket.recv_from(&mut self.buffer) => received?,
            () = sleep_until(wakes) => {
                self.rtc.handle_input(Input::Timeout(Instant::now().into_std()))?;
                return Ok(None);
            }
            done = until => return Ok(Some(done)),
        };
        // Anybody can send a wrong datagram.
        let bytes = self.buffer.get(..size).unwrap_or_default();
        if let Ok(contents) = DatagramRecv::try_from(bytes) {
            let destination = self.local;
            let receive = Receive { proto: Protocol::Udp, source, destination, contents };
            self.rtc.handle_input(Input::Receive(Instant::now().into_std(), receive))?;
        }
        Ok(None)
    }

    /// Sends what is to be sent; returns when str0m has more to do.
    async fn transmit(&mut self) -> anyhow::Result<Instant> {
        loop {
            match self.rtc.poll_output()? {
                Output::Timeout(wakes) => return Ok(Instant::from_std(wakes)),
                Output::Transmit(datagram) => {
                    if self.losses.take(&datagram.contents) {
                        continue;
                    }
                    self.socket.send_to(&datagram.contents, datagram.destination).await?;
                }
                Output::Event(Event::Connected) => self.is_connected = true,
                Output::Event(Event::MediaAdded(added)) if added.kind == MediaKind::Video => {
                    self.video = Some(added.mid);
                }
                Output::Event(_) => {}
            }
        }
    }
}
