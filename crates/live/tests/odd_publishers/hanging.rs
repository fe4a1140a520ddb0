//! A connection that hangs, of which nobody knows, beside one that goes on.

use super::*;

fn at(millis: i64) -> UnixMicros {
    UnixMicros(START + millis.unsigned_abs() * 1000)
}

/// Where a track ends, in seconds.
fn end(track: &live::Track) -> f64 {
    let timescale = f64::from(track.header().track.timescale);
    track.window().newest().map_or(0.0, |newest| newest.presented_end() as f64 / timescale)
}

/// The bytes of each of its access units that come after so many seconds of its time.
fn sizes(track: &live::Track, after: f64) -> Vec<u32> {
    let timescale = f64::from(track.header().track.timescale);
    let window = track.window();
    let parts = window.all().flat_map(|segment| &segment.parts);
    let parts = parts.filter(|part| part.start as f64 / timescale >= after);
    parts.flat_map(|part| part.samples.iter().map(|sample| sample.size)).collect()
}

/// A rendition with video, and perhaps audio, whose clock is the wall clock. Its media wait until its
/// connection takes them.
struct Rendition {
    publisher: Publisher,
    audio: bool,
    /// The next frame, and the next access unit of audio.
    next: (i64, i64),
}

impl Rendition {
    fn new(registry: &Registry, name: &str, audio: bool) -> Self {
        let rendition = Some(name.to_owned());
        let info = PublisherInfo { peer: None, protocol: "test", rendition };
        let mut publisher = registry.publish("x", info, at(0)).unwrap();
        publisher.track(0, video_codec(31), 1000, *b"und", at(0)).unwrap();
        if audio {
            publisher.track(1, audio_codec(48_000), 1000, *b"und", at(0)).unwrap();
        }
        Self { publisher, audio, next: (0, 0) }
    }

    /// Sends what was captured until `now`, and not yet sent.
    fn send(&mut self, now: i64) {
        while self.next.0 * 100 / 3 <= now {
            let frame = self.next.0;
            self.next.0 += 1;
            let frame = sample(frame * 100 / 3, frame % 60 == 0, 100);
            self.publisher.sample(0, frame, at(now)).unwrap();
        }
        while self.next.1 * 64 / 3 <= now {
            let unit = sample(self.next.1 * 64 / 3, true, 50);
            self.next.1 += 1;
            if self.audio {
                self.publisher.sample(1, unit, at(now)).unwrap();
            }
        }
    }
}

/// Calls `each` every 20 ms, and lets time pass.
fn pass(registry: &Registry, (from, until): (i64, i64), mut each: impl FnMut(i64)) {
    for now in (from..until).step_by(20) {
        each(now);
        if now % 1000 == 0 {
            registry.sweep(at(now));
        }
    }
}

/// All parts of a track follow each other, in one period.
fn assert_whole(track: &live::Track) {
    let window = track.window();
    let mut end = None;
    for segment in window.all() {
        assert_eq!(segment.period, 0, "{}", track.name);
        for part in &segment.parts {
            assert!(end.is_none_or(|end| end == part.start), "{}", track.name);
            end = Some(part.start + i64::from(part.duration));
        }
    }
}

/// The audio of the stream, which players take by default, comes by the connection that hangs. Its viewers
/// go on with the other rendition, and wait for no audio until the server finds that the connection hangs,
/// nor after that.
#[test]
fn silence_stands_in_for_the_audio_of_a_connection_that_hangs() {
    let registry = Registry::new(Settings::default());
    let mut high = Rendition::new(&registry, "high", true);
    let mut low = Rendition::new(&registry, "low", false);
    pass(&registry, (0, 10_000), |now| {
        high.send(now);
        low.send(now);
    });
    let stream = registry.stream("x").unwrap();
    let (goes_on, audio) = (stream.track("v1").unwrap(), stream.track("a0").unwrap());
    let mut high = Some(high);
    pass(&registry, (10_000, 60_000), |now| {
        // RTMP ends the publisher after three times `live.silence`.
        if now == 40_000 {
            high = None;
        }
        low.send(now);
        audio.ask(at(now));
        // Half a target duration passes until the other video leads.
        if now > 14_000 {
            let behind = end(&goes_on) - end(&audio);
            assert!((-0.1..1.0).contains(&behind), "{behind} s behind at {now} ms");
            let tracks = &stream.state().tracks;
            assert!(audio.goes_on_beside(tracks), "at {now} ms");
            let is_listed = audio.is_present() || now >= 40_000 && audio.is_silenced();
            assert!(is_listed, "at {now} ms");
        }
    });
    assert_whole(&audio);
}

/// The connection hangs for six seconds, and then brings all that it held back.
#[test]
fn audio_that_comes_after_all_goes_on_where_silence_ends() {
    let registry = Registry::new(Settings::default());
    let mut high = Rendition::new(&registry, "high", true);
    let mut low = Rendition::new(&registry, "low", false);
    pass(&registry, (0, 30_000), |now| {
        if !(10_000..16_000).contains(&now) {
            high.send(now);
        }
        low.send(now);
    });
    let stream = registry.stream("x").unwrap();
    let audio = stream.track("a0").unwrap();
    assert_whole(&audio);
    let silent = |sizes: &[u32]| sizes.iter().filter(|&&size| size != 50).count();
    // The stream's time is a second later than the publisher's.
    assert_eq!(silent(&sizes(&audio, 17.2)), 0);
    let made = silent(&sizes(&audio, 0.0)) as f64 * 1024.0 / 48_000.0;
    assert!((5.0..6.5).contains(&made), "{made} s of silence");
    assert!((end(&audio) - end(&stream.track("v1").unwrap())).abs() < 0.5);
}

/// The audio comes in bursts by its own connection, beside video that does not. What is late is better than
/// silence.
#[test]
fn audio_that_comes_in_bursts_by_another_connection_is_not_replaced() {
    let registry = Registry::new(Settings::default());
    let mut low = Rendition::new(&registry, "low", false);
    low.send(0);
    let mut high = Rendition::new(&registry, "high", true);
    pass(&registry, (20, 40_000), |now| {
        low.send(now);
        if now % 1_800 == 0 {
            high.send(now);
        }
    });
    let audio = registry.stream("x").unwrap().track("a0").unwrap();
    let sizes = sizes(&audio, 0.0);
    assert!(sizes.len() > 1_500 && sizes.iter().all(|&size| size == 50));
}

/// The publisher of the audio goes on with its video, which does not lead.
#[test]
fn silence_stands_in_for_audio_that_another_publisher_leaves_out() {
    let registry = Registry::new(Settings::default());
    let mut low = Rendition::new(&registry, "low", false);
    low.send(0);
    let mut high = Rendition::new(&registry, "high", true);
    pass(&registry, (20, 25_000), |now| {
        low.send(now);
        high.audio = now < 10_000;
        high.send(now);
        let stream = registry.stream("x").unwrap();
        if let Some(audio) = stream.track("a0").filter(|_| now > 13_000) {
            let behind = end(&stream.track("v0").unwrap()) - end(&audio);
            assert!((-0.1..1.0).contains(&behind), "{behind} s behind at {now} ms");
            assert!(audio.is_present());
        }
    });
}

/// A rendition that runs far ahead leads while the main publisher's connection hangs. If silence went
/// as far, the main publisher's audio would be dropped for as long.
#[test]
fn silence_follows_no_rendition_that_runs_far_ahead() {
    let registry = Registry::new(Settings::default());
    let mut main = Rendition::new(&registry, "main", true);
    let mut ahead = Rendition::new(&registry, "ahead", false);
    let mut frames = 0;
    pass(&registry, (0, 30_000), |now| {
        if !(10_000..16_000).contains(&now) {
            main.send(now);
        }
        if now % 40 == 0 {
            let _ = ahead.publisher.sample(0, sample(frames * 3_000, true, 100), at(now));
            frames += 1;
        }
    });
    let audio = registry.stream("x").unwrap().track("a0").unwrap();
    assert!(end(&audio) < 32.0, "{} s", end(&audio));
    assert!(sizes(&audio, 18.0).iter().all(|&size| size == 50));
    assert!(end(&audio) > 30.0, "{} s", end(&audio));
}
