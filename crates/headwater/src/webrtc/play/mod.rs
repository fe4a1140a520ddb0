//! A viewer by WHEP.

#[cfg(test)]
mod against_str0m;
mod ages;
pub(super) mod choice;
pub(super) mod feed;
mod link;
pub(super) mod output;
mod resends;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use live::{Stream, Track, UnixMicros, Viewing};
use rtp::srtp::{Receiver, Sender};
use rtp::{AUDIO_RATE, VIDEO_RATE, feedback, rtcp};
use str0m::Rtc;
use str0m::format::Codec;
use str0m::rtp::rtcp::{ExtendedReport, ReceptionReport, ReportBlock, ReportList, Rtcp};
use tokio::time::Instant;

use super::end::End;
use super::offer::Line;
use super::offer::keys::Keys;
use super::send::Transport;
use super::send::batch::Batch;
use super::send::path::Path;
use super::send::source::{self, Numbers, Reference};
use super::{BURST, PAUSE};
use crate::ladder::companion::Watching;
use crate::sessions::Meter;
use crate::traces::Trace;
use choice::Choice;
use feed::{Fed, Feed};
use output::{Output, Subscriber};
use resends::named;

/// Shortest time between two restarts from the newest keyframe, which a viewer asks for by PLI.
const RESTART: Duration = Duration::from_secs(1);

/// From one report on what was sent to the next. Browsers send theirs as often.
const REPORTS: Duration = Duration::from_secs(1);

/// What a datagram of a viewer was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    Known,
    /// The viewer lost a frame, and has begun again from the newest keyframe. A newer one is of use.
    WantsKeyframe,
    /// RTCP that is not authentic, or that has come before.
    Refused,
}

/// The tracks of a stream that a viewer gets, and how its connection carries them.
pub(super) struct Watched {
    pub(super) stream: Arc<Stream>,
    pub(super) video: Option<(Line, Arc<Track>)>,
    pub(super) audio: Option<(Line, Arc<Track>)>,
    /// Makes one of the tracks, or both.
    pub(super) companion: Option<Watching>,
    pub(super) keys: Keys,
    /// The name of both tracks' source in reports, RFC 3550 6.5.1.
    pub(super) cname: String,
    /// Counts what the viewer is sent.
    pub(super) meter: Meter,
    /// What is traced of the viewer, until its first packet is sent.
    pub(super) trace: Trace,
}

/// A viewer.
pub(super) struct Play {
    stream: Arc<Stream>,
    video: Option<Output>,
    audio: Option<Output>,
    /// Chooses which rendition the video is.
    choice: Choice,
    _viewing: Viewing,
    companion: Option<Watching>,
    meter: Meter,
    trace: Trace,
    keys: Keys,
    /// These encrypt and decrypt, once there are keys.
    sender: Option<Sender>,
    receiver: Option<Receiver>,
    /// The way to the viewer, once str0m has found it.
    path: Option<Path>,
    /// When str0m was asked for its own way.
    asked: Option<Instant>,
    cname: String,
    /// Reference times that the next report answers.
    references: Vec<Reference>,
    /// When the next report is due. `None` before the first, which goes with the first packets.
    reports: Option<Instant>,
    /// When more may be sent.
    pause: Option<Instant>,
    restarted: Option<Instant>,
}

impl Play {
    pub(super) fn new(watched: Watched, subscriber: &Subscriber) -> Self {
        let Watched { stream, video, audio, companion, keys, cname, meter, trace } = watched;
        let viewing = stream.watch(live::Delivery::WebRtc);
        let terms = video.as_ref().and_then(|(line, _)| line.terms);
        let numbers = terms.and_then(|terms| terms.numbers).and_then(Numbers::new);
        let codec = video.as_ref().map_or(Codec::H264, |(line, _)| line.codec);
        let made = companion.as_ref().and_then(Watching::video);
        let made = made.filter(|_| codec == Codec::H264).cloned();
        let choice = Choice::new(Arc::clone(&stream), codec, made, numbers, Instant::now());
        let output = |(line, track), rate| Output::new(line, track, rate, subscriber.clone());
        Self {
            choice,
            video: video.and_then(|track| output(track, VIDEO_RATE)),
            audio: audio.and_then(|track| output(track, AUDIO_RATE)),
            stream,
            _viewing: viewing,
            companion,
            meter,
            trace,
            keys,
            sender: None,
            receiver: None,
            path: None,
            asked: None,
            cname,
            references: Vec::new(),
            reports: None,
            pause: None,
            restarted: None,
        }
    }

    fn outputs(&mut self) -> impl Iterator<Item = &mut Output> {
        [&mut self.audio, &mut self.video].into_iter().flatten()
    }

    /// Begins to play.
    pub(super) fn begin(&mut self) -> Result<(), End> {
        // Without a path, or without keys, packets would wait for ever. str0m has sent its part of the
        // handshake on the path.
        let keys = self.keys.take().filter(|_| self.path.is_some());
        let (sender, receiver) = keys.ok_or(End::NotEncrypted)?;
        (self.sender, self.receiver) = (Some(sender), Some(receiver));
        self.trace.phase("connect");
        if let Some(companion) = &self.companion {
            companion.begin();
        }
        self.outputs().for_each(Output::begin);
        Ok(())
    }

    /// Begins again from the newest keyframe, because the viewer lost a frame. Returns false if that
    /// was done too recently, or if the source is not that of the video.
    fn begin_again(&mut self, ssrc: u32, now: Instant) -> bool {
        let Some(video) = self.video.as_mut().filter(|video| video.is_of(ssrc)) else {
            return false;
        };
        if self.restarted.is_some_and(|at| now.duration_since(at) < RESTART) {
            return false;
        }
        self.restarted = Some(now);
        video.begin_again();
        true
    }

    /// The path to the viewer, once str0m has found one.
    pub(super) fn path(&self) -> Option<Path> {
        self.path
    }

    /// Notes on which path str0m sends.
    pub(super) fn follow(&mut self, path: Path) {
        let before = self.path.replace(path);
        if before.is_some_and(|before| !before.leads_to_that_of(&path)) {
            self.choice.moved();
        }
    }

    /// Takes the path of a check of connectivity, and asks str0m if it is another one than that of media.
    pub(super) fn check(&mut self, path: Path, rtc: &mut Rtc, now: Instant) {
        self.asked = None;
        self.ask_for_path(Some(path), rtc, now);
    }

    /// Asks str0m on which path it sends now, if the viewer's last check of connectivity came on another one: a viewer
    /// may change its address, and str0m may go over to a new path only later. It tells only by sending. So this
    /// declares a source: str0m reports on a new source at once, and `find_path` gets that report. Returns whether
    /// str0m was asked, which is at most once in the time between two reports.
    pub(super) fn ask_for_path(
        &mut self,
        checked: Option<Path>,
        rtc: &mut Rtc,
        now: Instant,
    ) -> bool {
        let is_recent = self.asked.is_some_and(|at| now < at + REPORTS);
        let is_same = |(own, checked): (Path, Path)| own.leads_to_that_of(&checked);
        if self.sender.is_none() || is_recent || self.path.zip(checked).is_none_or(is_same) {
            return false;
        }
        self.asked = Some(now);
        let output = [&self.video, &self.audio].into_iter().flatten().next();
        let Some((line, terms)) = output.and_then(|output| Some((output.line, output.line.terms?)))
        else {
            return false;
        };
        let mut api = rtc.direct_api();
        let resends = terms.resends.map(|(ssrc, _)| ssrc.into());
        api.declare_stream_tx(terms.ssrc.into(), resends, line.mid, None);
        true
    }

    /// Takes the path of a report of str0m, for which it was asked. Then str0m forgets the source again: a session
    /// costs half as much if str0m has nothing to do.
    pub(super) fn find_path(&mut self, path: Path, rtc: &mut Rtc) {
        self.follow(path);
        for output in self.outputs() {
            output.line.forget(rtc);
        }
    }

    /// Takes RTP or RTCP of the viewer, and may go over to another rendition. The clocks show `now`.
    pub(super) fn hear(&mut self, datagram: &[u8], (now, wall): (Instant, UnixMicros)) -> Heard {
        // By its second byte it is RTCP (RFC 5761 4).
        let is_rtcp = datagram.get(1).is_some_and(|kind| (192..=223).contains(kind));
        if !is_rtcp {
            return Heard::Known;
        }
        let mut compound = datagram.to_vec();
        let receiver = self.receiver.as_mut();
        if receiver.and_then(|receiver| receiver.unprotect_rtcp(&mut compound)).is_none() {
            return Heard::Refused;
        }
        let mut is_told = self.choice.numbers(now).is_some() && self.choice.take(&compound);
        let mut wants_keyframe = false;
        for packet in rtcp::packets(&compound).filter(|packet| !feedback::is_feedback(packet)) {
            let Ok(packet) = Rtcp::try_from(packet) else { continue };
            match packet {
                Rtcp::Nack(nack) => {
                    for output in self.outputs() {
                        let asked = nack.reports.iter();
                        output.ask(*nack.ssrc, asked.flat_map(|nack| named(nack.pid, nack.blp)));
                    }
                }
                Rtcp::ReceiverReport(report) => is_told |= self.know(&report.reports, (now, wall)),
                Rtcp::SenderReport(report) => is_told |= self.know(&report.reports, (now, wall)),
                Rtcp::ExtendedReport(report) => self.refer(&report, now),
                Rtcp::Pli(loss) => wants_keyframe |= self.begin_again(*loss.ssrc, now),
                Rtcp::Fir(request) => {
                    for entry in request.reports.iter() {
                        wants_keyframe |= self.begin_again(*entry.ssrc, now);
                    }
                }
                _ => {}
            }
        }
        if is_told {
            self.choose(now);
        }
        if wants_keyframe { Heard::WantsKeyframe } else { Heard::Known }
    }

    /// Takes the reference time of a receiver, which the next report answers.
    fn refer(&mut self, report: &ExtendedReport, now: Instant) {
        let time = report.blocks.iter().find_map(|block| match block {
            ReportBlock::Rrtr(reference) => Some(reference.ntp_time),
            ReportBlock::Dlrr(_) => None,
        });
        let reference = time.and_then(|time| Reference::new(*report.ssrc, time, now));
        if let Some(reference) = reference {
            reference.keep(&mut self.references);
        }
    }

    /// Takes reports. Returns whether they tell of the link.
    fn know(
        &mut self,
        reports: &ReportList<ReceptionReport>,
        (now, wall): (Instant, UnixMicros),
    ) -> bool {
        let mut is_told = false;
        for report in reports {
            self.outputs().for_each(|output| output.is_known(*report.ssrc));
            if let Some(video) = self.video.as_ref().filter(|video| video.is_of(*report.ssrc)) {
                is_told |= self.choice.report(report, video.octets(), (now, wall));
            }
        }
        is_told
    }

    /// Goes over to another rendition, if the link carries it or does not carry the present one.
    fn choose(&mut self, now: Instant) {
        let Some(video) = &mut self.video else { return };
        if let Some((track, is_urgent)) = self.choice.decide(video.track(), now)
            && video.go_over(&track, is_urgent)
        {
            self.choice.switched(video.track(), now);
        }
    }

    /// Goes over to another rendition, because the present one has ended. Returns false if there is none.
    fn leave(&mut self, now: Instant) -> bool {
        let Some(video) = &mut self.video else { return false };
        let Some(track) = self.choice.leave(video.track(), now) else { return false };
        video.replace(&track);
        self.choice.switched(&track, now);
        true
    }

    /// When more of what waits can be sent. `None` while nothing waits.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let has_more = [&self.video, &self.audio].into_iter().flatten().any(Output::has_more);
        (has_more && self.sender.is_some()).then(|| self.pause.unwrap_or(now))
    }

    /// Takes what a feed has.
    pub(super) fn get(&mut self, feed: &Rc<Feed>, fed: &Fed, now: Instant) -> Result<(), End> {
        if let Some(audio) = &mut self.audio {
            audio.take(feed, fed)?;
        }
        let Some(video) = &mut self.video else { return Ok(()) };
        match video.take(feed, fed) {
            Ok(false) => {}
            Ok(true) => self.choice.switched(video.track(), now),
            Err(end) if !self.leave(now) => return Err(end),
            Err(_) => {}
        }
        Ok(())
    }

    /// Sends what may be sent now. The wall clock shows `wall`.
    pub(super) fn send(
        &mut self,
        transport: &Transport,
        batch: &mut Batch,
        (now, wall): (Instant, UnixMicros),
    ) -> Result<(), End> {
        let over = |output: &Option<Output>| output.as_ref().and_then(Output::over);
        if let Some(why) = over(&self.audio) {
            return Err(End::Stream(why));
        }
        if let Some(why) = over(&self.video)
            && !self.leave(now)
        {
            return Err(End::Stream(why));
        }
        if self.pause.is_some_and(|until| now < until) {
            return Ok(());
        }
        let Self { audio, video, choice, sender, path, pause, trace, .. } = self;
        let (Some(sender), Some(path)) = (sender, *path) else { return Ok(()) };
        let mut allowed = BURST;
        batch.clear();
        if let Some(audio) = audio {
            audio.write(sender, batch, None, (now, wall), &mut allowed)?;
        }
        if let Some(video) = video {
            // Audio is too little to count.
            video.write(sender, batch, choice.numbers(now), (now, wall), &mut allowed)?;
        }
        *pause = Some(now + PAUSE).filter(|_| allowed == 0);
        self.meter.add(batch.size() as u64);
        if batch.size() > 0 {
            trace.has_media();
        }
        transport.send_all(path, batch);
        trace.sent();
        // Players put video beside audio by reports, so the first goes with the first packets.
        let is_due = self.reports.is_some_and(|at| now >= at);
        if is_due || self.outputs().any(|output| output.wants_report()) {
            // At first the time is another for each viewer, so that not all reports are due at the same times.
            let first = REPORTS / 2 + REPORTS * u32::from(self.phase()) / 256;
            self.reports = Some(now + if self.reports.is_none() { first } else { REPORTS });
            self.report(transport, batch, (now, wall), false);
        }
        Ok(())
    }

    /// A number that is random for each viewer.
    fn phase(&self) -> u8 {
        let output = self.video.as_ref().or(self.audio.as_ref());
        output.and_then(|output| output.line.terms).map_or(0, |terms| terms.ssrc as u8)
    }

    /// Ends what is traced of the viewer, if it has got nothing so far.
    pub(super) fn failed(&mut self, end: &End) {
        self.trace.failed(end);
    }

    /// When the next report is due. It waits while nothing may be sent.
    pub(super) fn next_report(&self) -> Option<Instant> {
        self.reports.map(|at| self.pause.map_or(at, |until| at.max(until)))
    }

    /// Reports on what was sent, and says farewell if this is the end.
    pub(super) fn report(
        &mut self,
        transport: &Transport,
        batch: &mut Batch,
        (now, wall): (Instant, UnixMicros),
        ends: bool,
    ) {
        let epoch = epoch(&self.stream);
        let counts: Vec<_> =
            self.outputs().filter_map(|output| output.counts(now, epoch)).collect();
        let (Some(sender), Some(path)) = (&mut self.sender, self.path) else { return };
        if counts.is_empty() {
            return;
        }
        let references = std::mem::take(&mut self.references);
        let mut report = source::report(&counts, &self.cname, &references, (now, wall), ends);
        if sender.protect_rtcp(&mut report).is_some() {
            batch.clear();
            batch.add_packet(&report);
            transport.send_all(path, batch);
        }
    }
}

/// When time 0 of a stream was captured, in microseconds of the wall clock. `None` until it has media.
pub(super) fn epoch(stream: &Stream) -> Option<i64> {
    let of = |track: &Arc<Track>| track.window().newest().map(|segment| segment.epoch());
    stream.state().tracks.iter().find_map(of)
}
