//! What manifests say, rendered from windows that the tests make.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::*;

/// Renditions of one stream, one video each, with a keyframe every so many frames. 0 is a
/// rendition that is announced and sends nothing.
struct Renditions {
    registry: live::Registry,
    publishers: Vec<(live::Publisher, u32)>,
    frame: u32,
    /// Frames per second.
    rate: u32,
    /// By how many millionths the publishers' clock is too slow.
    drift: i64,
    /// Whether the first publisher sends audio, too.
    audio: bool,
}

impl Renditions {
    fn new(distances: &[u32]) -> Self {
        let registry = live::Registry::new(live::Settings::default());
        let mut publishers = Vec::new();
        for (number, &distance) in distances.iter().enumerate() {
            publishers.push((Self::publisher(&registry, number, Self::at(0)), distance));
        }
        Self { registry, publishers, frame: 0, rate: 30, drift: 0, audio: false }
    }

    /// The publisher of a rendition, which announces its video.
    fn publisher(
        registry: &live::Registry,
        number: usize,
        now: live::UnixMicros,
    ) -> live::Publisher {
        let rendition = (number > 0).then(|| format!("r{number}"));
        let info = live::PublisherInfo { peer: None, protocol: "test", rendition };
        let mut publisher = registry.publish("x", info, now).unwrap();
        let (video, _) = super::super::hls::tests::codecs();
        publisher.track(0, video, 1000, *b"und", now).unwrap();
        publisher
    }

    /// Adds audio to the first publisher's video. `drift` is by how many millionths its clock
    /// is too slow.
    fn with_audio(rate: u32, drift: i64) -> Self {
        let mut renditions = Self { rate, drift, audio: true, ..Self::new(&[2 * rate; 2]) };
        let (_, audio) = super::super::hls::tests::codecs();
        renditions.publishers[0].0.track(1, audio, 48_000, *b"und", Self::at(0)).unwrap();
        renditions
    }

    /// When something is captured, by the publishers' clock in microseconds.
    fn at(micros: u64) -> live::UnixMicros {
        live::UnixMicros(1_700_000_000_000_000 + micros)
    }

    /// A frame that each publisher sends.
    fn frame(&self, distance: u32) -> media::Sample {
        let dts = i64::from(self.frame) * 1000 / i64::from(self.rate);
        let sync = self.frame.is_multiple_of(distance);
        media::Sample { dts, cts: 0, duration: 0, sync, data: bytes::Bytes::from_static(&[0; 64]) }
    }

    fn publish(&mut self, frames: u32) {
        for _ in 0..frames {
            let micros = u64::from(self.frame) * 1_000_000 / u64::from(self.rate);
            let drifted = micros as i64 / 1_000_000 * self.drift;
            let now = Self::at(micros.saturating_add_signed(drifted));
            for at in 0..self.publishers.len() {
                let distance = self.publishers[at].1;
                if distance > 0 {
                    let sample = self.frame(distance);
                    self.publishers[at].0.sample(0, sample, now).unwrap();
                }
            }
            let units = |frame: u32| i64::from(frame) * 48_000 / i64::from(self.rate) / 1024;
            for unit in units(self.frame)..units(self.frame + 1) * i64::from(self.audio) {
                let data = bytes::Bytes::from_static(&[0; 64]);
                let sample =
                    media::Sample { dts: unit * 1024, cts: 0, duration: 0, sync: true, data };
                self.publishers[0].0.sample(1, sample, now).unwrap();
            }
            self.frame += 1;
            if self.frame.is_multiple_of(30) {
                self.registry.sweep(now);
            }
        }
    }

    fn manifest(&self) -> String {
        let stream = self.registry.stream("x").unwrap();
        model(&stream, &stream.state(), &Entrance::at(&stream, &stream.state(), 0)).render()
    }

    /// The number of the listed adaptation set that each track is in.
    fn set_ids(&self) -> BTreeMap<String, u32> {
        let text = self.manifest();
        let sets = text.split("<AdaptationSet ").skip(1).flat_map(|set| {
            let (_, id) = set.split_once("id=\"").unwrap();
            let id: u32 = id.split('"').next().unwrap().parse().unwrap();
            let named = set.split("<Representation id=\"").skip(1);
            named.map(move |rest| (rest.split('"').next().unwrap().to_owned(), id))
        });
        sets.collect()
    }

    /// The renditions of each listed adaptation set.
    fn sets(&self) -> Vec<Vec<String>> {
        let text = self.manifest();
        let sets = text.split("<AdaptationSet ").skip(1).map(|set| {
            assert!(set.contains("segmentAlignment=\"true\""), "{set}");
            let named = set.split("<Representation id=\"").skip(1);
            named.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
        });
        sets.collect()
    }
}

#[test]
fn present_tracks_with_a_segment_are_listed_without_waiting_for_others() {
    let mut renditions = Renditions::new(&[60, 60, 0, 45]);
    renditions.publish(300);
    // v2 sends nothing, and v3 is cut at other places.
    assert_eq!(renditions.sets(), [vec!["v0", "v1"], vec!["v3"]]);
    renditions.publishers.remove(1);
    renditions.publish(330);
    assert_eq!(renditions.sets(), [vec!["v0"], vec!["v3"]]);
}

/// A player finds the set that it plays in the next manifest by its number.
#[test]
fn sets_keep_their_numbers_while_renditions_come_and_go() {
    let mut renditions = Renditions { audio: true, ..Renditions::new(&[30, 0, 0]) };
    let (_, audio) = super::super::hls::tests::codecs();
    renditions.publishers[0].0.track(1, audio, 48_000, *b"und", Renditions::at(0)).unwrap();
    let mut before: BTreeMap<String, u32> = BTreeMap::new();
    let mut publish = |renditions: &mut Renditions, seconds, listed: &[&str]| {
        for _ in 0..seconds * 5 {
            renditions.publish(6);
            let now = renditions.set_ids();
            for (name, id) in &now {
                assert_eq!(id, before.get(name).unwrap_or(id), "{name}: {now:?}");
            }
            before.extend(now);
        }
        let names: Vec<_> = renditions.set_ids().into_keys().collect();
        assert_eq!(names, listed);
    };
    publish(&mut renditions, 3, &["a0", "v0"]);
    // v1 begins in the midst of a segment of v0, and is cut where v0 is from then on.
    renditions.publishers[1].1 = 30;
    publish(&mut renditions, 5, &["a0", "v0", "v1"]);
    assert_eq!(renditions.sets()[0], ["v0", "v1"]);
    // v2 has other keyframes.
    renditions.publishers[2].1 = 45;
    publish(&mut renditions, 5, &["a0", "v0", "v1", "v2"]);
    assert_eq!(renditions.sets().len(), 3);
    // v1's publisher is away for longer than a segment lasts, and comes back in the midst of one. The list of
    // v1 has a hole until its window is past it.
    let v2 = renditions.publishers.pop().unwrap();
    renditions.publishers.pop();
    renditions.publishers.push(v2);
    publish(&mut renditions, 7, &["a0", "v0", "v1", "v2"]);
    let v2 = renditions.publishers.pop().unwrap();
    let now = Renditions::at(u64::from(renditions.frame) * 1_000_000 / 30);
    renditions.publishers.push((Renditions::publisher(&renditions.registry, 1, now), 30));
    renditions.publishers.push(v2);
    publish(&mut renditions, 60, &["a0", "v0", "v1", "v2"]);
    assert_eq!(renditions.sets()[0], ["v0", "v1"]);
    // The first of them goes, with its audio.
    renditions.audio = false;
    renditions.publishers.remove(0);
    publish(&mut renditions, 40, &["v1", "v2"]);
}

/// The dates that a playlist of HLS gives its segments, by file name, in milliseconds of their
/// day.
fn dated_by_hls(playlist: &str) -> HashMap<String, f64> {
    let (mut dated, mut date, mut lasts) = (HashMap::new(), f64::NAN, 0.0);
    for line in playlist.lines() {
        if let Some(told) = line.strip_prefix("#EXT-X-PROGRAM-DATE-TIME:") {
            let time = told.split('T').next_back().unwrap().trim_end_matches('Z');
            let fields = time.split(':').map(|field| field.parse::<f64>().unwrap());
            date = fields.fold(0.0, |sum, field| sum * 60.0 + field) * 1000.0;
        } else if let Some(told) = line.strip_prefix("#EXTINF:") {
            lasts = told.trim_end_matches(',').parse::<f64>().unwrap() * 1000.0;
        } else if !line.starts_with('#') {
            dated.insert(line.to_owned(), date);
            date += lasts;
        }
    }
    dated
}

/// The dates that a manifest gives, in milliseconds of their day.
#[derive(Default)]
struct Dated {
    /// By track, period and media time: the sum of availabilityStartTime, the start of the
    /// period and the media time in the period.
    segments: HashMap<(String, String, u64), f64>,
    /// Media time and wall-clock time of each reference, with its kind and its period.
    references: Vec<(Kind, String, u64, f64)>,
}

fn dated_by_dash(manifest: &str) -> Dated {
    let mpd = dash_mpd_core::parse(manifest).unwrap();
    let of_day = |millis: i64| millis.rem_euclid(86_400_000) as f64;
    let epoch = mpd.availabilityStartTime.unwrap().timestamp_millis();
    assert!(mpd.periods.is_sorted_by_key(|period| period.start.unwrap()));
    let mut dated = Dated::default();
    for period in &mpd.periods {
        let id = period.id.clone().unwrap();
        let start = of_day(epoch) + period.start.unwrap().as_secs_f64() * 1000.0;
        for set in &period.adaptations {
            for reference in &set.ProducerReferenceTime {
                let time = reference.wallClockTime.unwrap().timestamp_millis();
                let media = reference.presentationTime.unwrap();
                let audio = set.contentType.as_deref() == Some("audio");
                let kind = if audio { Kind::Audio } else { Kind::Video };
                dated.references.push((kind, id.clone(), media, of_day(time)));
            }
            for representation in &set.representations {
                let template = representation.SegmentTemplate.as_ref();
                let template = template.or(set.SegmentTemplate.as_ref()).unwrap();
                let offset = template.presentationTimeOffset.unwrap_or(0) as f64;
                let mut at = 0;
                for run in &template.SegmentTimeline.as_ref().unwrap().segments {
                    at = run.t.unwrap_or(at);
                    for _ in 0..=run.r.unwrap_or(0) {
                        let ticks = template.timescale.unwrap() as f64 / 1000.0;
                        let date = start + (at as f64 - offset) / ticks;
                        let name = representation.id.clone().unwrap();
                        dated.segments.insert((name, id.clone(), at), date);
                        at += run.d;
                    }
                }
            }
        }
    }
    dated
}

/// DASH gives the wall clock in three places. They must agree with the dates in HLS, also after
/// somebody has set the wall clock, and where the publisher's clock drifts. One exception: if
/// the clock was set far back, the times of segments are too late by as much as long as the
/// manifest lists the period before. The references tell the date.
#[test]
fn manifests_and_playlists_date_the_same_media_alike() {
    const HOUR: i64 = 3_600_000_000;
    for (ahead, drift) in [(0, 0), (HOUR, 0), (-HOUR, 0), (0, 150), (0, -150)] {
        let mut renditions = Renditions::with_audio(10, drift);
        renditions.publish(210);
        renditions.registry.follow_wall_clock(ahead);
        let stream = renditions.registry.stream("x").unwrap();
        let newest = || stream.track("v0").unwrap().window().newest().unwrap().period;
        while drift != 0 && newest() == 0 {
            renditions.publish(1);
        }
        renditions.publish(210);
        let state = stream.state();
        let dash =
            dated_by_dash(&model(&stream, &state, &Entrance::at(&stream, &state, 0)).render());
        let (mut compared, mut referenced) = (0, 0);
        let mut epochs: BTreeMap<u64, i64> = BTreeMap::new();
        for track in &state.tracks {
            let window = track.window();
            let timescale = track.header().track.timescale;
            let playlist = super::super::hls::playlist(&stream, track, &window);
            let hls = dated_by_hls(&playlist.render(protocol::hls::Skip::No));
            for segment in window.listed() {
                let told = *epochs.entry(segment.period).or_insert(segment.epoch());
                assert!(told == segment.epoch() && told % 1000 == 0, "{told}");
                // The playlist lists a segment's end with the first part of the next.
                let Some(date) = hls.get(&format!("{}.m4s", segment.msn)) else { continue };
                let (period, media) = (format!("p{}", segment.period), segment.presents);
                let media = media.unsigned_abs();
                let told = dash.segments[&(track.name.clone(), period.clone(), media)];
                // A period that is set back begins where the last track ended, a little late.
                let set_back = segment.period > 0 && ahead < 0;
                let (late, most) = if set_back { (3_600_000.0, 25.0) } else { (0.0, 1.0) };
                let off = (told - date - late).abs();
                assert!(off <= most, "{ahead}, {drift}: {told}, {date}");
                compared += 1;
            }
            let newest = window.listed().last().unwrap();
            let date = hls[&format!("{}.m4s", newest.msn)];
            let periods = if (ahead, drift) == (0, 0) { 1 } else { 2 };
            assert_eq!(dash.references.len(), 2 * periods);
            for (kind, period, media, told) in &dash.references {
                // What both give is the difference of date and media time.
                if *kind == track.kind && *period == format!("p{}", newest.period) {
                    let ticks = f64::from(timescale) / 1000.0;
                    let apart = (*media as f64 - newest.presents as f64) / ticks;
                    assert!((told - apart - date).abs() <= 1.0, "{ahead}: {told}, {date}");
                    referenced += 1;
                }
            }
        }
        assert!(compared >= 30 && referenced == 3, "{compared} and {referenced}");
        let apart: Vec<_> = epochs.values().map(|epoch| epoch - epochs[&0]).collect();
        match (ahead, drift) {
            (0, 0) => assert_eq!(apart, [0]),
            (_, 0) => assert_eq!(apart, [0, ahead]),
            _ => assert!(apart.len() == 2 && apart[1].signum() == drift.signum(), "{apart:?}"),
        }
    }
}

#[test]
fn manifests_that_differ_have_different_publish_times() {
    let mut renditions = Renditions::new(&[60, 60]);
    renditions.publish(150);
    let (mut told, mut changes) = (HashMap::new(), 0);
    for frame in 150..400_u64 {
        for at in 0..2 {
            let sample = renditions.frame(60);
            // The second comes a microsecond after the first.
            let now = Renditions::at(frame * 1_000_000 / 30 + at as u64);
            renditions.publishers[at].0.sample(0, sample, now).unwrap();
            let text = renditions.manifest();
            let (_, time) = text.split_once("publishTime=\"").unwrap();
            let time = time.split_once('"').unwrap().0.to_owned();
            let first = told.entry(time).or_insert_with(|| {
                changes += 1;
                text.clone()
            });
            assert_eq!(*first, text);
        }
        renditions.frame += 1;
    }
    assert!(changes > 8, "{changes}");
}

/// Beside audio alone nobody makes silence. Players would wait for it.
#[test]
fn audio_that_stops_is_listed_while_silence_stands_in_for_it() {
    for (has_video, is_listed) in [(true, true), (false, false)] {
        let mut streams = Renditions::new(&[]);
        let mut publisher = Renditions::publisher(&streams.registry, 0, Renditions::at(0));
        let (_, audio) = super::super::hls::tests::codecs();
        for source in [1, 2] {
            let language = [*b"eng", *b"deu"][source as usize - 1];
            publisher.track(source, audio.clone(), 48_000, language, Renditions::at(0)).unwrap();
        }
        streams.publishers.push((publisher, if has_video { 60 } else { 0 }));
        for unit in 0..48 * 25 {
            let (now, dts) = (Renditions::at(unit * 64_000 / 3), unit as i64 * 1024);
            let data = bytes::Bytes::from_static(&[0; 64]);
            let unit_of =
                || media::Sample { dts, cts: 0, duration: 0, sync: true, data: data.clone() };
            let publisher = &mut streams.publishers[0].0;
            publisher.sample(1, unit_of(), now).unwrap();
            if unit < 48 * 5 {
                publisher.sample(2, unit_of(), now).unwrap();
            }
            if unit * 64 / 100 >= u64::from(streams.frame) {
                streams.publish(1);
            }
        }
        assert_eq!(streams.set_ids().contains_key("a1"), is_listed, "{has_video}");
        let stream = streams.registry.stream("x").unwrap();
        assert!(stream.track("a1").is_some() && streams.set_ids().contains_key("a0"));
    }
}

#[test]
fn the_next_segment_is_foretold_where_keyframes_are_regular() {
    let listed = |distances: &[u32]| {
        let mut renditions = Renditions::new(distances);
        renditions.publish(630);
        let stream = renditions.registry.stream("x").unwrap();
        let window = stream.track("v0").unwrap().window();
        let run = runs(&stream.track("v0").unwrap()).into_values().next_back().unwrap();
        let listed = representation(&run, 0).unwrap();
        let Address::Template(template) = listed.address else { panic!() };
        (window, template.segments)
    };
    let (window, segments) = listed(&[60]);
    let open = window.open.as_ref().unwrap();
    assert_eq!(segments.len(), window.listed().count() + 2);
    let [.., last, next] = &segments[..] else { panic!() };
    assert_eq!((last.start, last.duration), (open.presents.unsigned_abs(), 180_000));
    assert_eq!(next.start, last.start + 180_000);
    // Keyframes further apart than a regular publisher's count as regular only once their
    // distances are alike.
    let mut odd = Renditions::new(&[130]);
    odd.publish(300);
    let stream = odd.registry.stream("x").unwrap();
    assert!(!is_regular(&stream, &stream.state()));
    odd.publish(400);
    assert!(is_regular(&stream, &stream.state()));
}

#[test]
fn latency_is_told_when_one_segment_is_there_and_none_is_foretold() {
    for (distance, is_known_to_be_regular) in [(60, true), (130, false)] {
        let mut renditions = Renditions::new(&[distance]);
        let stream = renditions.registry.stream("x").unwrap();
        let track = stream.track("v0").unwrap();
        while track.window().segments.is_empty() {
            renditions.publish(1);
        }
        assert!(track.window().open.is_none(), "the next segment has no part yet");
        assert_eq!(is_regular(&stream, &stream.state()), is_known_to_be_regular);
    }
}

#[test]
fn a_segment_whose_end_is_unknown_is_listed_once_it_has_lasted_a_while() {
    let mut renditions = Renditions::new(&[130]);
    let stream = renditions.registry.stream("x").unwrap();
    let track = stream.track("v0").unwrap();
    let mut listed = Vec::new();
    while listed.last().is_none_or(|&(count, _)| count < 2) {
        renditions.publish(1);
        if let Some(open) = &track.window().open {
            let count = runs(&track).into_values().map(|run| run.segments.len()).sum::<usize>();
            listed.push((count, open.presented_end() - open.presents));
        }
    }
    let least = 90 * 1200;
    let second = &listed[listed.len() - 8..];
    assert!(second.iter().all(|&(count, lasted)| (count == 2) == (lasted >= least)), "{second:?}");
}

/// It was listed with its foretold end before its publisher became silent.
#[test]
fn a_segment_that_was_foretold_is_listed_for_a_while_at_least() {
    let mut renditions = Renditions::new(&[60]);
    renditions.publish(600);
    let stream = renditions.registry.stream("x").unwrap();
    let track = stream.track("v0").unwrap();
    let mut lasted = BTreeSet::new();
    for _ in 0..120 {
        renditions.publish(1);
        let Some(open) = track.window().open.clone() else { continue };
        let entrance = Entrance::at(&stream, &stream.state(), Renditions::at(60_000_000).0 / 1000);
        assert!(!entrance.sends);
        let manifest = model(&stream, &stream.state(), &entrance).render();
        let (periods, _, starts) = listed_video(&manifest);
        assert_eq!(starts.last(), Some(&open.presents.unsigned_abs()));
        let least = open.presented_end().max(open.presents + 90 * 1200);
        assert!((periods[0].1 - least as f64 / 90_000.0).abs() < 0.01, "{periods:?}, {least}");
        lasted.insert(open.presented_end() - open.presents);
    }
    assert!(lasted.len() > 3 && lasted.iter().any(|lasted| *lasted < 90 * 1200), "{lasted:?}");
}

#[test]
fn caches_share_a_manifest_for_no_longer_than_it_says_that_it_holds() {
    let of = |segment_target| {
        let settings = live::Settings { segment_target, ..live::Settings::default() };
        cache_control(update_period(&settings, true))
    };
    assert_eq!(of(Duration::from_secs(2)), "max-age=0, s-maxage=1, must-revalidate");
    assert_eq!(of(Duration::from_secs(6)), "max-age=0, s-maxage=3, must-revalidate");
    assert_eq!(of(Duration::from_secs(1)), "max-age=0, s-maxage=0, must-revalidate");
}

/// The periods of a manifest, as times since `availabilityStartTime` in seconds: the start, and until when
/// video is listed. And the place behind live at which a player begins.
fn listed_video(manifest: &str) -> (Vec<(f64, f64)>, f64, Vec<u64>) {
    let mpd = dash_mpd_core::parse(manifest).unwrap();
    let mut starts = Vec::new();
    let periods = mpd.periods.iter().map(|period| {
        let start = period.start.unwrap().as_secs_f64();
        let set = period.adaptations.iter().find(|set| set.contentType.as_deref() == Some("video"));
        let template = set.unwrap().SegmentTemplate.as_ref().unwrap();
        let mut at = 0;
        for run in &template.SegmentTimeline.as_ref().unwrap().segments {
            at = run.t.unwrap_or(at);
            for _ in 0..=run.r.unwrap_or(0) {
                starts.push(at);
                at += run.d;
            }
        }
        let offset = template.presentationTimeOffset.unwrap_or(0);
        (start, start + (at as f64 - offset as f64) / template.timescale.unwrap() as f64)
    });
    let periods = periods.collect();
    (periods, mpd.suggestedPresentationDelay.unwrap().as_secs_f64(), starts)
}

/// A player begins at the place behind live that the manifest says, up to a second after the manifest was
/// written. Media must be listed there, also where a publisher was away, or is. dash.js would otherwise
/// wait for ever. While a publisher is there, a manifest may wait for media; that ends in time.
#[test]
fn a_player_that_begins_while_a_publisher_is_away_or_back_finds_media() {
    for (distance, away) in [(30, 0), (30, 10), (30, 90), (60, 300), (45, 40), (75, 100), (130, 60)]
    {
        let mut renditions = Renditions::new(&[distance]);
        let stream = renditions.registry.stream("x").unwrap();
        // What held when each request came that waits, and for how many frames it has waited.
        let mut waiting: Vec<(Entrance, u64)> = Vec::new();
        let (mut longest, mut told) = (0, Vec::new());
        let mut look = |renditions: &Renditions, is_live: bool| {
            let now = Renditions::at(u64::from(renditions.frame) * 1_000_000 / 30).0 / 1000;
            let entrance = Entrance::at(&stream, &stream.state(), now);
            waiting.push((entrance, 0));
            let count = waiting.len();
            // One comes with each frame, and looks again each few frames.
            waiting.retain_mut(|(asked, frames)| {
                let looks = *frames % (30 * LOOK_AGAIN.as_millis() as u64 / 1000) == 0;
                longest = longest.max(*frames);
                *frames += 1;
                !looks || (is_live && entrance.is_worth_a_wait(asked))
            });
            if waiting.len() == count {
                return;
            }
            let manifest = model(&stream, &stream.state(), &entrance).render();
            let (periods, delay, starts) = listed_video(&manifest);
            for late in [0.0, 0.5, 1.0] {
                let place = (now - stream.state().epoch.0 / 1000) as f64 / 1000.0 - delay + late;
                let found =
                    periods.iter().any(|&(from, to)| from - 0.1 <= place && place <= to + 0.1);
                assert!(found, "{distance}, {away}, {now}: {place} in {periods:?}");
            }
            if is_live {
                told.extend(starts);
            }
        };
        for _ in 0..400 {
            renditions.publish(1);
            if renditions.frame > 200 {
                look(&renditions, true);
            }
        }
        renditions.publishers.clear();
        for _ in 0..away {
            renditions.frame += 1;
            look(&renditions, false);
        }
        let info = live::PublisherInfo { peer: None, protocol: "test", rendition: None };
        let back = Renditions::at(u64::from(renditions.frame) * 1_000_000 / 30);
        let mut publisher = renditions.registry.publish("x", info, back).unwrap();
        let (video, _) = super::super::hls::tests::codecs();
        publisher.track(0, video, 1000, *b"und", back).unwrap();
        // The encoder begins with a keyframe.
        renditions.frame = renditions.frame.next_multiple_of(distance);
        renditions.publishers.push((publisher, distance));
        for _ in 0..400 {
            renditions.publish(1);
            look(&renditions, true);
        }
        assert!(longest <= 30 * HOLDS.as_secs(), "{distance}, {away}: {longest} frames");
        // All segments that were foretold of the publisher that is back have come.
        let window = stream.track("v0").unwrap().window();
        let made: Vec<_> = window.listed().map(|s| s.presents.unsigned_abs()).collect();
        let begun = window.listed().next_back().unwrap().period_start.unsigned_abs();
        let range = begun.max(made[0])..*made.last().unwrap();
        let never = told.iter().filter(|&at| range.contains(at) && !made.contains(at));
        let never: BTreeSet<_> = never.collect();
        assert!(never.is_empty(), "{distance}, {away}: {never:?} of {made:?}");
    }
}

/// A publisher that is slower than real time never comes to the place where players begin. Their requests
/// wait no longer than until its next media.
#[test]
fn nobody_waits_for_a_publisher_that_is_slower_than_real_time() {
    let mut renditions = Renditions::new(&[60]);
    let stream = renditions.registry.stream("x").unwrap();
    let (mut asked, mut waited, mut answered) = (None, 0, 0);
    for _ in 0..900 {
        renditions.publish(1);
        let media = u64::from(renditions.frame) * 1000 / 30;
        // Each second of the media comes a fifth of a second later.
        let now = Renditions::at(0).0 / 1000 + media * 6 / 5;
        if stream.track("v0").unwrap().window().newest().is_none() {
            continue;
        }
        let entrance = Entrance::at(&stream, &stream.state(), now);
        let asked_then = asked.get_or_insert(entrance);
        if entrance.is_worth_a_wait(asked_then) {
            waited += 1;
            // A segment is listed once it has lasted a while.
            assert!(waited <= 45, "{now}");
        } else {
            (asked, waited) = (None, 0);
            answered += u32::from(entrance.farther > 0);
        }
    }
    assert!(answered > 10, "{answered}");
}
