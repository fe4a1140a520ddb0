//! A server with scripted behaviour, the media that it serves, and a viewer for them.

#![allow(dead_code, reason = "each test uses what it needs")]

pub(crate) mod low_latency;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use media::cmaf::{self, ChunkInfo, ReferenceTime, SegmentStart};
use media::codec::aac;
use media::flv::{Message, Packetizer, file_header};
use media::{Codec, Sample, Track};
use viewer::player::{Target, play};
use viewer::verify::Reference;
use viewer::{Clock, Lane, Options, Report, Totals, Viewer};

/// Longest duration of a test.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A request, and how often its path was asked for before.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) target: String,
    pub(crate) head: String,
    pub(crate) body: String,
    pub(crate) before: usize,
    /// When it was received.
    pub(crate) at: Instant,
}

/// A step of a server.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Waits.
    Wait(Duration),
    /// Waits until this time.
    WaitUntil(Instant),
    /// Closes the connection.
    Close,
    /// Sends nothing more, and does not close.
    Hang,
}

/// A good answer.
pub(crate) fn ok(body: &[u8]) -> Vec<Act> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    vec![Act::Send([head.as_bytes(), body].concat())]
}

/// A good answer after a delay.
pub(crate) fn late(millis: u64, body: &[u8]) -> Vec<Act> {
    let mut acts = vec![Act::Wait(Duration::from_millis(millis))];
    acts.extend(ok(body));
    acts
}

/// An answer without a body.
pub(crate) fn status(line: &str) -> Vec<Act> {
    vec![Act::Send(format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n").into_bytes())]
}

/// These bytes, without anything around them.
pub(crate) fn raw(text: &str) -> Vec<Act> {
    vec![Act::Send(text.as_bytes().to_vec()), Act::Close]
}

/// A server on a free port. Its threads end with the process of the test.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let counts = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
        let (answer, shared) = (Arc::new(answer), log.clone());
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (answer, log, counts) = (answer.clone(), shared.clone(), counts.clone());
                thread::spawn(move || serve(socket, &*answer, &log, &counts));
            }
        });
        Self { address, log }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.log.lock().unwrap().clone()
    }
}

fn serve(
    socket: TcpStream,
    answer: &dyn Fn(&Asked) -> Vec<Act>,
    log: &Mutex<Vec<Asked>>,
    counts: &Mutex<HashMap<String, usize>>,
) {
    socket.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(socket.try_clone().unwrap());
    let mut socket = socket;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match reader.read_line(&mut head) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let body = String::from_utf8(body).unwrap();
        let target = head.split(' ').nth(1).unwrap().to_owned();
        let before = {
            let mut counts = counts.lock().unwrap();
            let count = counts.entry(target.clone()).or_default();
            *count += 1;
            *count - 1
        };
        let asked = Asked { target, head, body, before, at: Instant::now() };
        log.lock().unwrap().push(asked.clone());
        for act in answer(&asked) {
            match act {
                Act::Send(bytes) => {
                    if socket.write_all(&bytes).is_err() {
                        return;
                    }
                }
                Act::Wait(time) => thread::sleep(time),
                Act::WaitUntil(time) => {
                    thread::sleep(time.saturating_duration_since(Instant::now()));
                }
                Act::Close => return,
                Act::Hang => thread::sleep(LIMIT),
            }
        }
    }
}

/// AAC at 48 kHz. All access units are different, and each fragment has the same number of them.
pub(crate) struct AudioClip {
    pub(crate) track: Track,
    units: u32,
}

/// Access units in a fragment: 0.512 s.
pub(crate) const UNITS: u32 = 24;

impl AudioClip {
    pub(crate) fn new(fragments: u32) -> Self {
        let config = aac::Config::parse(Bytes::from_static(&[0x11, 0x90])).unwrap();
        let track =
            Track { id: 2, timescale: 48_000, codec: Codec::Aac(config), language: *b"und" };
        Self { track, units: fragments * UNITS }
    }

    pub(crate) fn sample(&self, number: u32) -> Sample {
        let data: Vec<u8> =
            (0..200).map(|at: u32| (number * 7 + at * (number % 13)) as u8).collect();
        let stamp = number.to_be_bytes().to_vec();
        Sample {
            dts: i64::from(number) * 1024,
            cts: 0,
            duration: 1024,
            sync: true,
            data: [stamp, data].concat().into(),
        }
    }

    pub(crate) fn samples(&self, fragment: u32) -> Vec<Sample> {
        (fragment * UNITS..(fragment + 1) * UNITS).map(|number| self.sample(number)).collect()
    }

    pub(crate) fn header(&self) -> Bytes {
        cmaf::header(&[&self.track]).unwrap()
    }

    pub(crate) fn fragment(&self, fragment: u32) -> Vec<u8> {
        self.write(fragment, &self.samples(fragment))
    }

    pub(crate) fn write(&self, number: u32, samples: &[Sample]) -> Vec<u8> {
        let mut out = Vec::new();
        let info = ChunkInfo {
            track_id: self.track.id,
            sequence_number: number + 1,
            segment_start: Some(SegmentStart { reference: None }),
        };
        cmaf::write_chunk(&mut out, &info, samples).unwrap();
        out
    }

    /// A segment of four fragments.
    pub(crate) fn segment(&self, number: u32) -> Vec<u8> {
        (4 * number..4 * number + 4).flat_map(|fragment| self.fragment(fragment)).collect()
    }

    /// A fragment with the capture time of its first sample.
    pub(crate) fn stamped(&self, fragment: u32, unix_micros: u64) -> Vec<u8> {
        let samples = self.samples(fragment);
        let reference = ReferenceTime { unix_micros, media_time: samples[0].dts as u64 };
        let info = ChunkInfo {
            track_id: self.track.id,
            sequence_number: fragment + 1,
            segment_start: Some(SegmentStart { reference: Some(reference) }),
        };
        let mut out = Vec::new();
        cmaf::write_chunk(&mut out, &info, &samples).unwrap();
        out
    }

    /// The whole clip as FLV.
    pub(crate) fn flv(&self) -> Vec<u8> {
        let packetizer = Packetizer::new(0, &self.track.codec, self.track.timescale).unwrap();
        let mut out = file_header(true, false).to_vec();
        out.extend_from_slice(&packetizer.sequence_header(0).unwrap().tag());
        for number in 0..self.units {
            let message: Message = packetizer.sample(&self.sample(number)).unwrap();
            out.extend_from_slice(&message.tag());
        }
        out
    }

    /// The whole clip as a reference.
    pub(crate) fn reference(&self) -> Arc<Reference> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), self.flv()).unwrap();
        Arc::new(Reference::open(file.path()).unwrap())
    }

    /// A finished media playlist of fragments `0.m4s`, `1.m4s`, ….
    pub(crate) fn playlist(&self) -> String {
        let mut text = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MAP:URI=\"init.mp4\"\n".to_owned();
        for fragment in 0..self.units / UNITS {
            text += &format!("#EXTINF:0.512,\n{fragment}.m4s\n");
        }
        text + "#EXT-X-ENDLIST\n"
    }

    /// The answer to a request for a file of this presentation: `/x/…`.
    pub(crate) fn answer(&self, target: &str) -> Vec<Act> {
        let file = target.rsplit('/').next().unwrap();
        match file.split('?').next().unwrap() {
            "index.m3u8" => ok(self.playlist().as_bytes()),
            "init.mp4" => ok(&self.header()),
            "all.flv" => ok(&self.flv()),
            name => match name.strip_suffix(".m4s").and_then(|number| number.parse().ok()) {
                Some(number) if number < self.units / UNITS => ok(&self.fragment(number)),
                _ => status("404 Not Found"),
            },
        }
    }
}

/// Options of viewers in tests, with little patience.
pub(crate) fn options() -> Options {
    Options { patience: Duration::from_secs(20), ..Options::default() }
}

/// Runs one viewer of a URL, for at most `duration`.
pub(crate) fn watch(
    url: &str,
    options: Options,
    verify: bool,
    reference: Option<Arc<Reference>>,
    duration: Duration,
) -> Report {
    let target: Target = url.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let lane = Lane::new(Clock::start(), options, Arc::new(Totals::default()));
        let viewer = Viewer::join(&lane, (0, 0), verify, reference);
        let outcome = tokio::time::timeout(duration, play(&viewer, &target)).await.ok();
        viewer.leave(outcome).report()
    })
}

/// Runs a viewer that verifies, to the end.
pub(crate) fn verified(url: &str, reference: Option<Arc<Reference>>) -> Report {
    watch(url, options(), true, reference, LIMIT)
}

/// Runs a viewer that does not verify, to the end.
pub(crate) fn plain(url: &str) -> Report {
    watch(url, options(), false, None, LIMIT)
}

/// Kind and place of the error that a viewer ended with.
#[track_caller]
pub(crate) fn failure(report: &Report) -> (&'static str, String) {
    let error = report.error.as_ref().unwrap_or_else(|| panic!("no error: {report:#?}"));
    (error.kind.name(), format!("{} ({})", error.what, error.place))
}

/// Checks that a figure is the injected one, within an error.
#[track_caller]
pub(crate) fn near(found: f64, right: f64, error: f64) {
    assert!((found - right).abs() <= error, "{found} where {right} ± {error} is right");
}

/// The clip as a low-latency DASH presentation, whose segments are made as time passes: two chunks
/// of [`Self::PART`] each. It begins before the first request, and becomes finished.
pub(crate) struct Presentation {
    clip: AudioClip,
    /// Chunks of the whole presentation.
    parts: u32,
    /// Chunks that exist at the first request.
    before: u32,
    /// Returns the time since 1970, and the same moment by the clock that steps wait for.
    now: Box<dyn Fn() -> (Duration, Instant) + Send + Sync>,
    /// Time 0, by both clocks.
    zero: OnceLock<(Duration, Instant)>,
    /// What the manifest says of a second rendition.
    second: &'static str,
}

impl Presentation {
    /// Duration of a chunk.
    pub(crate) const PART: Duration = Duration::from_millis(512);

    pub(crate) fn new(
        (before, parts): (u32, u32),
        now: impl Fn() -> (Duration, Instant) + Send + Sync + 'static,
    ) -> Self {
        let clip = AudioClip::new(parts);
        Self { clip, parts, before, now: Box::new(now), zero: OnceLock::new(), second: "" }
    }

    /// The same presentation with a rendition of 300 kbit/s besides, in the folder `/high`.
    pub(crate) fn with_second(self) -> Self {
        let second = "<Representation id=\"b\" bandwidth=\"300000\"><BaseURL>high/</BaseURL>\
            </Representation>";
        Self { second, ..self }
    }

    fn manifest(&self) -> String {
        let (unix, now) = (self.now)();
        let past = Self::PART * self.before;
        let (start, began) = *self.zero.get_or_init(|| (unix - past, now - past));
        let made = ((now - began).as_micros() / Self::PART.as_micros()).min(self.parts.into());
        let kind = if made < self.parts.into() {
            let start = date(start);
            format!(
                "type=\"dynamic\" availabilityStartTime=\"{start}\" minimumUpdatePeriod=\"PT0S\""
            )
        } else {
            let duration = (Self::PART * self.parts).as_secs_f64();
            format!("type=\"static\" mediaPresentationDuration=\"PT{duration}S\"")
        };
        // The list includes the segment that is being made.
        let segments = (made / 2 + 1).min((self.parts / 2).into());
        format!(
            "<MPD {kind}>\
             <ServiceDescription><Latency target=\"1500\"/></ServiceDescription>\
             <Period start=\"PT0S\"><AdaptationSet contentType=\"audio\"><SegmentTemplate \
             timescale=\"48000\" initialization=\"init.mp4\" media=\"s$Number$.m4s\" startNumber=\"0\" \
             availabilityTimeOffset=\"0.5\" availabilityTimeComplete=\"false\"><SegmentTimeline>\
             <S t=\"0\" d=\"49152\" r=\"{}\"/></SegmentTimeline></SegmentTemplate>\
             <Representation id=\"a\" bandwidth=\"64000\"/>{}</AdaptationSet></Period></MPD>",
            segments - 1,
            self.second
        )
    }

    /// The answer to a request for `/x.mpd` or a file that it names.
    pub(crate) fn answer(&self, target: &str) -> Vec<Act> {
        let target = target.strip_prefix("/high").unwrap_or(target);
        match target {
            "/x.mpd" => return ok(self.manifest().as_bytes()),
            "/init.mp4" => return ok(&self.clip.header()),
            _ => {}
        }
        let number = target.strip_prefix("/s").and_then(|name| name.strip_suffix(".m4s"));
        let segment: u32 = number.unwrap().parse().unwrap();
        let (_, began) = *self.zero.get().unwrap();
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut acts = vec![Act::Send(head.to_vec())];
        for part in [2 * segment, 2 * segment + 1] {
            let bytes = self.clip.fragment(part);
            let size = format!("{:x}\r\n", bytes.len());
            acts.push(Act::WaitUntil(began + Self::PART * (part + 1)));
            acts.push(Act::Send([size.as_bytes(), &bytes, b"\r\n"].concat()));
        }
        acts.push(Act::Send(b"0\r\n\r\n".to_vec()));
        acts
    }
}

/// Writes a time since 1970 in ISO 8601.
pub(crate) fn date(since: Duration) -> String {
    let days = since.as_secs() / 86_400;
    let (hour, minute) = (since.as_secs() / 3600 % 24, since.as_secs() / 60 % 60);
    let (year, month, day) = civil(days as i64);
    let (second, micro) = (since.as_secs() % 60, since.subsec_micros());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z")
}

fn civil(days: i64) -> (i64, u32, u32) {
    let mut year = 1970;
    let mut left = days;
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while left >= 365 + i64::from(leap(year)) {
        left -= 365 + i64::from(leap(year));
        year += 1;
    }
    let february = 28 + i64::from(leap(year));
    for (month, length) in (1..).zip([31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
        if left < length {
            return (year, month, left as u32 + 1);
        }
        left -= length;
    }
    unreachable!("a day of the year")
}

/// Segments of the clip in two renditions, `/low` and `/high`, for a player that chooses. Each takes
/// four fragments, and is long enough to tell how fast the connection is. The two have different track
/// IDs, and headers of the same name.
pub(crate) struct Renditions {
    pub(crate) clip: AudioClip,
    high: AudioClip,
}

impl Renditions {
    pub(crate) fn new() -> Self {
        let (clip, mut high) = (AudioClip::new(32), AudioClip::new(32));
        high.track.id = 3;
        assert!(clip.segment(0).len() > 20_000);
        Self { clip, high }
    }

    /// The answer to a request for `/index.m3u8` or a file that it names. Segments 3 to 6 of the
    /// higher rendition come 2.5 s late: some 66 kbit/s.
    pub(crate) fn answer(&self, target: &str) -> Vec<Act> {
        let (folder, name) = target.rsplit_once('/').unwrap();
        let clip = if folder == "/high" { &self.high } else { &self.clip };
        match name {
            "index.m3u8" => ok(b"#EXTM3U\n\
                #EXT-X-STREAM-INF:BANDWIDTH=300000,CODECS=\"mp4a.40.2\"\nhigh/media.m3u8\n\
                #EXT-X-STREAM-INF:BANDWIDTH=80000,CODECS=\"mp4a.40.2\"\nlow/media.m3u8\n"),
            "media.m3u8" => {
                let mut text =
                    "#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXT-X-MAP:URI=\"init.mp4\"\n".to_owned();
                (0..8).for_each(|number| text += &format!("#EXTINF:2.048,\n{number}.m4s\n"));
                ok((text + "#EXT-X-ENDLIST\n").as_bytes())
            }
            "init.mp4" => ok(&clip.header()),
            _ => {
                let number: u32 = name.strip_suffix(".m4s").unwrap().parse().unwrap();
                let slow = folder == "/high" && (3..7).contains(&number);
                late(if slow { 2500 } else { 0 }, &clip.segment(number))
            }
        }
    }
}
