//! How far behind live a viewer begins, as the server tells it.

use std::io::Read;
use std::time::Instant;

use media::flv::Metadata;
use protocol::rtmp::ClientEvent;
use testkit::http::Client as Http;

use testkit::push;
use testkit::rtmp::Client;

use crate::support::{LIMIT, Origin, clip};

/// Seconds of media after the newest keyframe.
const AFTER: f64 = 0.7;

/// A part, and a frame of rounding: a viewer begins with the audio that plays at the keyframe, and
/// the part with that audio began earlier.
const SLACK: f64 = 0.25;

/// A viewer begins at the newest keyframe and gets the media from there on at once. Each delivery
/// tells it how many seconds these are: the header of live.mp4 and live.flv, `onMetaData` of
/// live.flv and RTMP, `hello` of push.
#[test]
fn viewers_are_told_how_far_behind_live_they_begin() {
    let origin = Origin::start("[live]\npart_target = \"200ms\"\nsilence = \"1m\"\n");
    let mut publisher = Client::publish(origin.rtmp, "live/x");
    // The clip has a keyframe each second. Nothing comes after this.
    let end = 3000 + (AFTER * 1000.0) as u32;
    let (headers, samples) = clip().split_at(2);
    let wanted = samples.iter().filter(|message| message.timestamp() < end);
    headers.iter().chain(wanted).for_each(|message| publisher.send(message));

    let header = |path: &str| {
        let mut http = Http::connect(origin.http, LIMIT).expect("the server listens");
        http.send("GET", path, &[], b"").expect("the server is there");
        let (head, mut body) = http.begin().expect("the server answers");
        assert_eq!(head.status, 200, "{path}");
        let mut begin = vec![0; 512];
        body.read_exact(&mut begin).expect("it begins");
        let behind = head.header("Headwater-Behind").expect("it says how far behind it begins");
        (behind.parse::<f64>().expect("a number"), begin)
    };
    let flv = || {
        let (behind, begin) = header("/live/x/live.flv");
        // The first tag, after the file's header.
        let tag = &begin[9 + 4..];
        let size = u32::from_be_bytes([0, tag[1], tag[2], tag[3]]) as usize;
        assert_eq!(tag[0], 18, "script data");
        (behind, told(&tag[11..11 + size]).expect("onMetaData first"))
    };
    let mp4 = || header("/live/x/live.mp4").0;
    let rtmp = || {
        let mut player = Client::play(origin.rtmp, "live/x");
        loop {
            match player.next().expect("it goes on") {
                ClientEvent::Metadata { payload, .. } => {
                    if let Some(behind) = told(&payload) {
                        return behind;
                    }
                }
                ClientEvent::Video { .. } => panic!("media before metadata"),
                _ => {}
            }
        }
    };
    let push = || {
        let mut viewer = push::Client::connect(origin.http, "/live/x/push");
        let hello = viewer.next().expect("a hello").event();
        hello["behind"].as_f64().unwrap_or_else(|| panic!("{hello}"))
    };

    // The published media grow until all has come. The server never tells more than there is, and
    // in the end nearly that. Samples that fill no part are published after 3 s.
    let begun = Instant::now();
    loop {
        let (in_head, in_metadata) = flv();
        assert!((in_head - in_metadata).abs() < 0.002, "{in_head} and {in_metadata}");
        let all = [in_head, mp4(), rtmp(), push()];
        let possible = 0.0..=f64::from(end) / 1000.0;
        assert!(all.iter().all(|behind| possible.contains(behind)), "{all:?}");
        let whole = AFTER - SLACK..=AFTER + SLACK;
        if all.iter().all(|behind| whole.contains(behind) && *behind == all[0]) {
            break;
        }
        assert!(begun.elapsed() < LIMIT, "{all:?}, and not {AFTER} s");
    }
}

/// The value from `onMetaData`; `None` for other script data.
#[track_caller]
fn told(payload: &[u8]) -> Option<f64> {
    let metadata = Metadata::parse(payload).expect("AMF0")?;
    Some(metadata.behind.unwrap_or_else(|| panic!("{metadata:?}")))
}
