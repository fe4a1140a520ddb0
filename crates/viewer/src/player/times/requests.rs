//! What players ask for, how they measure it, and what they pass over.

use super::*;

/// The paths that were asked for and end like this, in order.
fn paths(asked: &[Asked], end: &str) -> Vec<String> {
    let paths = asked.iter().map(|asked| asked.target.split('?').next().unwrap().to_owned());
    paths.filter(|path| path.ends_with(end)).collect()
}

/// Each part is too short to tell how fast the connection is. How long the server waits for a part does
/// not count.
#[tokio::test(start_paused = true)]
async fn short_parts_tell_together_how_fast_the_connection_is() {
    let clock = Clock::start();
    let stream = parts_in_time(clock, true, |_| Duration::ZERO);
    let server = Server::new(move |asked| match asked.target.as_str() {
        "/index.m3u8" => Renditions::new().answer("/index.m3u8"),
        target => stream.answer(target),
    });
    let automatic = Options { rendition: Rendition::Auto, ..options() };
    let url = "http://h/index.m3u8";
    let report = watch(&lane(clock, &server, automatic), url, true, None, LIMIT).await;
    assert_eq!((report.end, report.holes, report.switches), (End::Ended, 0, 1), "{report:#?}");
    let media = paths(&server.asked(), ".m4s");
    assert!(media[0].starts_with("/low/"), "{media:?}");
    assert!(media.last().unwrap().starts_with("/high/"), "{media:?}");
}

/// A segment that is being made comes as fast as it is made, also by a fast connection.
#[tokio::test(start_paused = true)]
async fn segments_that_are_being_made_do_not_tell_how_fast_the_connection_is() {
    for verify in [true, false] {
        let clock = Clock::start();
        let stream = Presentation::new((12, 52), move || {
            let unix = clock.unix(clock.now()).unsigned_abs();
            (Duration::from_micros(unix), Instant::now().into_std())
        });
        let stream = stream.with_second();
        let server = Server::new(move |asked| stream.answer(&asked.target));
        let automatic = Options { rendition: Rendition::Auto, ..options() };
        let url = "http://h/x.mpd";
        let report = watch(&lane(clock, &server, automatic), url, verify, None, LIMIT).await;
        assert_eq!((report.end, report.holes, report.switches), (End::Ended, 0, 1), "{report:#?}");
        let media = paths(&server.asked(), ".m4s");
        let high = media.iter().skip_while(|path| !path.starts_with("/high/"));
        let high: Vec<_> = high.collect();
        assert!(
            high.len() >= 19 && high.iter().all(|path| path.starts_with("/high/")),
            "{media:?}"
        );
    }
}

/// Players of finished media stop reading while they have no room. That is not the server's time.
#[tokio::test(start_paused = true)]
async fn request_times_are_without_the_pauses_of_the_player() {
    let clip = AudioClip::new(40);
    let whole: Vec<u8> = (0..10).flat_map(|number| clip.segment(number)).collect();
    let whole = [&clip.header()[..], &whole].concat();
    let server = Server::new(move |asked| {
        let what = match asked.target.as_str() {
            "/segments.mpd" => {
                "<SegmentTemplate timescale=\"48000\" duration=\"98304\" startNumber=\"0\" \
                 initialization=\"init.mp4\" media=\"$Number$.m4s\"/>"
            }
            "/file.mpd" => "<BaseURL>all.mp4</BaseURL>",
            "/init.mp4" => return ok(&clip.header()),
            "/all.mp4" => return ok(&whole),
            path => {
                let name = path.strip_prefix('/').and_then(|name| name.strip_suffix(".m4s"));
                return ok(&clip.segment(name.unwrap().parse().unwrap()));
            }
        };
        let text = format!(
            "<MPD type=\"static\" mediaPresentationDuration=\"PT20.48S\"><Period>\
             <AdaptationSet contentType=\"audio\"><Representation id=\"a\" bandwidth=\"80000\">{what}\
             </Representation></AdaptationSet></Period></MPD>"
        );
        ok(text.as_bytes())
    });
    let narrow = Options { ahead: Some(Duration::from_secs(4)), ..options() };
    for (url, segments) in [("http://h/segments.mpd", 10), ("http://h/file.mpd", 0)] {
        let lane = lane(Clock::start(), &server, narrow.clone());
        let report = watch(&lane, url, true, None, LIMIT).await;
        assert_eq!((report.end, report.stalls, report.holes), (End::Ended, 0, 0), "{report:#?}");
        near(report.received, 20.48, 1e-6);
        // The player reads at the pace of its playhead.
        assert!(report.watched > 10.0, "{report:#?}");
        let times = report.requests_by_kind.get("segment");
        assert_eq!(times.map_or(0, |times| times.count), segments, "{report:#?}");
        assert!(times.is_none_or(|times| times.max < 0.01), "{report:#?}");
    }
}

/// The manifest is not needed for the next segment, and the server makes each segment complete 20 ms
/// before its end.
#[tokio::test(start_paused = true)]
async fn numbered_segments_are_asked_for_one_after_the_other() {
    const SEGMENT: Duration = Duration::from_millis(1024);
    let run = "<SegmentTimeline><S t=\"0\" d=\"49152\" r=\"-1\"/></SegmentTimeline>";
    for (length, timeline) in [("duration=\"49152\"", ""), ("", run)] {
        let (clip, clock) = (AudioClip::new(40), Clock::start());
        let zero = Instant::now().into_std() - 8 * SEGMENT;
        let start = Duration::from_micros(clock.unix(clock.now()).unsigned_abs()) - 8 * SEGMENT;
        let server = Server::new(move |asked| match asked.target.as_str() {
            "/x.mpd" => {
                let start = date(start);
                let text = format!(
                    "<MPD type=\"dynamic\" availabilityStartTime=\"{start}\" \
                     minimumUpdatePeriod=\"PT10S\">\
                     <ServiceDescription><Latency target=\"1500\"/></ServiceDescription>\
                     <Period start=\"PT0S\"><AdaptationSet contentType=\"audio\"><SegmentTemplate \
                     timescale=\"48000\" {length} initialization=\"init.mp4\" media=\"$Number$.m4s\" \
                     startNumber=\"0\" availabilityTimeOffset=\"0.512\" \
                     availabilityTimeComplete=\"false\">{timeline}</SegmentTemplate>\
                     <Representation id=\"a\" bandwidth=\"80000\"/></AdaptationSet></Period></MPD>"
                );
                ok(text.as_bytes())
            }
            "/init.mp4" => ok(&clip.header()),
            path => {
                let name = path.strip_prefix('/').and_then(|name| name.strip_suffix(".m4s"));
                let number: u32 = name.unwrap().parse().unwrap();
                let [first, second] = [2 * number, 2 * number + 1].map(|part| clip.fragment(part));
                let length = first.len() + second.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                let end = zero + SEGMENT * (number + 1);
                vec![
                    Act::Send(head.into_bytes()),
                    Act::WaitUntil(end - PART),
                    Act::Send(first),
                    Act::WaitUntil(end - Duration::from_millis(20)),
                    Act::Send(second),
                ]
            }
        });
        let lane = lane(clock, &server, options());
        let time = Duration::from_secs(8);
        let report = watch(&lane, "http://h/x.mpd", false, None, time).await;
        assert_eq!((report.end, report.stalls, report.holes), (End::Time, 0, 0), "{report:#?}");
        let asked = server.asked();
        let media: Vec<_> = asked.iter().filter(|asked| asked.target.ends_with(".m4s")).collect();
        // Two segments are complete when the player comes.
        assert_eq!(media[2].target, "/8.m4s");
        assert_eq!(media.len(), 2 + 8, "{media:?}");
        for pair in media[2..].windows(2) {
            near((pair[1].at - pair[0].at).as_secs_f64(), 1.024, STEP);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn media_that_left_a_playlist_without_dates_are_one_hole() {
    for verify in [false, true] {
        let clip = AudioClip::new(24);
        let server = Server::new(move |asked| {
            if asked.target != "/x/index.m3u8" {
                return clip.answer(&asked.target);
            }
            let (first, end) = if asked.before == 0 { (0, "") } else { (20, "#EXT-X-ENDLIST\n") };
            let mut text = format!(
                "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:{first}\n\
                 #EXT-X-MAP:URI=\"init.mp4\"\n"
            );
            (first..first + 4)
                .for_each(|number| text += &format!("#EXTINF:0.512,\n{number}.m4s\n"));
            ok((text + end).as_bytes())
        });
        let lane = lane(Clock::start(), &server, options());
        let report = watch(&lane, "http://h/x/index.m3u8", verify, None, LIMIT).await;
        assert_eq!((report.end, report.holes), (End::Ended, 1), "{report:#?}");
        near(report.missing, 16.0 * 0.512, 1e-6);
        near(report.received, 8.0 * 0.512, 1e-6);
    }
}

#[tokio::test(start_paused = true)]
async fn a_segment_that_is_refused_is_asked_for_again_and_then_passed_over() {
    // Until which try the server refuses which segments.
    for (refused, tries, holes) in [(2..3, 2, 0), (2..8, usize::MAX, 1)] {
        let clip = AudioClip::new(10);
        let segments = refused.clone();
        let server = Server::new(move |asked| {
            let name = asked.target.strip_prefix("/x/").and_then(|name| name.strip_suffix(".m4s"));
            let is_refused = name.is_some_and(|name| segments.contains(&name.parse().unwrap()));
            if is_refused && asked.before < tries {
                return status("503 Service Unavailable");
            }
            clip.answer(&asked.target)
        });
        let lane = lane(Clock::start(), &server, options());
        let report = watch(&lane, "http://h/x/index.m3u8", false, None, LIMIT).await;
        assert_eq!((report.end, report.holes), (End::Ended, holes), "{report:#?}");
        let count = refused.len() * tries.min(4);
        assert_eq!(report.troubles.get("status"), Some(&(count as u32)), "{report:#?}");
        near(report.missing, f64::from(holes) * 6.0 * 0.512, 1e-6);
    }
}

#[tokio::test(start_paused = true)]
async fn a_player_gives_up_where_all_segments_are_refused() {
    let clip = AudioClip::new(100);
    let server = Server::new(move |asked| match asked.target.ends_with(".m4s") {
        true => status("403 Forbidden"),
        false => clip.answer(&asked.target),
    });
    let lane = lane(Clock::start(), &server, options());
    let report = watch(&lane, "http://h/x/index.m3u8", false, None, LIMIT).await;
    assert_eq!(report.end, End::Error, "{report:#?}");
    assert_eq!(paths(&server.asked(), ".m4s").len(), 11 * 4);
}

/// Parts are ranges of one file, which grows. A hint without a length means all that comes.
#[tokio::test(start_paused = true)]
async fn parts_that_are_ranges_of_a_file_are_fetched_once() {
    let clip = AudioClip::new(8);
    let parts: Vec<Vec<u8>> = (0..8).map(|number| clip.fragment(number)).collect();
    let server = Server::new(move |asked| {
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        match path {
            "/init.mp4" => return ok(&clip.header()),
            "/0.mp4" => {
                let range = asked.head.lines().find_map(|line| line.strip_prefix("Range: bytes="));
                let (from, last) = range.unwrap().split_once('-').unwrap();
                let (from, whole) = (from.parse::<usize>().unwrap(), parts.concat());
                let last = last.parse().unwrap_or(whole.len() - 1);
                return ok(&whole[from..=last]);
            }
            _ => {}
        }
        let wanted = query.split('&').find_map(|pair| pair.strip_prefix("_HLS_part="));
        let made = wanted.map_or(3, |part| part.parse::<usize>().unwrap() + 1);
        let mut text = "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXT-X-PART-INF:PART-TARGET=0.512\n\
            #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.536\n\
            #EXT-X-MAP:URI=\"init.mp4\"\n"
            .to_owned();
        let mut from = 0;
        for part in &parts[..made] {
            let length = part.len();
            text +=
                &format!("#EXT-X-PART:DURATION=0.512,URI=\"0.mp4\",BYTERANGE=\"{length}@{from}\"");
            text += ",INDEPENDENT=YES\n";
            from += length;
        }
        text += &if made < parts.len() {
            format!("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"0.mp4\",BYTERANGE-START={from}\n")
        } else {
            "#EXTINF:4.096,\n0.mp4\n#EXT-X-ENDLIST\n".to_owned()
        };
        let mut acts = vec![Act::Wait(if wanted.is_some() { PART } else { Duration::ZERO })];
        acts.extend(ok(text.as_bytes()));
        acts
    });
    let lane = lane(Clock::start(), &server, options());
    // The viewer leaves before the stream ends.
    let report = watch(&lane, "http://h/media.m3u8", true, None, 4 * PART).await;
    assert_eq!((report.holes, report.troubles.len()), (0, 0), "{report:#?}");
    let asked = server.asked();
    let ranges = asked
        .iter()
        .filter_map(|asked| asked.head.lines().find_map(|line| line.strip_prefix("Range: bytes=")));
    let ranges: Vec<(usize, usize)> = ranges
        .map(|range| {
            let (from, last) = range.split_once('-').unwrap();
            (from.parse().unwrap(), last.parse().unwrap_or(usize::MAX))
        })
        .collect();
    assert!(ranges.len() > 4, "{ranges:?}");
    assert!(ranges.windows(2).all(|pair| pair[1].0 == pair[0].1 + 1), "{ranges:?}");
}

#[tokio::test(start_paused = true)]
async fn a_manifest_is_loaded_again_from_where_it_says() {
    for (location, asked) in [
        (" /s/1.mpd ", ["/d/x.mpd", "/s/1.mpd"]),
        // An address that cannot be used counts as none.
        ("rtp://h/1.mpd", ["/d/x.mpd", "/d/x.mpd"]),
    ] {
        check_location(location, &asked).await;
    }
}

async fn check_location(location: &'static str, manifests: &[&str]) {
    let clip = AudioClip::new(2);
    let server = Server::new(move |asked| {
        let (kind, more) = match asked.target.as_str() {
            "/d/x.mpd" if asked.before == 0 => {
                let start = "availabilityStartTime=\"1970-01-01T00:00:00Z\"";
                (format!("type=\"dynamic\" minimumUpdatePeriod=\"PT0.1S\" {start}"), 0)
            }
            "/s/1.mpd" | "/d/x.mpd" => {
                ("type=\"static\" mediaPresentationDuration=\"PT1.024S\"".to_owned(), 1)
            }
            path => return clip.answer(path),
        };
        let text = format!(
            "<MPD {kind}><Location>{location}</Location><Period start=\"PT0S\">\
             <AdaptationSet contentType=\"audio\"><SegmentTemplate timescale=\"48000\" \
             initialization=\"init.mp4\" media=\"$Number$.m4s\" startNumber=\"0\"><SegmentTimeline>\
             <S t=\"0\" d=\"24576\" r=\"{more}\"/></SegmentTimeline></SegmentTemplate>\
             <Representation id=\"a\" bandwidth=\"64000\"/></AdaptationSet></Period></MPD>"
        );
        ok(text.as_bytes())
    });
    let lane = lane(Clock::start(), &server, options());
    let report = watch(&lane, "http://h/d/x.mpd", false, None, LIMIT).await;
    assert_eq!((report.end, report.troubles.len()), (End::Ended, 0), "{report:#?}");
    let asked = server.asked();
    assert_eq!(paths(&asked, ".mpd"), manifests);
    // What a manifest names lies beside it.
    let beside = manifests[1].replace(manifests[1].rsplit('/').next().unwrap(), "1.m4s");
    assert_eq!(paths(&asked, ".m4s"), ["/d/0.m4s", &beside]);
}
