//! Players on a paused clock: time passes only while player and server wait. So each time is exact,
//! on any machine.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use media::cmaf::{self, ChunkInfo};
use media::codec::{Codec, avc};
use media::flv::{Message, Metadata, Packetizer, file_header};
use media::{Sample, stamp};
use tokio::time::{Instant, timeout};

use crate::double::Server;
use crate::playback::CaptureClock;
use crate::player::{Target, play};
use crate::support::low_latency::{BEFORE, PART, Stream};
use crate::support::{
    Act, Asked, AudioClip, LIMIT, Presentation, Renditions, date, near, ok, options, status,
};
use crate::verify::Reference;
use crate::{Clock, End, Lane, Options, Rendition, Report, Viewer};

mod requests;

/// Timers have steps of a millisecond, in seconds.
const STEP: f64 = 0.002;

/// What the viewers of a server share.
fn lane(clock: Clock, server: &Server, options: Options) -> Rc<Lane> {
    let lane = Lane::new(clock, options, Arc::default());
    lane.double.set(server.clone()).unwrap();
    lane
}

/// Runs one viewer, for at most `duration`.
async fn watch(
    lane: &Rc<Lane>,
    url: &str,
    verify: bool,
    reference: Option<Arc<Reference>>,
    duration: Duration,
) -> Report {
    let target: Target = url.parse().unwrap();
    let viewer = Viewer::join(lane, (0, 0), verify, reference);
    let outcome = timeout(duration, play(&viewer, &target)).await.ok();
    viewer.leave(outcome).report()
}

/// A server of the clip that answers late where `delay` says so, in milliseconds.
fn delaying(fragments: u32, delay: impl Fn(&str) -> u64 + Send + Sync + 'static) -> Server {
    let clip = AudioClip::new(fragments);
    Server::new(move |asked| {
        let mut acts = vec![Act::Wait(Duration::from_millis(delay(&asked.target)))];
        acts.extend(clip.answer(&asked.target));
        acts
    })
}

#[tokio::test(start_paused = true)]
async fn startup_is_what_the_server_delayed() {
    let server = delaying(4, |path| if path == "/x/0.m4s" { 700 } else { 0 });
    for verify in [false, true] {
        let report = watch(
            &lane(Clock::start(), &server, options()),
            "http://h/x/index.m3u8",
            verify,
            None,
            LIMIT,
        )
        .await;
        assert_eq!((report.end, report.stalls), (End::Ended, 0), "{report:#?}");
        // One segment is more than the buffered 500 ms.
        near(report.first_media.unwrap(), 0.7, STEP);
        near(report.startup.unwrap(), 0.7, STEP);
    }
}

#[tokio::test(start_paused = true)]
async fn stalls_are_as_many_and_as_long_as_the_server_made_them() {
    // The first two segments play for 1.024 s. The third comes at 2.0 s, the fourth at 4.5 s.
    let server = delaying(5, |path| match path {
        "/x/2.m4s" => 2000,
        "/x/3.m4s" => 2500,
        _ => 0,
    });
    let report = watch(
        &lane(Clock::start(), &server, options()),
        "http://h/x/index.m3u8",
        true,
        None,
        LIMIT,
    )
    .await;
    assert_eq!((report.end, report.stalls), (End::Ended, 2), "{report:#?}");
    near(report.startup.unwrap(), 0.0, STEP);
    near(report.stalled, (2.0 - 1.024) + (2.5 - 0.512), STEP);
    near(report.received, 5.0 * 0.512, 1e-6);
}

#[tokio::test(start_paused = true)]
async fn a_player_of_something_finished_takes_what_it_has_room_for() {
    let server = delaying(12, |_| 0);
    let narrow = Options { ahead: Some(Duration::from_secs(1)), ..options() };
    let duration = Duration::from_millis(1500);
    let report = watch(
        &lane(Clock::start(), &server, narrow),
        "http://h/x/index.m3u8",
        false,
        None,
        duration,
    )
    .await;
    assert_eq!((report.end, report.stalls), (End::Time, 0));
    near(report.watched, 1.5, STEP);
    // Received are the media that have played, the media ahead, and the segment that filled the
    // buffer.
    near(report.received, 5.0 * 0.512, 1e-6);
    let room = 1.5 + 1.0;
    assert!((room..room + 0.512).contains(&report.received));
}

#[tokio::test(start_paused = true)]
async fn latency_is_from_the_time_that_the_media_say() {
    let (clip, clock) = (AudioClip::new(8), Clock::start());
    let server = Server::new(move |_| {
        let unix = clock.unix(clock.now()) as u64;
        // Each fragment was captured 3 s before it is sent.
        let head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        let mut acts = vec![Act::Send([head, &clip.header()[..]].concat())];
        for number in 0..8u64 {
            let captured = unix - 3_000_000 + number * 512_000;
            acts.push(Act::Send(clip.stamped(number as u32, captured)));
            acts.push(Act::Wait(Duration::from_millis(512)));
        }
        acts.push(Act::Close);
        acts
    });
    // The player waits for the third fragment.
    let buffered = Options { buffer: Duration::from_millis(1300), ..options() };
    for verify in [false, true] {
        let url = "http://h/live.mp4";
        let report = watch(&lane(clock, &server, buffered.clone()), url, verify, None, LIMIT).await;
        let counted = (report.end, report.stalls, report.holes);
        assert_eq!(counted, (End::Ended, 0, 0), "{report:#?}");
        near(report.received, 8.0 * 0.512, 1e-6);
        near(report.startup.unwrap(), 2.0 * 0.512, STEP);
        // Delivery is measured to the end of the fragment, half a second less than to its start.
        let delivery = report.delivery.unwrap();
        near(delivery.min, 3.0 - 0.512, STEP);
        near(delivery.max, 3.0 - 0.512, STEP);
        near(report.behind_live.unwrap().mean, 3.0 + 2.0 * 0.512, STEP);
        near(report.late.unwrap().max, 0.0, STEP);
    }
}

/// The low-latency HLS stream, whose part 11 was captured just now. Each part is there when it has been
/// captured, or so much later.
fn parts_in_time(
    clock: Clock,
    hints: bool,
    late: impl Fn(u64) -> Duration + Send + Sync + 'static,
) -> Stream {
    let past = PART * BEFORE as u32;
    let began = Instant::now().into_std() - past;
    let unix = Duration::from_micros(clock.unix(clock.now()).unsigned_abs()) - past;
    Stream::new(hints).timed(move |part| {
        let captured = PART * part as u32;
        (began + captured + PART + late(part), unix + captured)
    })
}

/// A player of parts asks for each part before it is there, and has it as soon as it is there. A part
/// that comes late stops it for as long as it lacks media.
#[tokio::test(start_paused = true)]
async fn parts_are_had_as_soon_as_they_are_there() {
    for (hints, delay) in [(true, 0), (false, 0), (true, 3000), (false, 3000)] {
        let clock = Clock::start();
        // Part 15 and all after it are this much late.
        let late = move |part| Duration::from_millis(if part >= 15 { delay } else { 0 });
        let stream = parts_in_time(clock, hints, late);
        let server = Server::new(move |asked| stream.answer(&asked.target));
        let url = "http://h/media.m3u8";
        let report = watch(&lane(clock, &server, options()), url, false, None, LIMIT).await;
        assert_eq!((report.end, report.holes), (End::Ended, 0), "{report:#?}");
        // It begins three parts before the end, which are there.
        near(report.startup.unwrap(), 0.0, STEP);
        let behind = report.behind_live.unwrap();
        near(behind.min, 3.0 * 0.512, STEP);
        // Delivery is measured to the end of a part.
        let late = delay as f64 / 1000.0;
        let delivery = report.delivery.unwrap();
        near(delivery.min, 0.0, STEP);
        // The parts that were captured before the player came do not count.
        near(delivery.max, late, STEP);
        // It has three parts less the one that it waits for.
        let stalled = f64::max(0.0, late - 2.0 * 0.512);
        assert_eq!(report.stalls, u32::from(delay > 0), "{report:#?}");
        near(report.stalled, stalled, STEP);
    }
}

/// Video of 25 frames a second, in groups of ten. Each frame has the time at which it was made as its
/// stamp. A group is sent `held` after its last frame was made.
fn stamped(clock: Clock, held: Duration) -> Server {
    const GROUP: i64 = 10;
    let codec = Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap());
    let track = media::Track { id: 1, timescale: 1000, codec: codec.clone(), language: *b"und" };
    Server::new(move |asked| {
        let began = clock.unix(clock.now());
        let frame = |number: i64| {
            let unit = [&100_u32.to_be_bytes()[..], &[0x41; 100]].concat();
            let made = (began + number * 40_000).unsigned_abs();
            let data = stamp::insert(&codec, &unit, made).unwrap().into();
            let sync = number % GROUP == 0;
            Sample { dts: number * 40, cts: 0, duration: 40, sync, data }
        };
        let packetizer = Packetizer::new(0, &codec, 1000).unwrap();
        let is_flv = asked.target.ends_with(".flv");
        let header = if is_flv {
            [file_header(false, true), packetizer.sequence_header(0).unwrap().tag()].concat()
        } else {
            cmaf::header(&[&track]).unwrap().to_vec()
        };
        let head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        let first = held + Duration::from_millis(40) * (GROUP - 1) as u32;
        let mut acts = vec![Act::Send([&head[..], &header].concat()), Act::Wait(first)];
        for group in 0..8 {
            let frames: Vec<_> = (group * GROUP..(group + 1) * GROUP).map(frame).collect();
            let mut bytes = Vec::new();
            if is_flv {
                let tags = frames.iter().map(|frame| packetizer.sample(frame).unwrap().tag());
                tags.for_each(|tag| bytes.extend_from_slice(&tag));
            } else {
                let info = ChunkInfo { track_id: 1, sequence_number: 1, segment_start: None };
                cmaf::write_chunk(&mut bytes, &info, &frames).unwrap();
            }
            acts.extend([Act::Send(bytes), Act::Wait(Duration::from_millis(40) * GROUP as u32)]);
        }
        acts.push(Act::Close);
        acts
    })
}

#[tokio::test(start_paused = true)]
async fn stamps_tell_how_long_media_were_held_back() {
    for (held, url, verify) in [
        (0.0, "http://h/live.mp4", false),
        (0.3, "http://h/live.mp4", false),
        (0.3, "http://h/live.mp4", true),
        (0.3, "http://h/live.flv", false),
        (2.0, "http://h/live.flv", true),
    ] {
        let clock = Clock::start();
        let server = stamped(clock, Duration::from_secs_f64(held));
        let lane = lane(clock, &server, options());
        let report = watch(&lane, url, verify, None, LIMIT).await;
        assert_eq!((report.end, report.holes), (End::Ended, 0), "{report:#?}");
        assert_eq!(report.clock, Some(CaptureClock::Stamp), "{report:#?}");
        // A fragment arrives with its last frame. In FLV each frame tells its own delivery, and the
        // first of a group was made nine frames earlier.
        let earlier = if url.ends_with(".flv") { 9.0 * 0.04 } else { 0.0 };
        let delivery = report.delivery.unwrap();
        near(delivery.min, held, STEP);
        near(delivery.max, held + earlier, STEP);
        // Two groups are more than the buffered 500 ms. What plays then is what was made first.
        near(report.startup.unwrap(), held + 19.0 * 0.04, STEP);
        near(report.behind_live.unwrap().mean, held + 19.0 * 0.04, STEP);
    }
}

/// The player switches to the higher rendition, at the start of a segment, if the connection carries
/// it, and back to the lower one when it no longer does.
#[tokio::test(start_paused = true)]
async fn renditions_are_switched_as_the_connection_allows() {
    let renditions = Renditions::new();
    let reference = Some(renditions.clip.reference());
    let server = Server::new(move |asked| renditions.answer(&asked.target));
    let automatic = Options { rendition: Rendition::Auto, ..options() };
    let report = watch(
        &lane(Clock::start(), &server, automatic),
        "http://h/index.m3u8",
        true,
        reference,
        LIMIT,
    )
    .await;
    assert_eq!((report.end, report.troubles.len()), (End::Ended, 0), "{report:#?}");
    let asked = server.asked();
    let media = asked.iter().map(|asked| asked.target.as_str());
    let media: Vec<&str> = media.filter(|path| path.ends_with(".m4s")).collect();
    // Each answer weighs three tenths: a slow one keeps the player low for two more.
    let chosen = ["low", "high", "high", "high", "low", "low", "high", "low"];
    let wanted = chosen.iter().zip(0..).map(|(chosen, number)| format!("/{chosen}/{number}.m4s"));
    assert!(media.iter().copied().eq(wanted), "{media:?}");
    assert_eq!(report.switches, 4, "{report:#?}");
    // Both headers have the same name, and each describes another track.
    let headers = asked.iter().map(|asked| asked.target.as_str());
    let headers: Vec<&str> = headers.filter(|path| path.ends_with("/init.mp4")).collect();
    let wanted = ["low", "high", "low", "high", "low"].map(|chosen| format!("/{chosen}/init.mp4"));
    assert_eq!(headers, wanted);
}

/// RFC 8216bis 6.3.4: a playlist is loaded again after a target duration, or after half of one if it
/// had nothing new.
#[tokio::test(start_paused = true)]
async fn playlists_are_polled_at_the_pace_of_their_segments() {
    let clip = AudioClip::new(20);
    let server = Server::new(move |asked| {
        if asked.target != "/x/index.m3u8" {
            return clip.answer(&asked.target);
        }
        // The second reload has nothing new.
        let segments = 4 + asked.before - usize::from(asked.before >= 2);
        let mut text = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MAP:URI=\"init.mp4\"\n".to_owned();
        (0..segments).for_each(|number| text += &format!("#EXTINF:0.512,\n{number}.m4s\n"));
        ok((text + if asked.before == 5 { "#EXT-X-ENDLIST\n" } else { "" }).as_bytes())
    });
    let report = watch(
        &lane(Clock::start(), &server, options()),
        "http://h/x/index.m3u8",
        false,
        None,
        LIMIT,
    )
    .await;
    // Segments come at half the speed of playback. So the last two are late by 0.43 and 0.49 s.
    assert_eq!((report.end, report.stalls, report.holes), (End::Ended, 2, 0), "{report:#?}");
    near(report.stalled, (3.5 - 6.0 * 0.512) + (4.5 - 3.5 - 0.512), 3.0 * STEP);
    let asked = server.asked();
    let loads = asked.iter().filter(|asked| asked.target == "/x/index.m3u8");
    let loads: Vec<_> = loads.map(|asked| asked.at).collect();
    let pauses = loads.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64());
    let wanted = [1.0, 1.0, 0.5, 1.0, 1.0];
    assert_eq!(loads.len(), wanted.len() + 1);
    pauses.zip(wanted).for_each(|(pause, wanted)| near(pause, wanted, STEP));
}

#[tokio::test(start_paused = true)]
async fn chunks_of_a_segment_that_is_being_made_arrive_as_they_are_made() {
    for verify in [true, false] {
        let clock = Clock::start();
        let stream = Presentation::new((12, 24), move || {
            let unix = clock.unix(clock.now()).unsigned_abs();
            (Duration::from_micros(unix), Instant::now().into_std())
        });
        let server = Server::new(move |asked| stream.answer(&asked.target));
        let reference = verify.then(|| AudioClip::new(24).reference());
        let report =
            watch(&lane(clock, &server, options()), "http://h/x.mpd", verify, reference, LIMIT)
                .await;
        assert_eq!((report.end, report.stalls, report.holes), (End::Ended, 0, 0), "{report:#?}");
        // The latency that is wanted, 1.5 s, lies in the segment that began 2.048 s ago. Its first
        // chunk has been there for the other three.
        near(report.startup.unwrap(), 0.0, STEP);
        let behind = report.behind_live.unwrap();
        near(behind.min, 4.0 * 0.512, STEP);
        near(behind.max, 4.0 * 0.512, STEP);
        let delivery = report.delivery.unwrap();
        near(delivery.min, 0.0, STEP);
        // Later chunks come as they are made. A segment may be asked for 0.5 s before it is complete,
        // when its first chunk is 12 ms old. Those from before do not count.
        near(delivery.max, 0.512 - 0.5, STEP);
        near(report.late.unwrap().max, 0.512 - 0.5, STEP);
        near(report.received, (24.0 - 8.0) * 0.512, 1e-6);
    }
}

/// A wait for an answer, or for more of it, ends after the viewer's patience; each byte renews it.
#[tokio::test(start_paused = true)]
async fn patience_and_time_end_a_viewer() {
    let clip = Arc::new(AudioClip::new(4));
    let server = Server::new(move |asked| match asked.target.as_str() {
        "/endless.flv" => {
            // A header, and bytes of a tag that never ends. They come for ever.
            let mut acts = vec![Act::Send(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())];
            acts.push(Act::Send(clip.flv()[..13].to_vec()));
            acts.push(Act::Send([8, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0].to_vec()));
            for _ in 0..100 {
                acts.push(Act::Wait(Duration::from_millis(300)));
                acts.push(Act::Send(vec![0; 100]));
            }
            acts
        }
        "/drip.flv" => {
            let mut acts = vec![Act::Send(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())];
            for piece in clip.flv()[..100].chunks(10) {
                acts.push(Act::Wait(Duration::from_millis(300)));
                acts.push(Act::Send(piece.to_vec()));
            }
            acts.push(Act::Hang);
            acts
        }
        _ => vec![Act::Hang],
    });
    let patience = Duration::from_millis(400);
    let impatient = Options { patience, ..options() };
    for (url, took) in [
        ("http://h/x.m3u8", 0.4),
        ("http://h/x.mpd", 0.4),
        ("ws://h/x", 0.4),
        ("rtmp://h/live/x", 0.4),
        ("http://h/drip.flv", 10.0 * 0.3 + 0.4),
    ] {
        let report =
            watch(&lane(Clock::start(), &server, impatient.clone()), url, false, None, LIMIT).await;
        let error = report.error.as_ref().unwrap_or_else(|| panic!("{url}: {report:#?}"));
        assert_eq!(error.kind.name(), "timeout", "{url}: {report:#?}");
        near(report.watched, took, STEP);
    }
    // If its time is up first, the viewer ends for that reason.
    let report =
        watch(&lane(Clock::start(), &server, options()), "http://h/x.m3u8", false, None, patience)
            .await;
    assert_eq!((report.end, report.troubles.len()), (End::Time, 0));
    near(report.watched, 0.4, STEP);
    // An answer that goes on without media ends with the viewer's time.
    let time = Duration::from_secs(13);
    let report =
        watch(&lane(Clock::start(), &server, impatient), "http://h/endless.flv", false, None, time)
            .await;
    assert_eq!(report.end, End::Time, "{report:#?}");
    near(report.watched, 13.0, STEP);
}

/// The date of a segment is that of its first fragment. A viewer that counts each fragment has the same
/// latencies as one that counts the segment.
#[tokio::test(start_paused = true)]
async fn the_date_of_a_segment_is_that_of_its_first_fragment() {
    for verify in [false, true] {
        let (clip, clock) = (AudioClip::new(12), Clock::start());
        let segment = 2 * PART;
        let began = Instant::now().into_std();
        let unix = Duration::from_micros(clock.unix(clock.now()).unsigned_abs());
        let server = Server::new(move |asked| {
            let name = asked.target.rsplit('/').next().unwrap();
            let number = name.strip_suffix(".m4s").and_then(|number| number.parse::<u32>().ok());
            match (name, number) {
                ("index.m3u8", _) => {
                    let mut text =
                        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MAP:URI=\"init.mp4\"\n"
                            .to_owned();
                    for number in 0..6 {
                        let date = date(unix + segment * number);
                        text += &format!(
                            "#EXT-X-PROGRAM-DATE-TIME:{date}\n#EXTINF:1.024,\n{number}.m4s\n"
                        );
                    }
                    ok((text + "#EXT-X-ENDLIST\n").as_bytes())
                }
                // A segment is there once it has been captured.
                (_, Some(number)) => {
                    let mut acts = vec![Act::WaitUntil(began + segment * (number + 1))];
                    let fragments =
                        [2 * number, 2 * number + 1].map(|number| clip.fragment(number));
                    acts.extend(ok(&fragments.concat()));
                    acts
                }
                _ => clip.answer(&asked.target),
            }
        });
        let url = "http://h/x/index.m3u8";
        let report = watch(&lane(clock, &server, options()), url, verify, None, LIMIT).await;
        assert_eq!((report.end, report.stalls, report.holes), (End::Ended, 0, 0), "{report:#?}");
        let delivery = report.delivery.unwrap();
        near(delivery.min, 0.0, STEP);
        // The first fragment of a segment waits for the second.
        near(delivery.max, if verify { 0.512 } else { 0.0 }, STEP);
        let behind = report.behind_live.unwrap();
        near(behind.min, 1.024, STEP);
        near(behind.max, 1.024, STEP);
    }
}

/// Audio comes from the start, video 2.048 s later. Metadata announce both.
#[tokio::test(start_paused = true)]
async fn a_player_of_flv_waits_for_the_tracks_of_the_metadata() {
    for verify in [false, true] {
        let server = Server::new(|_| {
            let codec = Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap());
            let clip = AudioClip::new(8);
            let video = Packetizer::new(0, &codec, 1000).unwrap();
            let audio = Packetizer::new(0, &clip.track.codec, clip.track.timescale).unwrap();
            let codecs =
                Metadata { video_codec: Some(7.0), audio_codec: Some(10.0), ..Metadata::default() };
            let head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
            let mut acts = vec![
                Act::Send(head.to_vec()),
                Act::Send(file_header(true, true).to_vec()),
                Act::Send(Message::metadata(0, &codecs).unwrap().tag().to_vec()),
                Act::Send(audio.sequence_header(0).unwrap().tag().to_vec()),
                Act::Send(video.sequence_header(0).unwrap().tag().to_vec()),
            ];
            for number in 0..8 {
                for sample in clip.samples(number) {
                    acts.push(Act::Send(audio.sample(&sample).unwrap().tag().to_vec()));
                }
                if number >= 4 {
                    let data = [&100_u32.to_be_bytes()[..], &[0x41; 100]].concat().into();
                    let dts = i64::from(number) * 512;
                    let sample = Sample { dts, cts: 0, duration: 512, sync: true, data };
                    acts.push(Act::Send(video.sample(&sample).unwrap().tag().to_vec()));
                }
                acts.push(Act::Wait(PART));
            }
            acts.push(Act::Close);
            acts
        });
        let lane = lane(Clock::start(), &server, options());
        let report = watch(&lane, "http://h/live.flv", verify, None, LIMIT).await;
        assert_eq!((report.end, report.holes), (End::Ended, 0), "{report:#?}");
        // The second frame of video shows how long the first lasts, which is enough to begin.
        near(report.startup.unwrap(), 5.0 * 0.512, STEP);
    }
}
