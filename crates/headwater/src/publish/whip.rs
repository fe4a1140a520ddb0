//! A WHIP server (RFC 9725) to which a file is published.
//!
//! The session is a full ICE agent, and controls which addresses are used: the server may be a lite
//! one. str0m does ICE, DTLS, SRTP and RTCP, and keeps packets that the server may ask for again.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use axum::http::{Method, StatusCode, Uri};
use live::rescale;
use media::Codec;
use media::codec::avc;
use media::flv::TrackId;
use rtp::{AUDIO_RATE, VIDEO_RATE};
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::net::{DatagramRecv, Protocol, Receive};
use str0m::rtp::{Extension, RtpWrite};
use str0m::{Candidate, Event, IceConnectionState, Input, Output as Polled, Rtc};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until, timeout};

use super::PATIENCE;
use super::input::{Due, Media, Samples, Unit};
use super::request::{self, Answer, Connection};
use crate::webrtc::{self, BURST, PAUSE};

/// Constrained Baseline, level 3.1: what every server of WebRTC knows (RFC 7742 6.2).
const COMMON_PROFILE: u32 = 0x42_e0_1f;

/// How often a sender report goes out. By them the server puts video beside audio.
const REPORTS: Duration = Duration::from_secs(1);

/// How much earlier than its sending a sample counts as captured, for sender reports. A report cannot
/// tell of a time that has not come, and frames may be sent long before they are shown.
const LEAD: Duration = Duration::from_secs(1);

/// Packets of video that may be sent again, and for how long.
const KEPT: (usize, Duration) = (512, Duration::from_secs(3));

/// After this time without a datagram the server counts as gone.
const SILENCE: Duration = Duration::from_secs(10);

/// How long the session goes on after the last packet, so that the server can ask for lost ones.
const LINGER: Duration = Duration::from_millis(500);

/// The time of [`LINGER`] is divided into this many steps. Where this process is not run for a while, only the step of
/// that moment is lost, and the server can still ask.
const LINGERS: u32 = 5;

/// How long the end of a session that failed may take.
const GIVE_UP: Duration = Duration::from_secs(1);

/// The most redirections that are followed.
const MOST_REDIRECTIONS: usize = 5;

/// A track on its way to the server.
struct Output {
    track: TrackId,
    kind: MediaKind,
    mid: Mid,
    /// The payload type that the server agreed to.
    payload: Option<Pt>,
    next_sequence: u64,
    /// RTP time of the last sample.
    last: Option<i64>,
}

impl Output {
    fn rate(&self) -> u32 {
        if self.kind.is_video() { VIDEO_RATE } else { AUDIO_RATE }
    }
}

/// A session of WHIP. [`Session::finish`] or [`Session::give_up`] ends it at the server.
pub(super) struct Session {
    rtc: Rtc,
    socket: UdpSocket,
    local: SocketAddr,
    /// URL of the session.
    location: Uri,
    /// The offer and its answer, until [`Session::connect`].
    agreement: Option<(SdpPendingOffer, String)>,
    outputs: Vec<Output>,
    samples: Samples,
    /// When the newest sample was due, and when it was sent.
    paced: Option<(Instant, Instant)>,
    is_connected: bool,
    /// When the last datagram came.
    heard: Instant,
    /// When time 0 of the media counts as captured.
    epoch: Option<Instant>,
    warned_of_b_frames: bool,
}

impl Session {
    /// Offers the tracks of a file to the server. [`Session::connect`] comes next.
    pub(super) async fn open(media: &Media, url: &str) -> anyhow::Result<Self> {
        let (video, audio) = choose(media.tracks()?)?;
        let url = request::parse(url)?;
        let connection = Connection::to(&url).await?;
        // Media go the way of the requests. If the server has other addresses, this one reaches them.
        let socket = UdpSocket::bind((connection.local, 0)).await.context("no socket for media")?;
        let local = socket.local_addr()?;
        let mut rtc = agent(video.as_ref().map(|(_, codec)| codec));
        let candidate = Candidate::host(local, "udp").context("no address for media")?;
        rtc.add_local_candidate(candidate);
        let mut sdp = rtc.sdp_api();
        let tracks = [
            video.map(|(track, _)| (track, MediaKind::Video)),
            audio.map(|track| (track, MediaKind::Audio)),
        ];
        let outputs = tracks.into_iter().flatten().map(|(track, kind)| {
            // One stream: a player keeps its tracks in step.
            let stream = Some("headwater".to_owned());
            let mid = sdp.add_media(kind, Direction::SendOnly, stream, None, None);
            Output { track, kind, mid, payload: None, next_sequence: 1, last: None }
        });
        let outputs = outputs.collect();
        let (offer, pending) = sdp.apply().context("no offer")?;
        let (answer, location) = post(connection, url, &offer.to_sdp_string()).await?;
        Ok(Self {
            rtc,
            socket,
            local,
            location,
            agreement: Some((pending, answer)),
            outputs,
            samples: Samples::default(),
            paced: None,
            is_connected: false,
            heard: Instant::now(),
            epoch: None,
            warned_of_b_frames: false,
        })
    }

    /// Accepts the server's answer, and connects.
    pub(super) async fn connect(&mut self) -> anyhow::Result<()> {
        let Some((pending, answer)) = self.agreement.take() else { return Ok(()) };
        let parsed = SdpAnswer::from_sdp_string(&answer).context("the server's SDP answer")?;
        self.rtc.sdp_api().accept_answer(pending, parsed).context("the server's SDP answer")?;
        for output in &mut self.outputs {
            output.payload = payload(&self.rtc, output.mid);
            if output.payload.is_none() {
                tracing::warn!(track = %output.track, "track left out: the server does not take it");
            }
        }
        self.outputs.retain(|output| output.payload.is_some());
        for output in self.outputs.iter().filter(|output| output.kind.is_video()) {
            if let Some(stream) = self.rtc.direct_api().stream_tx_by_mid(output.mid, None) {
                // All that the server asks for is sent again. By default str0m forgets the requests while
                // more than 15 % of its bytes are such packets.
                stream.set_rtx_cache(KEPT.0, KEPT.1, None);
            }
        }
        ensure!(!self.outputs.is_empty(), "the server takes neither the video nor the audio");

        self.heard = Instant::now();
        let deadline = self.heard + PATIENCE;
        loop {
            let wakes = self.work().await?;
            if self.is_connected {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let to: Vec<_> = answer.lines().filter_map(candidate).collect();
                let (seconds, to) = (PATIENCE.as_secs(), to.join(", "));
                bail!("not connected after {seconds} s: media go by UDP, to one of [{to}]");
            }
            self.sleep(wakes.min(deadline)).await?;
        }
    }

    /// Waits until a time and handles what the server says meanwhile, also if that time is over.
    async fn wait(&mut self, until: Instant) -> anyhow::Result<()> {
        loop {
            let wakes = self.work().await?;
            if Instant::now() >= until {
                return Ok(());
            }
            self.sleep(wakes.min(until)).await?;
        }
    }

    /// Waits for a sample that is due at this time. A session that was held up catches up at twice the speed: all
    /// at once would fill the buffers on the way, and of so many packets the server cannot ask for lost ones in time.
    pub(super) async fn wait_for(&mut self, due: Instant) -> anyhow::Result<()> {
        let soonest = self.paced.map(|(before, at)| at + due.duration_since(before) / 2);
        self.wait(soonest.map_or(due, |soonest| soonest.max(due))).await?;
        self.paced = Some((due, Instant::now()));
        Ok(())
    }

    /// Handles what has come and sends what is to be sent. Returns when there is more to do.
    async fn work(&mut self) -> anyhow::Result<Instant> {
        self.receive()?;
        let now = Instant::now();
        self.rtc.handle_input(Input::Timeout(now.into_std()))?;
        let wakes = self.flush().await?;
        ensure!(
            !self.is_connected || now.duration_since(self.heard) < SILENCE,
            "the server is gone: nothing came for {} s",
            SILENCE.as_secs()
        );
        Ok(wakes.max(now + Duration::from_millis(1)))
    }

    /// Sleeps until a time or a datagram.
    async fn sleep(&self, until: Instant) -> anyhow::Result<()> {
        tokio::select! {
            ready = self.socket.readable() => Ok(ready?),
            () = sleep_until(until) => Ok(()),
        }
    }

    /// Takes the datagrams that have come. A wrong one ends nothing: anybody can send one.
    fn receive(&mut self) -> anyhow::Result<()> {
        let mut buffer = [0; 2048];
        loop {
            let (size, source) = match self.socket.try_recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("receiving media's answers"),
            };
            let Ok(contents) = DatagramRecv::try_from(&buffer[..size]) else { continue };
            self.heard = Instant::now();
            let (proto, destination) = (Protocol::Udp, self.local);
            let receive = Receive { proto, source, destination, contents };
            let input = Input::Receive(self.heard.into_std(), receive);
            if let Err(error) = self.rtc.handle_input(input) {
                tracing::debug!(%source, %error, "datagram refused");
            }
        }
    }

    /// Sends all datagrams that are ready. Returns when there will be more.
    async fn flush(&mut self) -> anyhow::Result<Instant> {
        loop {
            match self.rtc.poll_output()? {
                Polled::Timeout(wakes) => return Ok(Instant::from_std(wakes)),
                Polled::Transmit(datagram) => {
                    let to = datagram.destination;
                    // One of the server's addresses may be out of reach.
                    if let Err(error) = self.socket.send_to(&datagram.contents, to).await {
                        tracing::debug!(%to, %error, "datagram not sent");
                    }
                }
                Polled::Event(event) => self.handle(&event)?,
            }
        }
    }

    fn handle(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::Connected => self.is_connected = true,
            Event::Closed => bail!("the server ended the session"),
            Event::IceConnectionStateChange(IceConnectionState::Disconnected)
                if self.is_connected =>
            {
                bail!("the connection to the server is lost")
            }
            // A file has its keyframes where they are.
            Event::KeyframeRequest(_) => tracing::debug!("the server asks for a keyframe"),
            _ => {}
        }
        Ok(())
    }

    /// Sends samples now.
    pub(super) async fn send(&mut self, due: Due<'_>) -> anyhow::Result<()> {
        let mut packets = Vec::new();
        for unit in self.samples.of(due) {
            let output = self.outputs.iter_mut().find(|output| output.track == unit.track);
            let Some(output) = output else { continue };
            let payloads = webrtc::payloads(&unit.sample, unit.codec)
                .with_context(|| format!("{}: a sample that cannot be read", unit.track))?;
            let time = rescale(unit.sample.pts(), unit.timescale, output.rate());
            let at = captured(&mut self.epoch, &unit, Instant::now());
            let runs_back = output.kind.is_video() && output.last.is_some_and(|last| time < last);
            if runs_back && !std::mem::replace(&mut self.warned_of_b_frames, true) {
                tracing::warn!("the video has B-frames, which browsers cannot show by WebRTC");
            }
            output.last = Some(time);
            let count = payloads.len();
            for (index, payload) in payloads.into_iter().enumerate() {
                let marker = output.kind.is_video() && index + 1 == count;
                let (Some(pt), sequence) = (output.payload, output.next_sequence) else { continue };
                output.next_sequence += 1;
                let size = payload.len();
                // RTP times wrap after 32 bits.
                let write = RtpWrite::new(pt, sequence.into(), time as u32, at.into_std(), payload);
                let write = write.marker(marker).nackable(output.kind.is_video());
                packets.push((output.mid, size, write));
            }
        }
        let mut sent = 0;
        for (mid, size, write) in packets {
            sent += size;
            if let Some(stream) = self.rtc.direct_api().stream_tx_by_mid(mid, None) {
                stream.write_rtp(write);
            }
            if sent >= BURST {
                sent = 0;
                self.wait(Instant::now() + PAUSE).await?;
            }
        }
        self.wait(Instant::now()).await
    }

    /// Ends the session when the server had time to ask for what it lacks.
    pub(super) async fn finish(mut self) -> anyhow::Result<()> {
        for _ in 0..LINGERS {
            self.wait(Instant::now() + LINGER / LINGERS).await?;
        }
        let answer = self.end().await?;
        let is_done = answer.status.is_success();
        ensure!(is_done, "the server did not end the session: {}", answer.sentence());
        Ok(())
    }

    /// Ends the session after an error, as far as that is possible.
    pub(super) async fn give_up(mut self) {
        match timeout(GIVE_UP, self.end()).await {
            Ok(Ok(answer)) => tracing::debug!(answer = answer.sentence(), "session ended"),
            Ok(Err(error)) => tracing::debug!("session not ended: {error:#}"),
            Err(_) => tracing::debug!("session not ended in time"),
        }
    }

    /// Deletes the session, and closes the connection.
    async fn end(&mut self) -> anyhow::Result<Answer> {
        let connection = Connection::to(&self.location).await?;
        let answer = connection.ask(Method::DELETE, None).await?;
        if self.rtc.close().is_ok() {
            // The server may have closed it first.
            let _ = self.flush().await;
        }
        Ok(answer)
    }
}

/// The video and the audio that WHIP carries.
type Chosen = (Option<(TrackId, Codec)>, Option<TrackId>);

/// Chooses the first H.264, AV1 or HEVC, and the first Opus.
fn choose(tracks: Vec<(TrackId, Codec)>) -> anyhow::Result<Chosen> {
    let (mut video, mut audio) = (None, None);
    for (track, codec) in tracks {
        let name = codec.rfc6381().into_owned();
        let is_video = webrtc::carried(&codec).is_some();
        match codec {
            codec if is_video && video.is_none() => video = Some((track, codec)),
            Codec::Opus(config) if audio.is_none() && config.channels <= 2 => audio = Some(track),
            codec if is_video || matches!(codec, Codec::Opus(_)) => {
                let why = "WHIP carries one video, and one audio of one or two channels";
                tracing::warn!(%track, codec = name, "track left out: {why}");
            }
            _ => {
                let why = "WHIP carries H.264, AV1 and HEVC (Main profiles), and Opus here";
                tracing::warn!(%track, codec = name, "track left out: {why}");
            }
        }
    }
    ensure!(
        video.is_some() || audio.is_some(),
        "no track that WHIP could carry: the file has no H.264, AV1 or HEVC (Main profiles), or Opus"
    );
    Ok((video, audio))
}

/// The agent of a session that publishes video of this configuration, and Opus.
fn agent(video: Option<&Codec>) -> Rtc {
    let mut config = Rtc::builder()
        .set_crypto_provider(Arc::new(str0m::crypto::from_feature_flags()))
        .set_rtp_mode(true)
        .set_rtcp_report_interval_video(REPORTS)
        .set_rtcp_report_interval_audio(REPORTS)
        .set_stats_interval(None)
        .clear_codecs()
        .enable_opus(true, false)
        // Transport-wide sequence numbers are for encoders that adapt. A file does not.
        .clear_extension_map()
        .set_extension(1, Extension::RtpMid);
    match video {
        Some(Codec::Avc(video)) => {
            for (profile, number) in profiles(video).into_iter().zip([96, 98]) {
                let (payload, resend) = (number.into(), Some((number + 1).into()));
                config.codec_config().add_h264(payload, resend, true, profile);
            }
        }
        Some(Codec::Hevc(video)) => {
            let of = &video.profile_tier_level;
            let (profile, tier, level) = (of.profile, of.high_tier.into(), of.level);
            let (payload, resend) = (96.into(), Some(97.into()));
            config.codec_config().add_h265(payload, resend, profile, tier, level);
        }
        // No level is named: str0m takes only an answer that has the same, and servers name the default.
        Some(_) => config = config.enable_av1(true),
        None => {}
    }
    config.build(Instant::now().into_std())
}

/// Values of `profile-level-id` (RFC 6184 8.1) to offer: that of the video, and that which every server
/// knows. The media are the same with both. str0m allows one of each profile.
fn profiles(video: &avc::Config) -> Vec<u32> {
    let has = |flags| video.compatibility & flags == flags;
    // Each profile in the form in which browsers name it: some servers compare the flags.
    let own = match video.profile {
        0x42 if has(0x40) => 0x42_e0,
        0x4d if has(0x80) => 0x42_e0,
        0x42 => 0x42_00,
        0x4d => 0x4d_00,
        0x64 if has(0x0c) => 0x64_0c,
        0x64 => 0x64_00,
        _ => return vec![COMMON_PROFILE],
    };
    let profile = own << 8 | u32::from(video.level);
    if own == COMMON_PROFILE >> 8 { vec![profile] } else { vec![profile, COMMON_PROFILE] }
}

/// The payload type of the first format of ours that the server takes. `None` if it takes none.
fn payload(rtc: &Rtc, mid: Mid) -> Option<Pt> {
    let media = rtc.media(mid).filter(|media| media.direction().is_sending())?;
    let is_video = media.kind().is_video();
    let mut ours = rtc.codec_config().params().iter();
    let found = ours.find(|params| {
        params.spec().codec.is_video() == is_video && media.remote_pts().contains(&params.pt())
    });
    found.map(|params| params.pt())
}

/// The address and port of a candidate for UDP, if this line of a description is one.
fn candidate(line: &str) -> Option<String> {
    let fields: Vec<_> = line.trim().strip_prefix("a=candidate:")?.split_whitespace().collect();
    let [_, _, protocol, _, address, port, ..] = fields[..] else { return None };
    protocol.eq_ignore_ascii_case("udp").then(|| format!("{address}:{port}"))
}

/// Posts an offer, also where the server says to post it elsewhere. Returns the answer and the
/// session's URL.
async fn post(
    mut connection: Connection,
    mut url: Uri,
    offer: &str,
) -> anyhow::Result<(String, Uri)> {
    for _ in 0..=MOST_REDIRECTIONS {
        let answer = connection.ask(Method::POST, Some(("application/sdp", offer))).await?;
        match answer.status {
            StatusCode::CREATED => {
                let location = answer.location(&url)?;
                return Ok((answer.payload, location));
            }
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                url = answer.location(&url)?;
                connection = Connection::to(&url).await?;
            }
            _ => bail!("{url}: the server refused: {}", answer.sentence()),
        }
    }
    bail!("{url}: more than {MOST_REDIRECTIONS} redirections")
}

/// When a sample counts as captured, on the clock of audio and video. The first sample sets it.
fn captured(epoch: &mut Option<Instant>, unit: &Unit<'_>, now: Instant) -> Instant {
    let since = |time| {
        let micros = rescale(time, unit.timescale, 1_000_000);
        Duration::from_micros(micros.try_into().unwrap_or(0))
    };
    let begun = || now.checked_sub(since(unit.sample.dts) + LEAD).unwrap_or(now);
    let epoch = *epoch.get_or_insert_with(begun);
    (epoch + since(unit.sample.pts())).min(now)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use media::Sample;

    use super::*;

    #[test]
    fn captures_are_in_the_past_and_on_one_clock() {
        let codec = Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap());
        let track = TrackId { kind: media::Kind::Video, number: 0 };
        let (mut epoch, now) = (None, Instant::now());
        let mut at = |dts, cts, timescale, now| {
            let sample = Sample { dts, cts, duration: 0, sync: true, data: Bytes::new() };
            captured(&mut epoch, &Unit { track, codec: &codec, timescale, sample }, now)
        };
        // A frame that is shown 80 ms after it is decoded, and the audio of that time.
        let first = at(90_000, 7_200, 90_000, now);
        assert_eq!(first + LEAD, now + Duration::from_millis(80));
        let later = now + Duration::from_millis(100);
        assert_eq!(at(48_000 + 3_840, 0, 48_000, later), first);
        // Frames that are shown very late, and times before 0, are never ahead of the clock.
        assert_eq!(at(180_000, 900_000, 90_000, later), later);
        assert!(at(-90_000, 0, 90_000, later) <= later);
    }

    #[test]
    fn the_first_tracks_that_fit_are_chosen() {
        let video = Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap());
        let opus = |channels, family: &[u8]| {
            let record = [&[0, channels, 0, 0, 0, 0, 0xbb, 0x80, 0, 0][..], family].concat();
            Codec::Opus(media::codec::opus::Config::parse(record.into()).unwrap())
        };
        let video_id = |number| TrackId { kind: media::Kind::Video, number };
        let audio_id = |number| TrackId { kind: media::Kind::Audio, number };
        let surround = opus(6, &[1, 4, 2, 0, 4, 1, 2, 3, 5]);
        let tracks = vec![
            (audio_id(0), surround.clone()),
            (video_id(0), video.clone()),
            (video_id(1), video),
            (audio_id(1), opus(2, &[0])),
        ];
        let (video, audio) = choose(tracks).unwrap();
        assert_eq!(video.map(|(track, _)| track), Some(video_id(0)));
        assert_eq!(audio, Some(audio_id(1)));
        let error = choose(vec![(audio_id(0), surround)]).unwrap_err().to_string();
        assert!(error.contains("no H.264, AV1 or HEVC (Main profiles), or Opus"), "{error}");
    }

    #[test]
    fn offers_name_the_profile_of_the_video() {
        let of = |profile, compatibility| {
            let config = avc::Config::parse(testkit::avc_record(31).into()).unwrap();
            profiles(&avc::Config { profile, compatibility, level: 40, ..config })
        };
        for (profile, flags, expected) in [
            (0x42, 0xc0, &[0x42_e0_28][..]),
            (0x42, 0x00, &[0x42_00_28, COMMON_PROFILE]),
            (0x4d, 0x80, &[0x42_e0_28]),
            (0x4d, 0x40, &[0x4d_00_28, COMMON_PROFILE]),
            (0x64, 0x00, &[0x64_00_28, COMMON_PROFILE]),
            (0x64, 0x0c, &[0x64_0c_28, COMMON_PROFILE]),
            (0x58, 0xc0, &[COMMON_PROFILE]),
            (0x6e, 0x00, &[COMMON_PROFILE]),
        ] {
            assert_eq!(of(profile, flags), expected, "{profile:x} {flags:x}");
        }
    }

    #[test]
    fn candidates_of_an_answer() {
        let line = "a=candidate:1 1 UDP 2130706175 192.0.2.7 8189 typ host\r";
        assert_eq!(candidate(line).as_deref(), Some("192.0.2.7:8189"));
        let tcp = line.replace("UDP", "tcp") + " tcptype passive";
        for other in [tcp.as_str(), "a=mid:0"] {
            assert_eq!(candidate(other), None);
        }
    }
}
