//! WebRTC by WHEP (draft-ietf-wish-whep): an offer by HTTP, then H.264, AV1 or HEVC, and Opus by RTP,
//! both over one UDP socket. str0m does ICE, DTLS, SRTP and RTCP.
//!
//! ```text
//! POST offer ─▶ answer ─▶ ICE, DTLS ─▶ datagrams ─▶ str0m ─▶ RTP packets ─▶ media::Media ─▶ playback
//! ```

mod media;

use std::collections::HashSet;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use str0m::change::SdpAnswer;
use str0m::format::Codec;
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::{DatagramRecv, Protocol, Receive};
use str0m::rtp::Extension;
use str0m::{Candidate, Event, IceConnectionState, Input, Output, Rtc};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout};

use self::media::Media;
use crate::dtls::Identity;
use crate::http::{Body, Change, Client, Request};
use crate::url::Url;
use crate::watchdog::Watchdog;
use crate::{Asks, Error, Kind, Viewer};

/// Longest answer, in bytes.
const MAX_ANSWER: usize = 64 << 10;
/// Shortest sleep: str0m's times may be over already.
const SHORTEST: Duration = Duration::from_millis(1);
/// How long a server may take to remove a session. A run does not wait for it.
const PARTING: Duration = Duration::from_secs(1);

/// Plays until the server ends the session.
pub(super) async fn play(viewer: &Viewer, url: &Url) -> Result<(), Error> {
    let mut player = Box::pin(Player::open(viewer, url)).await.map_err(|error| error.at(url))?;
    player.run().await.map_err(|error| error.at(url))
}

/// Removes a session at the server. If that fails, the server notices that nobody is there.
pub(super) async fn end(viewer: &Viewer, session: &Url) {
    let request = Request::new(session, Asks::Stream);
    let mut told = Vec::new();
    let mut client = Client::changing(viewer, &Change::Delete);
    let _ = timeout(PARTING, client.send(request, Body::Text(&mut told, MAX_ANSWER))).await;
    viewer.lane.give_back(told);
}

struct Player<'a> {
    viewer: &'a Viewer,
    rtc: Box<Rtc>,
    socket: UdpSocket,
    local: SocketAddr,
    watchdog: Watchdog,
    media: Media<'a>,
    /// When str0m has something to do.
    wakes: Instant,
    /// When the last datagram came; before that, when the answer did.
    heard: Instant,
    is_connected: bool,
    is_over: bool,
}

impl<'a> Player<'a> {
    /// Makes the offer and takes the answer.
    async fn open(viewer: &'a Viewer, url: &Url) -> Result<Self, Error> {
        // Media go the way of the requests. If the server has other addresses, this one reaches
        // them.
        let socket = viewer.lane.open_udp(url.host(), url.port()).await?;
        let local = socket.local_addr().map_err(|error| Error::io(&error, "opening a socket"))?;
        let mut rtc = Box::new(agent(viewer.lane.identity()?));
        let candidate = Candidate::host(local, "udp");
        let candidate = candidate.map_err(|error| Error::new(Kind::Local, error.to_string()))?;
        rtc.add_local_candidate(candidate);
        let mut sdp = rtc.sdp_api();
        let video = sdp.add_media(MediaKind::Video, Direction::RecvOnly, None, None, None);
        let audio = sdp.add_media(MediaKind::Audio, Direction::RecvOnly, None, None, None);
        let (offer, pending) =
            sdp.apply().ok_or_else(|| Error::new(Kind::Local, "nothing to offer"))?;
        let offer = offer.to_sdp_string();
        let change = Change::Post { kind: "application/sdp", payload: &offer };
        let request = Request::new(url, Asks::Stream);
        let mut text = Vec::new();
        let mut client = Client::changing(viewer, &change);
        let answered = client.send(request, Body::Text(&mut text, MAX_ANSWER)).await?;
        *viewer.session.borrow_mut() = answered.made(url)?.map(Box::new);
        let answer = parse(&text)?;
        viewer.lane.give_back(text);
        let accepted = rtc.sdp_api().accept_answer(pending, answer);
        accepted.map_err(|error| Error::new(Kind::Garbage, format!("SDP answer: {error}")))?;
        let of_video = [Codec::H264, Codec::Av1, Codec::H265].map(|codec| (video, codec));
        let mut ours = of_video.into_iter().chain([(audio, Codec::Opus)]);
        if !ours.any(|(mid, codec)| sends(&rtc, mid, codec)) {
            let what = "the server sends no H.264, AV1, HEVC or Opus";
            return Err(Error::new(Kind::Unsupported, what));
        }
        // What was counted before a connection was lost stays.
        viewer.stats().webrtc.get_or_insert_default();
        let now = Instant::now();
        Ok(Self {
            viewer,
            rtc,
            socket,
            local,
            watchdog: Watchdog::new(viewer.lane.options.patience),
            media: Media::new(viewer, video, audio),
            wakes: now,
            heard: now,
            is_connected: false,
            is_over: false,
        })
    }

    async fn run(&mut self) -> Result<(), Error> {
        let patience = self.viewer.lane.options.patience;
        let begun = self.heard;
        loop {
            let now = Instant::now();
            self.work(now)?;
            if self.is_over {
                let now = self.viewer.now();
                self.viewer.stats().playback.complete(now);
                return Ok(());
            }
            let limit = if self.is_connected { self.heard } else { begun } + patience;
            if now >= limit {
                let doing = if self.is_connected { "reading" } else { "connecting by UDP" };
                let what = format!("{doing}: nothing for {patience:?}");
                return Err(Error::new(Kind::Timeout, what));
            }
            let media = self.media.deadline().map_or(limit, Instant::from_std);
            let until = self.wakes.min(media).max(now + SHORTEST).min(limit);
            let readable = poll_fn(|context| self.socket.poll_recv_ready(context));
            if let Some(ready) = self.watchdog.until(until, readable).await {
                ready.map_err(|error| Error::io(&error, "reading"))?;
                self.receive()?;
            }
        }
    }

    /// Does what is due without a datagram.
    fn work(&mut self, now: Instant) -> Result<(), Error> {
        self.media.let_pass(now.into_std())?;
        let asks = self.media.ask_for_keyframe(&mut self.rtc, now.into_std());
        // What was asked for is sent only after time has passed.
        if asks || now >= self.wakes {
            self.rtc.handle_input(Input::Timeout(now.into_std()))?;
            self.poll(now)?;
        }
        Ok(())
    }

    /// Takes the datagrams that have come. A wrong one ends nothing: anybody can send one.
    fn receive(&mut self) -> Result<(), Error> {
        loop {
            let mut scratch = self.viewer.lane.scratch();
            let (size, source) = match self.socket.try_recv_from(&mut scratch) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(Error::io(&error, "reading")),
            };
            let now = Instant::now();
            self.heard = now;
            let before = self.media.bytes;
            if let Ok(contents) = DatagramRecv::try_from(scratch.get(..size).unwrap_or_default()) {
                let (proto, destination) = (Protocol::Udp, self.local);
                let receive = Receive { proto, source, destination, contents };
                let _ = self.rtc.handle_input(Input::Receive(now.into_std(), receive));
            }
            drop(scratch);
            self.poll(now)?;
            // Payloads of media count as media; RTP's headers and what encryption adds do not.
            let media = (self.media.bytes - before).min(size);
            if media > 0 {
                self.viewer.count_media(media);
            }
            self.viewer.count_overhead(size - media);
            self.media.let_pass(now.into_std())?;
            if self.is_over {
                return Ok(());
            }
        }
    }

    /// Sends what is to be sent, and takes what str0m tells.
    fn poll(&mut self, now: Instant) -> Result<(), Error> {
        loop {
            match self.rtc.poll_output()? {
                Output::Timeout(wakes) => {
                    self.wakes = Instant::from_std(wakes);
                    return Ok(());
                }
                Output::Transmit(datagram) => {
                    // One that does not fit into the socket's buffer is lost, as on the way. One of
                    // the server's addresses may be out of reach.
                    let sent = self.socket.try_send_to(&datagram.contents, datagram.destination);
                    self.viewer.count_sent(sent.unwrap_or_default());
                }
                Output::Event(event) => self.event(event, now)?,
            }
        }
    }

    fn event(&mut self, event: Event, now: Instant) -> Result<(), Error> {
        match event {
            Event::Connected => self.is_connected = true,
            Event::RtpPacket(packet) => self.media.take(packet, &mut self.rtc, now.into_std()),
            Event::SenderFeedback(feedback) => self.media.report(&feedback.sender_info),
            // WebRTC does not tell whether the stream is over, or only the session.
            Event::Closed if self.is_connected && self.viewer.lane.options.reconnect => {
                return Err(Error::new(Kind::Dropped, "closed by the server"));
            }
            Event::Closed if self.is_connected => self.is_over = true,
            Event::Closed => return Err(Error::new(Kind::Dropped, "closed while connecting")),
            Event::IceConnectionStateChange(IceConnectionState::Disconnected)
                if self.is_connected =>
            {
                return Err(Error::new(Kind::Dropped, "the server no longer answers"));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The agent of a session that takes H.264, AV1 and HEVC, in this order, and Opus.
fn agent(identity: &Identity) -> Rtc {
    Rtc::builder()
        .set_crypto_provider(Arc::clone(&identity.crypto))
        .set_dtls_cert(identity.certificate.clone())
        .set_rtp_mode(true)
        .set_stats_interval(None)
        .clear_codecs()
        .enable_opus(true, false)
        .enable_h264(true)
        .enable_av1(true)
        .enable_h265(true)
        // Transport-wide sequence numbers cost the server as much as the media do, and a viewer
        // that does not choose has no use for them.
        .clear_extension_map()
        .set_extension(1, Extension::RtpMid)
        .build(Instant::now().into_std())
}

/// Reads an answer.
fn parse(text: &[u8]) -> Result<SdpAnswer, Error> {
    let garbage = |what: String| Error::new(Kind::Garbage, format!("SDP answer: {what}"));
    let text = std::str::from_utf8(text).map_err(|_| garbage("not UTF-8".to_owned()))?;
    let mut known = HashSet::new();
    let maps = text.lines().filter_map(|line| line.trim_end().strip_prefix("a=rtpmap:"));
    for payload in maps.filter_map(|map| map.split(' ').next()) {
        // There is one description of each kind, so nothing is mapped twice. str0m may panic at it.
        if !known.insert(payload) {
            return Err(garbage(format!("payload type {payload} twice")));
        }
    }
    SdpAnswer::from_sdp_string(text).map_err(|error| garbage(error.to_string()))
}

/// Whether the server agreed to send this.
fn sends(rtc: &Rtc, mid: Mid, codec: Codec) -> bool {
    let Some(media) = rtc.media(mid).filter(|media| media.direction().is_receiving()) else {
        return false;
    };
    let mut ours = rtc.codec_config().params().iter();
    ours.any(|ours| ours.spec().codec == codec && media.remote_pts().contains(&ours.pt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_none_are_garbage() {
        let twice = "v=0\r\na=rtpmap:96 H264/90000\r\na=rtpmap:96 H264/90000\r\n";
        for text in [&b""[..], b"\xff", b"<html></html>", b"v=0\r\n", twice.as_bytes()] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind, Kind::Garbage, "{error}");
        }
    }
}
