//! Which rendition of a live stream viewers get, decided by their link and by their commands.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use serde_json::Value;
use testkit::push::{Client, Frame};
use testkit::{Program, Server, eventually, narrow_socket, time_of, track_of};

use crate::renditions::link;
use crate::support::{LIMIT, metric, server};

/// Segments of one group of pictures, which are soon whole.
const SHORT: &str = "[live]\nsegment_target = \"1s\"\n";

/// The same, for viewers who are never too slow, however late a busy machine runs them.
const PATIENT: &str =
    "[live]\nsegment_target = \"1s\"\nviewer_queue = \"64MiB\"\nviewer_patience = \"10m\"\n";

/// Publishes three renditions with a keyframe every second. The first also has audio. The clip was
/// encoded beforehand: a live encoder that waits for the processor would stop and go on.
fn publish(server: &Server) -> Program {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-loglevel", "error", "-re", "-stream_loop", "-1", "-i"]);
    ffmpeg.arg(testkit::clip("mp4/rungs.mp4"));
    for (number, name) in ["low", "medium", "high"].into_iter().enumerate() {
        ffmpeg.args(["-map", &format!("0:v:{number}")]);
        if name == "low" {
            ffmpeg.args(["-map", "0:a"]);
        }
        ffmpeg.args(["-c", "copy", "-f", "flv"]);
        ffmpeg.arg(server.rtmp_url(&format!("live/film?rendition={name}")));
    }
    let publisher = Program::spawn(&mut ffmpeg);
    server.get_until("/live/film/index.m3u8", LIMIT, |answer| {
        answer.status() == 200 && answer.text().matches("#EXT-X-STREAM-INF").count() == 3
    });
    // Before there are whole segments, the keyframe makes the bitrate look too high.
    server.until_listed("live/film", &["v0", "v1", "v2"], 2, LIMIT);
    publisher
}

/// A viewer that checks its messages as they come.
struct Viewer {
    client: Client,
    /// Names of the renditions, by rising bit rate, and the rates.
    names: Vec<String>,
    rates: Vec<u64>,
    /// Index of the rendition that it gets, and of the best one that it may get.
    rendition: usize,
    best: usize,
    /// Each header and its media, up to the next header.
    sections: Vec<Vec<u8>>,
    /// Decode times of the last video chunk and the last audio chunk.
    times: [Option<u64>; 2],
    /// The longest time between two chunks of a track, in seconds: from beginning to beginning.
    step: f64,
    /// Numbers of the video track and the audio track.
    numbers: [u32; 2],
    /// Whether media may be missing before the next video chunk and the next audio chunk.
    gap: [bool; 2],
    /// Whether it may be skipped ahead.
    may_skip: bool,
    /// Where the first of the two tracks went on after a skip, in seconds.
    went_on: Option<f64>,
}

impl Viewer {
    #[track_caller]
    fn watch(address: SocketAddr, query: &str) -> Self {
        let mut client = Client::connect(address, &format!("/live/film/push{query}"));
        let hello = client.next().unwrap().event();
        let mut names: Vec<_> = hello["renditions"].as_array().unwrap().clone();
        names.reverse();
        let rates = names.iter().map(|rendition| rendition["bitrate"].as_u64().unwrap()).collect();
        let names: Vec<_> =
            names.iter().map(|rendition| rendition["name"].as_str().unwrap().to_owned()).collect();
        let rendition = names.iter().position(|name| *name == hello["rendition"]).unwrap();
        let header = client.next().unwrap().payload;
        // A part lasts 0.2 s, and a segment 1 s.
        let step = if query.contains("segment") { 1.75 } else { 0.35 };
        Self {
            client,
            best: names.len() - 1,
            names,
            rates,
            rendition,
            numbers: numbers(&header),
            sections: vec![header],
            times: [None; 2],
            step,
            gap: [false; 2],
            may_skip: true,
            went_on: None,
        }
    }

    #[track_caller]
    fn next(&mut self) -> Frame {
        let frame = self.client.next().expect("it goes on");
        match frame.opcode {
            1 => self.event(&frame.event()),
            2 => self.chunk(&frame.payload),
            _ => {}
        }
        frame
    }

    #[track_caller]
    fn event(&mut self, event: &Value) {
        match event["event"].as_str().unwrap() {
            "discontinuity" => {
                assert_eq!(event["reason"], "skipped");
                assert!(self.may_skip, "{event}");
                (self.gap, self.went_on) = ([true; 2], None);
            }
            "rendition" => {
                // Where the rendition changes, only video was left out. Audio goes on as it was.
                self.gap[1] = false;
                let rendition =
                    self.names.iter().position(|name| *name == event["rendition"]).unwrap();
                assert!(
                    rendition != self.rendition && rendition <= self.best,
                    "from {} to {event}",
                    self.rendition
                );
                self.rendition = rendition;
                let header = self.client.next().unwrap().payload;
                assert_eq!(header[4..8], *b"ftyp");
                self.numbers = numbers(&header);
                self.sections.push(header);
            }
            other => panic!("{other}: {event}"),
        }
    }

    /// Checks a chunk. It belongs to the rendition that was named last. Times never go back. They
    /// continue, except where an event tells that media are missing.
    #[track_caller]
    fn chunk(&mut self, chunk: &[u8]) {
        assert!(is_whole(chunk));
        let number = track_of(chunk);
        assert!(self.numbers.contains(&number), "{number} is none of {:?}", self.numbers);
        let is_audio = number == self.numbers[1];
        let scale = if is_audio { 48_000 } else { 90_000 };
        let time = time_of(chunk);
        if let Some(before) = self.times[usize::from(is_audio)] {
            let step = (time as f64 - before as f64) / f64::from(scale);
            assert!(step > 0.0, "{step} s on v{}", self.rendition);
            let gap = std::mem::take(&mut self.gap[usize::from(is_audio)]);
            assert!(gap || step < self.step, "{step} s, audio: {is_audio}");
            if gap {
                // Both tracks go on at the same keyframe.
                let now = time as f64 / f64::from(scale);
                let other = self.went_on.replace(now).unwrap_or(now);
                assert!((now - other).abs() < self.step, "at {other} s and {now} s");
            }
        }
        self.times[usize::from(is_audio)] = Some(time);
        self.sections.last_mut().unwrap().extend_from_slice(chunk);
    }

    /// Sends a command, and reads until the server has carried it out.
    #[track_caller]
    fn say(&mut self, command: &str) {
        self.client.say(command);
        // The server answers a ping after the commands before it.
        self.client.send(0x89, b"said");
        while self.next().opcode != 10 {}
    }

    /// Reads until the viewer gets what is wanted.
    #[track_caller]
    fn until(&mut self, wanted: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !wanted(self) {
            assert!(Instant::now() < deadline, "still {}", self.names[self.rendition]);
            self.next();
        }
    }

    /// Reads this many seconds of video.
    #[track_caller]
    fn seconds(&mut self, seconds: u64) {
        let from = self.times[0].unwrap_or_default();
        self.until(|viewer| viewer.times[0].unwrap_or_default() >= from + seconds * 90_000);
    }

    /// Asserts that ffmpeg decodes everything: each section begins with a keyframe and lacks
    /// nothing.
    #[track_caller]
    fn decodes(&self, folder: &Path) {
        for (number, section) in self.sections.iter().enumerate() {
            if !section.windows(4).any(|four| four == b"moof") {
                continue;
            }
            let file = folder.join(format!("{number}.mp4"));
            std::fs::write(&file, section).unwrap();
            let mut ffmpeg = Command::new("ffmpeg");
            ffmpeg.args(["-v", "error", "-xerror", "-i"]).arg(&file).args(["-f", "null", "-"]);
            let errors = Program::spawn(&mut ffmpeg).wait(LIMIT);
            assert!(errors.status.success() && errors.stderr.is_empty(), "{}", errors.stderr);
        }
    }
}

/// Numbers of the two tracks of a header.
fn numbers(header: &[u8]) -> [u32; 2] {
    let boxes = header.windows(4).enumerate().filter(|(_, four)| four == b"tkhd");
    let numbers: Vec<_> = boxes
        .map(|(at, _)| {
            // Version 0 has 32-bit times (14496-12, 8.3.2).
            let id = at + if header[at + 4] == 0 { 16 } else { 24 };
            u32::from_be_bytes(*header[id..].first_chunk().unwrap())
        })
        .collect();
    numbers.try_into().expect("video and audio")
}

/// Whether a message consists of whole boxes, of which the last is an `mdat`.
fn is_whole(mut message: &[u8]) -> bool {
    let mut last = [0; 4];
    while let (Some(size), Some(kind)) = (message.first_chunk::<4>(), message.get(4..8)) {
        last.copy_from_slice(kind);
        match message.get(u32::from_be_bytes(*size) as usize..) {
            Some(rest) => message = rest,
            None => return false,
        }
    }
    message.is_empty() && last == *b"mdat"
}

fn switches(server: &Server, direction: &str) -> u64 {
    metric(server, &format!("headwater_push_switches_total{{direction=\"{direction}\"}}"))
}

#[test]
fn a_viewer_goes_down_with_its_link_and_comes_back() {
    let server = server(SHORT);
    let _publisher = publish(&server);
    let (address, rate) = link(server.http, 1_000_000);
    let mut viewer = Viewer::watch(address, "");
    assert_eq!(viewer.names.len(), 3);
    assert_eq!(viewer.names[viewer.rendition], viewer.names[1], "neither the best nor the least");
    viewer.until(|viewer| viewer.rendition == 2);
    viewer.seconds(2);
    rate.store(40_000, Relaxed);
    viewer.until(|viewer| viewer.rendition == 0);
    viewer.seconds(2);
    rate.store(1_000_000, Relaxed);
    let top =
        format!("headwater_push_viewers{{stream=\"live/film\",rendition=\"{}\"}}", viewer.names[2]);
    // On a busy machine it may leave the top again at any time.
    viewer.until(|viewer| viewer.rendition == 2 && metric(&server, &top) == 1);
    viewer.seconds(1);
    viewer.decodes(tempfile::tempdir().unwrap().path());

    assert!(switches(&server, "up") >= 3 && switches(&server, "down") >= 1);
    drop(viewer);
    eventually(LIMIT, "it has left the top", || metric(&server, &top) == 0);
}

#[test]
fn a_viewer_of_segments_goes_up_and_nothing_is_missing() {
    let server = server(PATIENT);
    let _publisher = publish(&server);
    let mut viewer = Viewer::watch(server.http, "?latency=segment");
    viewer.may_skip = false;
    assert!(viewer.rendition < 2);
    viewer.until(|viewer| viewer.rendition == 2);
    viewer.seconds(2);
    viewer.decodes(tempfile::tempdir().unwrap().path());
}

#[test]
fn a_viewer_is_sent_what_it_says_and_nothing_is_missing() {
    let server = server(PATIENT);
    let _publisher = publish(&server);
    let rates = Viewer::watch(server.http, "").rates;
    let max = (rates[1] + rates[2]) / 2;
    let mut viewer = Viewer::watch(server.http, &format!("?max={max}"));
    viewer.may_skip = false;
    assert_eq!(viewer.rendition, 1, "{rates:?}");
    // It gets no rendition above its limit, however much its link carries.
    viewer.best = 1;
    viewer.seconds(5);
    viewer.say(&format!("{{\"rendition\": \"{}\"}}", viewer.names[0]));
    viewer.until(|viewer| viewer.rendition == 0);
    viewer.best = 0;
    viewer.seconds(5);
    viewer.best = 2;
    viewer.say(r#"{"rendition": null, "max": null}"#);
    viewer.until(|viewer| viewer.rendition == 2);
    viewer.say(&format!("{{\"max\": {max}}}"));
    viewer.until(|viewer| viewer.rendition < 2);
    viewer.best = 1;
    viewer.seconds(4);
    viewer.decodes(tempfile::tempdir().unwrap().path());
}

#[test]
fn a_paused_viewers_choice_counts_when_it_goes_on() {
    let server = server(SHORT);
    let _publisher = publish(&server);
    let mut client = Client::connect(server.http, "/live/film/push?rendition=low");
    let hello = client.next().unwrap().event();
    let names: Vec<_> =
        hello["renditions"].as_array().unwrap().iter().map(|r| &r["name"]).collect();
    let mut now = &hello["rendition"];
    assert_eq!(now, names[2]);
    let viewers = |name: &Value| {
        let name = name.as_str().unwrap();
        metric(
            &server,
            &format!("headwater_push_viewers{{stream=\"live/film\",rendition=\"{name}\"}}"),
        )
    };
    for wanted in [names[0], names[0], names[1]] {
        client.say(r#"{"pause": true}"#);
        for name in [names[2], names[1], wanted] {
            client.say(&format!("{{\"rendition\": {name}}}"));
        }
        client.say(r#"{"pause": false}"#);
        let event = client.until(|frame| frame.opcode == 1).event();
        assert_eq!((&event["event"], &event["reason"]), (&"discontinuity".into(), &"pause".into()));
        if wanted != now {
            let event = client.next().unwrap().event();
            assert_eq!((&event["event"], &event["rendition"]), (&"rendition".into(), wanted));
            now = wanted;
        }
        // The header has the picture size of the rendition.
        assert_eq!(client.next().unwrap().payload[4..8], *b"ftyp");
        assert!(is_whole(&client.next().unwrap().payload));
        assert_eq!(names.iter().map(|name| viewers(name)).sum::<u64>(), 1);
        assert_eq!(viewers(now), 1);
    }
}

#[test]
fn one_that_goes_on_while_nobody_publishes_is_sent_the_newest_keyframe_and_what_comes() {
    let server = server("");
    let publisher = testkit::publish_looped(testkit::demo_clip(), &server.rtmp_url("live/film"));
    server.get_until("/live/film/v0/media.m3u8", LIMIT, |answer| answer.status() == 200);
    let mut client = Client::connect(server.http, "/live/film/push");
    client.until(|frame| frame.opcode == 2 && is_whole(&frame.payload));
    publisher.pause();
    client.say(r#"{"pause": true}"#);
    client.send(0x89, b"paused");
    client.until(|frame| frame.opcode == 10);
    client.say(r#"{"pause": false}"#);
    let event = client.until(|frame| frame.opcode == 1).event();
    assert_eq!((&event["event"], &event["reason"]), (&"discontinuity".into(), &"pause".into()));
    assert_eq!(client.next().unwrap().payload[4..8], *b"ftyp");
    let newest = next_time(&mut client);
    publisher.resume();
    // At most a keyframe's distance was there already, and little was on its way.
    while next_time(&mut client) < newest + 3 * 90_000 {}
}

#[test]
fn a_rendition_that_goes_away_is_replaced_by_its_neighbour() {
    let server = server("[live]\nreconnect = \"1s\"\n");
    let film = |name: &str| server.rtmp_url(&format!("live/film?rendition={name}"));
    let renditions: Vec<_> = [("low", "160x120", "120k"), ("high", "320x240", "900k")]
        .into_iter()
        .map(|(name, size, rate)| {
            let mut ffmpeg = Command::new("ffmpeg");
            ffmpeg.args(["-nostdin", "-loglevel", "error", "-re", "-f", "lavfi", "-i"]);
            ffmpeg.arg(format!("testsrc2=size={size}:rate=24"));
            ffmpeg.args(["-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency"]);
            ffmpeg.args(["-b:v", rate, "-g", "24", "-pix_fmt", "yuv420p", "-f", "flv"]);
            Program::spawn(ffmpeg.arg(film(name)))
        })
        .collect();
    server.get_until("/live/film/index.m3u8", LIMIT, |answer| {
        answer.status() == 200 && answer.text().matches("#EXT-X-STREAM-INF").count() == 2
    });
    let mut client = Client::connect(server.http, "/live/film/push");
    let hello = client.next().unwrap().event();
    let (best, least) = (&hello["renditions"][0]["name"], &hello["renditions"][1]["name"]);
    assert_eq!(&hello["rendition"], best);
    let [low, high] = <[Program; 2]>::try_from(renditions).unwrap();
    client.until(|frame| frame.opcode == 2 && frame.payload[4..8] != *b"ftyp");
    drop(high);
    let named = client.until(|frame| frame.opcode == 1 && frame.event()["event"] == "rendition");
    assert_eq!(&named.event()["rendition"], least);
    assert_eq!(client.next().unwrap().payload[4..8], *b"ftyp");
    client.until(|frame| frame.opcode == 2 && is_whole(&frame.payload));
    drop(low);
    assert_eq!(client.closed(), 1000);
}

#[test]
fn a_publisher_that_dies_within_a_frame_leaves_no_half_chunk() {
    let server = server("[live]\nreconnect = \"1s\"\n");
    // A publisher whose connection breaks after this many bytes, anywhere in a message. The clients come when fewer have
    // passed.
    let (connected, clients_wait) = std::sync::mpsc::channel::<()>();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (address, origin) = (listener.local_addr().unwrap(), server.rtmp);
    let relay = std::thread::spawn(move || {
        let (publisher, _) = listener.accept().unwrap();
        let origin = TcpStream::connect(origin).unwrap();
        let (mut from, mut to) = (origin.try_clone().unwrap(), publisher.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        for bytes in [400_000, 300_001] {
            let (mut few, mut to) = ((&publisher).take(bytes), &origin);
            let _ = std::io::copy(&mut few, &mut to).and_then(|_| to.flush());
            let _ = clients_wait.recv();
        }
        for socket in [&publisher, &origin] {
            let _ = socket.shutdown(Shutdown::Both);
        }
    });
    let url = format!("rtmp://{address}/live/broken");
    let publisher = testkit::publish(testkit::demo_clip(), &url);
    server.get_until("/live/broken/index.m3u8", LIMIT, |answer| answer.status() == 200);
    let mut clients: Vec<_> = ["", "?latency=segment"]
        .map(|query| Client::connect(server.http, &format!("/live/broken/push{query}")))
        .into();
    for client in &mut clients {
        assert_eq!(client.next().unwrap().event()["event"], "hello");
    }
    drop(connected);
    for client in &mut clients {
        let mut film = client.next().unwrap().payload;
        let mut chunks = 0;
        loop {
            let frame = client.next().unwrap();
            match frame.opcode {
                2 => {
                    assert!(is_whole(&frame.payload));
                    film.extend_from_slice(&frame.payload);
                    chunks += 1;
                }
                1 if frame.event()["event"] == "end" => break,
                8 => panic!("closed without an end"),
                _ => {}
            }
        }
        assert!(chunks > 0);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("film.mp4");
        std::fs::write(&file, film).unwrap();
        let mut ffmpeg = Command::new("ffmpeg");
        ffmpeg.args(["-v", "error", "-xerror", "-i"]).arg(&file).args(["-f", "null", "-"]);
        let errors = Program::spawn(&mut ffmpeg).wait(LIMIT);
        assert!(errors.status.success() && errors.stderr.is_empty(), "{}", errors.stderr);
    }
    relay.join().unwrap();
    drop(publisher);
}

#[test]
fn one_that_reads_nothing_delays_none_of_five_hundred() {
    // Whoever is late here is late because the machine is busy.
    let server = server(
        "workers = 1\n[http]\nsend_timeout = \"10m\"\n\
         [live]\nwindow = \"5m\"\nviewer_queue = \"64MiB\"\nviewer_patience = \"10m\"\n",
    );
    let mut viewers: Vec<_> =
        (0..499).map(|_| Client::connect(server.http, "/live/demo/push")).collect();
    let deaf = narrow_socket(server.http, 4 << 10).unwrap();
    let deaf = Client::over(deaf, "/live/demo/push");
    let gauge = r#"headwater_viewers{stream="live/demo",delivery="push"}"#;
    assert_eq!(metric(&server, gauge), 500);
    // In each round all others read up to the newest chunk that any of them has. Meanwhile the deaf
    // viewer has been sent much more than its connection holds (1.2 Mbit/s, 6 s).
    let mut newest = vec![0; viewers.len()];
    let mut goal = 0;
    for round in 1..=8 {
        goal = match round {
            1 => next_time(&mut viewers[0]),
            _ => goal + 90_000 * 3 / 4,
        };
        for (viewer, newest) in viewers.iter_mut().zip(&mut newest) {
            while *newest < goal {
                let time = next_time(viewer);
                assert!(*newest == 0 || time > *newest && time <= *newest + 90_000, "a gap");
                *newest = time;
            }
        }
        assert_eq!(metric(&server, gauge), 500, "the deaf one is still there");
    }
    let skipped = r#"headwater_slow_viewers_skipped_total{delivery="push"}"#;
    assert_eq!(metric(&server, skipped), 0);
    drop(deaf);
    eventually(LIMIT, "the deaf one has gone", || metric(&server, gauge) == 499);
}

/// Decode time of the next video chunk.
#[track_caller]
fn next_time(client: &mut Client) -> u64 {
    let chunk = client.until(|frame| {
        frame.opcode == 2 && frame.payload[4..8] != *b"ftyp" && track_of(&frame.payload) == 1
    });
    time_of(&chunk.payload)
}
