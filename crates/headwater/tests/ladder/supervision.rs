//! ffmpeg runs as long as its stream, and is no danger to it.

use std::process::Command;

use testkit::{Program, Server, eventually};

use crate::support::{
    Halted, LIMIT, RUNGS, Segment, clip, configuration, ffmpeg, is_over, is_there, kill, media,
    multivariant, named, parent, publish, script, server, times, transcoder, with_renditions,
};

#[test]
fn one_that_is_killed_is_started_again_and_the_stream_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(RUNGS, &[]);
    let publisher = publish(&server, &clip(&folder, "320x180", 20), "live/x", &["--loop"]);
    let offered = with_renditions(&server, "live/x");
    let low = named(&offered, "160x90");
    let listed = |text: &str| text.matches("#EXTINF").count();
    media(&server, "live/x", &low, |text| listed(text) >= 2);

    let first = transcoder(&server, 0);
    assert_eq!(parent(first), server.id());
    assert_eq!(server.metric("headwater_ladders"), 1);
    kill(first);
    let second = transcoder(&server, 1);
    assert_ne!(first, second);
    assert!(!is_there(first));
    assert_eq!(server.metric("headwater_ladders_failed_total"), 1);
    let log = server.whole_log();
    let failed =
        log.lines().find(|line| line.contains("SIGKILL")).unwrap_or_else(|| panic!("{log}"));
    assert!(
        failed.contains("starting it again in 1s") && failed.contains("stream=\"x\""),
        "{failed}"
    );

    let before = media(&server, "live/x", &low, |_| true).segments.len();
    let after = media(&server, "live/x", &low, |text| listed(text) >= before + 3);
    let as_long = |text: &str| listed(text) >= after.segments.len();
    let source = media(&server, "live/x", &named(&offered, "320x180"), as_long);
    assert_eq!((after.discontinuities, source.discontinuities), (0, 0));
    let numbers: Vec<u64> = after.segments.iter().map(|segment| segment.msn).collect();
    let expected: Vec<u64> = (numbers[0]..).take(numbers.len()).collect();
    assert_eq!(numbers, expected);
    assert!(source.segments.iter().all(|segment| segment.duration == "2.000000"), "{source:?}");
    // The rendition went on where the source's next segment begins, so both still have the same
    // numbers.
    let last = after.segments.last().unwrap();
    let cut = (last.msn, &*last.duration);
    assert!(source.cuts().contains(&cut), "{cut:?}: {source:?}");
    let file = folder.path().join("low.cmaf");
    after.download(&server, &file);
    ffmpeg(["-xerror", "-i", file.to_str().unwrap(), "-f", "null", "-"]);
    drop(publisher);
}

/// The missed media have no segments, so the numbers after the hole are lower than the source's.
#[test]
fn one_that_is_held_up_leaves_a_hole_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(RUNGS, &[]);
    let publisher = publish(&server, &clip(&folder, "640x360", 28), "live/x", &["--loop"]);
    let offered = with_renditions(&server, "live/x");
    let (low, source) = (named(&offered, "160x90"), named(&offered, "640x360"));
    let listed = |text: &str| text.matches("#EXTINF").count();
    media(&server, "live/x", &low, |text| listed(text) >= 1);
    // This player plays from the beginning to the end.
    let mut player = Command::new("ffmpeg");
    player.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-live_start_index", "0"]);
    player.args(["-i", &server.url(&format!("/live/x/{low}")), "-map", "0:v"]);
    let player = Program::spawn(player.args(["-fps_mode", "passthrough", "-f", "framehash", "-"]));

    let halted = Halted::new(transcoder(&server, 0));
    // An ffmpeg that is 10 s behind is skipped over the rest, and one that took nothing for 20 s is killed: a busy machine
    // may add some seconds.
    let path = format!("/live/x/{source}");
    let before = edge(server.get(&path).text());
    server.get_until(&path, LIMIT, |answer| edge(answer.text()) >= before + 13.0);
    let made = media(&server, "live/x", &low, |_| true).segments.len();
    drop(halted);
    server.log_line(LIMIT, |line| line.contains("skipped to the newest keyframe"));
    // ffmpeg held some frames, so the first segments may be of the time before.
    media(&server, "live/x", &low, |text| listed(text) >= made + 4);
    drop(publisher);
    let low = media(&server, "live/x", &low, is_over);
    let source = media(&server, "live/x", &source, is_over);

    let files = ["low", "source"].map(|name| folder.path().join(name));
    low.download(&server, &files[0]);
    source.download(&server, &files[1]);
    let (made, _) = times(&files[0]);
    let (shown, _) = times(&files[1]);
    let strays: Vec<_> = made.iter().filter(|at| shown.binary_search(at).is_err()).collect();
    assert!(strays.is_empty(), "not at their own times: {strays:?}");
    let hole = made.windows(2).map(|two| two[1] - two[0]).max().unwrap();
    let most = shown[shown.len() - 1] - shown[0];
    assert!((8 * 90_000..most).contains(&hole), "{hole}");
    ffmpeg(["-xerror", "-i", files[0].to_str().unwrap(), "-f", "null", "-"]);

    assert_eq!((low.discontinuities, source.discontinuities), (0, 0));
    let first = low.segments[0].msn;
    for (segment, number) in low.segments.iter().zip(first..) {
        assert_eq!(segment.msn, number);
        assert!(segment.duration.parse::<f64>().unwrap() <= 4.0, "{segment:?}");
        let is_same = |same: &&Segment| (same.captured - segment.captured).abs() < 0.5;
        let same = source.segments.iter().find(is_same);
        let same = same.unwrap_or_else(|| panic!("{segment:?}: {source:?}"));
        assert!(same.msn >= number);
    }
    assert!(low.segments.len() + 4 <= source.segments.len(), "{low:?} {source:?}");

    let finished = player.wait(LIMIT);
    assert!(finished.status.success() && finished.stderr.is_empty(), "{}", finished.stderr);
    let played = String::from_utf8(finished.stdout).unwrap();
    let played = played.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(played, made.len(), "it plays what there is, before the hole and behind it");
}

/// Seconds of media in a playlist that lists all of them: its segments, and the parts of the one being made.
fn edge(playlist: &str) -> f64 {
    let sum = |text: &str, tag: &str| -> f64 {
        let values = text.split(tag).skip(1).map(|rest| rest.split(',').next().unwrap());
        values.map(|value| value.parse::<f64>().unwrap()).sum()
    };
    let open = playlist.rsplit("#EXTINF:").next().unwrap();
    sum(playlist, "#EXTINF:") + sum(open, "#EXT-X-PART:DURATION=")
}

#[test]
fn one_ends_with_its_stream() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(RUNGS, &[]);
    let publisher = publish(&server, &clip(&folder, "320x180", 4), "live/x", &[]);
    let id = transcoder(&server, 0);
    assert!(publisher.wait(LIMIT).status.success());
    eventually(LIMIT, "ffmpeg is gone", || !is_there(id));
    eventually(LIMIT, "no ladder is left", || server.metric("headwater_ladders") == 0);
    assert_eq!(server.metric("headwater_ladders_failed_total"), 0);
    assert!(server.whole_log().contains("stream ended"));
}

#[test]
fn none_outlives_a_server_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(RUNGS, &[]);
    let publisher = publish(&server, &clip(&folder, "320x180", 20), "live/x", &["--loop"]);
    let id = transcoder(&server, 0);
    assert!(is_there(id));
    kill(server.id());
    eventually(LIMIT, "ffmpeg is gone", || !is_there(id));
    drop(publisher);
}

#[test]
fn ladders_count_as_no_viewers_and_serve_only_their_streams() {
    let folder = tempfile::tempdir().unwrap();
    let file = clip(&folder, "320x180", 20);
    let server = server(&format!("streams = [\"x\", \"events/*\"]\n{RUNGS}"), &[]);
    let publishers = ["live/x", "live/other"].map(|to| publish(&server, &file, to, &["--loop"]));
    let offered = with_renditions(&server, "live/x");
    assert!(offered.contains("160x90"), "{offered}");
    let other = multivariant(&server, "live/other");
    assert!(!other.contains("160x90"), "not asked for: {other}");
    assert_eq!(server.metric("headwater_ladders"), 1);

    let streams = server.metrics();
    let viewers = streams.text().lines().filter(|line| {
        line.starts_with("headwater_viewers{") && line.contains("live/x") && !line.ends_with(" 0")
    });
    // A viewer asked for the playlist above.
    assert!(viewers.clone().all(|line| line.contains("\"hls\"")), "{}", streams.text());

    let intruder = publish(&server, &file, "live/x?rendition=low", &[]).wait(LIMIT);
    assert!(!intruder.status.success());
    assert!(intruder.stderr.contains("NetStream.Publish.BadName"), "{}", intruder.stderr);
    drop(publishers);
}

#[test]
fn one_that_fails_again_and_again_leaves_the_stream_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("broken");
    script(&program, "echo '[error] no such encoder' >&2\nexit 3\n");
    let ladder = format!("ffmpeg = {program:?}\nsource = false\n{RUNGS}");
    let server = server(&ladder, &["--demo"]);
    let offered = multivariant(&server, "live/demo");
    assert_eq!(offered.matches("#EXT-X-STREAM-INF").count(), 1, "{offered}");
    let said = server.log_line(LIMIT, |line| line.contains("no such encoder"));
    assert!(said.contains("stream=\"demo\"") && said.contains("ERROR"), "{said}");
    for wait in ["1s", "2s", "4s"] {
        server.log_line(LIMIT, |line| {
            line.contains("exit status: 3") && line.contains(&format!("again in {wait}"))
        });
    }
}

#[test]
fn one_that_does_not_end_is_killed_with_what_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("lingers");
    // The program reads its input and stays when that ends.
    script(&program, "cat >/dev/null\nsleep 1000 2>/dev/null &\necho started $!. >&2\nwait\n");
    let server = server(&format!("ffmpeg = {program:?}\n{RUNGS}"), &[]);
    let publisher = publish(&server, &clip(&folder, "320x180", 4), "live/x", &[]);
    let id = transcoder(&server, 0);
    assert!(publisher.wait(LIMIT).status.success());
    let child = started(&server);
    eventually(LIMIT, "both are gone", || !is_there(id) && !is_there(child));
    eventually(LIMIT, "no ladder is left", || server.metric("headwater_ladders") == 0);
}

#[test]
fn one_that_crashes_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("crashes");
    // The child that the program started keeps its pipes open.
    script(&program, "sleep 1000 &\necho started $!. >&2\nexit 3\n");
    let server = server(&format!("ffmpeg = {program:?}\n{RUNGS}"), &["--demo"]);
    server.log_line(LIMIT, |line| line.contains("exit status: 3"));
    let child = started(&server);
    eventually(LIMIT, "the child is gone", || !is_there(child));
}

/// The id of the process that a script has started, from its message.
fn started(server: &Server) -> u32 {
    let line = server.log_line(LIMIT, |line| line.contains("ffmpeg: started "));
    line.split("started ").nth(1).unwrap().split('.').next().unwrap().parse().unwrap()
}

#[test]
fn one_that_is_not_there_is_told_of_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("headwater.toml");
    let text = configuration("enabled = true\nffmpeg = \"no-such-ffmpeg\"\n");
    let line = 1 + text.lines().position(|line| line.starts_with("ffmpeg")).unwrap();
    std::fs::write(&config, text).unwrap();
    for verb in ["serve", "check"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
        let finished = Program::spawn(command.args([verb, "--config"]).arg(&config)).wait(LIMIT);
        assert_eq!(finished.status.code(), Some(2));
        let what = "ladder.ffmpeg: there is no program no-such-ffmpeg";
        let expected = format!("headwater.toml:{line}: {what}");
        assert!(finished.stderr.contains(&expected), "{}", finished.stderr);
    }
}

#[test]
fn so_many_streams_at_once_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let film = clip(&folder, "320x180", 20);
    let server = server(&format!("max_streams = 1\n{RUNGS}"), &[]);
    let first = publish(&server, &film, "live/first", &["--loop"]);
    transcoder(&server, 0);
    let second = publish(&server, &film, "live/second", &["--loop"]);
    let told = server.log_line(LIMIT, |line| line.contains("ladder.max_streams = 1"));
    assert!(told.contains("stream=\"second\""), "{told}");
    assert!(!multivariant(&server, "live/second").contains("160x90"));
    drop(first);
    // The second starts when the first has ended, and not before.
    transcoder(&server, 1);
    assert!(server.whole_log().contains("stream ended"));
    server.get_until("/live/second/index.m3u8", LIMIT, |answer| answer.text().contains("160x90"));
    drop(second);
}

#[test]
fn a_rendition_that_is_published_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let (low, high) = (clip(&folder, "128x72", 20), clip(&folder, "320x180", 20));
    let server = server(RUNGS, &[]);
    let first = publish(&server, &low, "live/x?rendition=low", &["--loop"]);
    multivariant(&server, "live/x");
    let second = publish(&server, &high, "live/x", &["--loop"]);
    let told = server.log_line(LIMIT, |line| line.contains("low is not made: already published"));
    assert!(told.contains("WARN") && told.contains("stream=\"x\""), "{told}");
    transcoder(&server, 0);
    let started = server.log_line(LIMIT, |line| line.contains(" makes "));
    assert!(started.contains("mid 320x180") && !started.contains("low"), "{started}");
    let three = |text: &str| text.matches("#EXT-X-STREAM-INF").count() == 3;
    server.get_until("/live/x/index.m3u8", LIMIT, |answer| three(answer.text()));
    drop((first, second));
}

#[test]
fn a_stream_with_nothing_left_to_make_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = clip(&folder, "320x180", 20);
    let low = "rungs = [{ name = \"low\", width = 160, height = 90, bitrate = \"60kbit/s\" }]\n";
    let server = server(low, &[]);
    let first = publish(&server, &file, "live/x?rendition=low", &["--loop"]);
    multivariant(&server, "live/x");
    let second = publish(&server, &file, "live/x", &["--loop"]);
    let refused = |line: &&str| line.contains("low is not made");
    server.log_line(LIMIT, |line| refused(&line));
    // Another stream makes the supervisor look at all streams again.
    let other = publish(&server, &file, "live/other", &["--loop"]);
    transcoder(&server, 0);
    assert_eq!(server.whole_log().lines().filter(refused).count(), 1, "{}", server.log());
    drop((first, second, other));
}
