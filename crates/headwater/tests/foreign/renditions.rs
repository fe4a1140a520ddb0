//! Several publishers of one stream.

use crate::support::{
    Begin, LIMIT, Received, assert_came_through, cut, ffmpeg_done, finish, media, over_hls, play,
    publish, server_with, until_ready,
};

#[test]
fn a_second_publisher_is_refused_and_the_first_goes_on() {
    let server = server_with("window = \"5m\"\nreconnect = \"1s\"\nsilence = \"1m\"\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clip.mp4");
    cut(&media("mp4/minute.mp4"), "20", &[], &file);
    let url = server.rtmp_url("live/taken");
    let mut first = publish(&file, &url, "1");
    until_ready(&server, "live/taken");
    // It does not come to its end before the others have come.
    first.pause();

    let ours = server.publish(&file, &url, &[]);
    let second = publish(&file, &url, "1").wait(LIMIT);
    assert!(!second.status.success(), "{}", second.stderr);
    assert!(second.stderr.contains("already published"), "{}", second.stderr);
    let ours = ours.wait(LIMIT);
    assert!(!ours.status.success(), "{}", ours.stderr);
    assert!(ours.stderr.contains("NetStream.Publish.BadName"), "{}", ours.stderr);

    assert!(first.is_running(), "{}", first.stderr());
    first.resume();
    finish(first);
    let playlist = server.until_ended("live/taken", "v0", LIMIT);
    assert!(!playlist.contains("#EXT-X-DISCONTINUITY"), "{playlist}");
    let received = over_hls(&server, "live/taken");
    assert_came_through("the first", &Received::of(&file), &received, Begin::Start);
}

#[test]
fn renditions_are_listed_by_bandwidth_and_each_comes_through() {
    // A track whose publisher has gone stays as long as this. On a busy machine one of the two
    // publishers may end some seconds before the other.
    let server = server_with("window = \"5m\"\nreconnect = \"20s\"\n");
    let folder = tempfile::tempdir().unwrap();
    let high = folder.path().join("high.mp4");
    let low = folder.path().join("low.mp4");
    cut(&media("mp4/minute.mp4"), "4", &[], &high);
    // The same frames, smaller, with keyframes at the same times and no audio.
    let (from, to) = (high.to_str().unwrap(), low.to_str().unwrap());
    let smaller =
        ["-vf", "scale=320:180", "-c:v", "libx264", "-preset", "ultrafast", "-b:v", "150k"];
    let keyframes = ["-bf", "0", "-g", "30", "-keyint_min", "30", "-sc_threshold", "0"];
    let args = ["-i", from, "-an"].into_iter().chain(smaller).chain(keyframes).chain([to]);
    ffmpeg_done(args);

    // The lower one comes first: bandwidth decides the order.
    let lesser = publish(&low, &server.rtmp_url("live/r?rendition=low"), "1");
    until_ready(&server, "live/r");
    let better = publish(&high, &server.rtmp_url("live/r?rendition=high"), "1");
    let two = |answer: &testkit::http::Response| {
        answer.status() == 200 && answer.text().matches("#EXT-X-STREAM-INF").count() == 2
    };
    let multivariant = server.get_until("/live/r/index.m3u8", LIMIT, two);
    let text = multivariant.text();
    let bandwidths: Vec<u64> = text
        .lines()
        .filter(|line| line.starts_with("#EXT-X-STREAM-INF"))
        .map(|line| {
            let value =
                line.split([':', ',']).find_map(|at| at.strip_prefix("BANDWIDTH=")).unwrap();
            value.parse().unwrap()
        })
        .collect();
    assert!(bandwidths[0] > bandwidths[1], "{text}");
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what}: {text}"));
    assert!(at("RESOLUTION=480x270") < at("RESOLUTION=320x180"), "{text}");
    let uris: Vec<String> =
        text.lines().filter(|line| line.ends_with("media.m3u8")).map(str::to_owned).collect();
    finish(lesser);
    finish(better);

    for uri in &uris {
        server.until_ended("live/r", uri.strip_suffix("/media.m3u8").unwrap(), LIMIT);
    }
    for (uri, file) in uris.iter().zip([&high, &low]) {
        let player = play(&server.url(&format!("/live/r/{uri}")), &["-live_start_index", "0"]);
        let (received, source) = (Received::by(player), Received::of(file));
        let hashes = |of: &Received| -> Vec<String> {
            of.video().iter().map(|unit| unit.md5.clone()).collect()
        };
        assert_eq!(hashes(&received), hashes(&source), "{uri}");
    }
    // ffmpeg's own view of the multivariant playlist: both variants and the audio together.
    let all = over_hls(&server, "live/r");
    let videos: Vec<usize> = all
        .streams
        .iter()
        .filter(|(kind, _)| kind == "video")
        .map(|(_, units)| units.len())
        .collect();
    let expected = [&high, &low].map(|file| Received::of(file).video().len());
    assert_eq!(videos, expected);
}
