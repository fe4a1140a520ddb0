//! What a player is told, and the commands that it may send.

use std::collections::HashMap;
use std::time::Duration;

use protocol::rtmp::amf0::Value;
use protocol::rtmp::{ClientEvent, PlayStart};

use crate::support::{LIMIT, Message, Player, media, server, server_with};

const FILE: &str = "mp4/minute.mp4";

fn named(file: &str) -> String {
    format!("{file}?pace=fast")
}

/// The code of a status.
fn code(event: &ClientEvent) -> &str {
    match event {
        ClientEvent::Status { code, .. }
        | ClientEvent::Ended { code, .. }
        | ClientEvent::Rejected { code, .. } => code,
        _ => "",
    }
}

/// All messages of a file, played without any command.
fn whole(file: &str) -> Vec<Message> {
    let server = server(&testkit::media_dir());
    let mut player = Player::new(&server, &named(file), PlayStart::Any, None);
    player.finish();
    player.frames().into_iter().cloned().collect()
}

/// The run of messages in `all` that have these payloads.
#[track_caller]
fn run_of(all: &[Message], part: &[&Message]) -> std::ops::Range<usize> {
    let same = |run: &[Message]| run.iter().zip(part).all(|(a, b)| a.payload == b.payload);
    let first = all.windows(part.len()).position(same).expect("a run of the title's messages");
    first..first + part.len()
}

#[test]
fn a_player_is_told_what_it_plays() {
    let server = server(&testkit::media_dir());
    let mut player = Player::new(&server, &named(FILE), PlayStart::Any, None);
    let reset = player.until(|event| !matches!(event, ClientEvent::Connected { .. }));
    assert_eq!(code(&reset), "NetStream.Play.Reset");
    player.until(|event| matches!(event, ClientEvent::Started));
    player.ask(|session| session.ask_stream_length());
    let length = player.until(|event| matches!(event, ClientEvent::StreamLength { .. }));
    let ClientEvent::StreamLength { seconds } = length else { unreachable!() };
    assert!((60.0..60.3).contains(&seconds), "{seconds}");
    player.finish();

    let Some(Value::EcmaArray(properties)) = &player.metadata else {
        panic!("{:?}", player.metadata);
    };
    let numbers: HashMap<&str, f64> = properties
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.as_number()?)))
        .collect();
    assert_eq!((numbers["width"], numbers["height"]), (480.0, 270.0));
    assert_eq!((numbers["videocodecid"], numbers["audiocodecid"]), (7.0, 10.0));
    assert_eq!(numbers["framerate"], 30.0);
    assert_eq!(numbers["filesize"], std::fs::metadata(media(FILE)).unwrap().len() as f64);
    assert!((numbers["duration"] - seconds).abs() < 0.001);
    let rate = numbers["videodatarate"] + numbers["audiodatarate"];
    assert!((1900.0..2200.0).contains(&rate), "{rate}");
    // Decoder configurations come before media.
    let first: Vec<_> = player.media.iter().take(2).map(Message::is_header).collect();
    assert_eq!(first, [true, true]);
    assert!(player.frames()[0].is_keyframe());
    // Messages come in the order of their times.
    let times: Vec<_> = player.frames().iter().map(|message| message.timestamp).collect();
    assert!(times.is_sorted());
}

#[test]
fn seeking_goes_to_the_keyframe_before() {
    let all = whole(FILE);
    let server = server(&testkit::media_dir());
    let keyframes: Vec<u32> = all
        .iter()
        .filter(|message| message.is_keyframe())
        .map(|message| message.timestamp)
        .collect();
    assert!(keyframes.len() > 5);
    let mut player = Player::new(&server, FILE, PlayStart::Any, None);
    player.until(|event| matches!(event, ClientEvent::Started));
    // Forward, back, before the beginning, exactly to a keyframe, just before it, and past the end.
    let exact = f64::from(keyframes[3]);
    for to in [30_000.0, 5_000.0, -7.0, exact, exact - 2.0, 1e12] {
        player.ask(|session| session.seek(to));
        player.until(|event| code(event) == "NetStream.Seek.Notify");
        player.media.drain(..player.mark);
        player.until_media(10);
        let expected = keyframes.iter().rev().find(|time| f64::from(**time) <= to);
        let expected = expected.or(keyframes.first()).unwrap();
        let frames = player.frames();
        assert!(frames[0].is_keyframe(), "{to}: {:?}", frames[0]);
        assert_eq!(frames[0].timestamp, *expected, "{to}");
        run_of(&all, &frames);
    }
}

#[test]
fn a_pause_holds_it_where_it_is() {
    let all = whole(FILE);
    let server = server(&testkit::media_dir());
    let mut player = Player::new(&server, FILE, PlayStart::Any, None);
    player.until_media(100);
    player.ask(|session| session.pause(true, 1000.0));
    player.until(|event| code(event) == "NetStream.Pause.Notify");
    let before = player.mark;
    player.listen(Duration::from_millis(600));
    assert_eq!(player.media.len(), before, "nothing comes after the answer");
    player.ask(|session| session.pause(false, 1000.0));
    player.until(|event| code(event) == "NetStream.Unpause.Notify");
    assert_eq!(player.mark, before, "nothing comes before the next answer");
    player.until_media(before + 100);
    // No message was lost or sent twice.
    assert_eq!(run_of(&all, &player.frames()).start, 0);
}

#[test]
fn a_part_is_played_by_start_and_duration() {
    let all = whole(FILE);
    let server = server(&testkit::media_dir());
    for (start, duration, first, last) in [
        (PlayStart::At(20_000.0), Some(10_000.0), 20_000, 30_000),
        (PlayStart::At(0.0), Some(500.0), 0, 500),
        (PlayStart::Any, Some(250.0), 0, 250),
        (PlayStart::At(50_000.0), None, 50_000, 61_000),
    ] {
        let mut player = Player::new(&server, &named(FILE), start, duration);
        player.finish();
        let frames = player.frames();
        let run = run_of(&all, &frames);
        assert!(all[run.start].is_keyframe(), "{start:?}");
        let keyframes = all[..=run.end.min(all.len() - 1)].iter().filter(|m| m.is_keyframe());
        let before = keyframes.map(|m| m.timestamp).filter(|time| *time <= first).max().unwrap();
        assert_eq!(all[run.start].timestamp, before, "{start:?}");
        assert!(all[run.end - 1].timestamp < last, "{start:?}");
        // The part ends exactly there.
        assert!(all.get(run.end).is_none_or(|next| next.timestamp >= last), "{start:?}");
        // A part's times begin at 0, as librtmp expects of Adobe's server.
        assert_eq!(frames[0].timestamp, 0, "{start:?}");
    }
    // A single frame.
    let mut player = Player::new(&server, &named(FILE), PlayStart::At(0.0), Some(0.0));
    player.finish();
    assert!(player.frames().iter().filter(|message| message.video).count() == 1);
}

#[test]
fn unplayable_files_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(media(FILE)).unwrap();
    std::fs::write(folder.path().join("cut.mp4"), &bytes[..bytes.len() / 2]).unwrap();
    std::fs::write(folder.path().join("text.mp4"), "no film").unwrap();
    std::fs::copy(media(FILE), folder.path().join("film.mp4")).unwrap();
    let server = server(folder.path());
    let refusal = |name: &str, start| {
        let mut player = Player::new(&server, name, start, None);
        match player.until(|event| matches!(event, ClientEvent::Rejected { .. })) {
            ClientEvent::Rejected { code, description } => (code, description),
            other => panic!("{other:?}"),
        }
    };
    let not_found = "NetStream.Play.StreamNotFound";
    for name in ["none.mp4", "", "..", "../film.mp4", "film.mp4/x", "a\0b", "mp4:none"] {
        assert_eq!(refusal(name, PlayStart::Any).0, not_found, "{name:?}");
    }
    // A file cannot be played as live.
    assert_eq!(refusal("film.mp4", PlayStart::Live).0, not_found);
    for (name, reason) in [("cut.mp4", "cut.mp4: "), ("text.mp4", "text.mp4: ")] {
        let (code, description) = refusal(name, PlayStart::Any);
        assert_eq!(code, "NetStream.Play.Failed");
        assert!(description.starts_with(reason), "{description}");
    }
    // Names as Adobe's clients write them.
    for name in ["mp4:film.mp4?pace=fast", "mp4:film?pace=fast"] {
        let mut player = Player::new(&server, name, PlayStart::Any, None);
        player.until(|event| matches!(event, ClientEvent::Started));
        player.until_media(10);
    }
}

/// librtmp cuts the ending off the name. Access is asked for the file that is played.
#[test]
fn a_rule_about_a_file_holds_for_its_name_without_the_ending() {
    let server = server_with(
        "[[access.rule]]\nactions = [\"play\"]\naddresses = [\"127.0.0.0/8\"]\npath = \"vod/mp4/minute.mp4\"\n",
    );
    for name in ["mp4:mp4/minute", "mp4:mp4/minute.mp4", "mp4/minute.mp4"] {
        let mut player = Player::new(&server, name, PlayStart::Any, None);
        player.until(|event| matches!(event, ClientEvent::Started));
    }
    for name in ["mp4:mp4/film", "mp4/minute"] {
        let mut player = Player::new(&server, name, PlayStart::Any, None);
        let refused = player.until(|event| matches!(event, ClientEvent::Rejected { .. }));
        assert_eq!(code(&refused), "NetStream.Play.Failed", "{name}");
    }
}

#[test]
fn a_file_written_into_ends_the_playing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("film.mp4");
    std::fs::copy(media(FILE), &path).unwrap();
    // The test media are read-only.
    let mut permissions = std::fs::metadata(&path).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
    std::fs::set_permissions(&path, permissions).unwrap();
    let server = server(folder.path());
    let mut player = Player::new(&server, "film.mp4?pace=realtime", PlayStart::Any, None);
    player.until_media(20);
    let file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut &file, b"more").unwrap();
    let end = player.until(|event| matches!(event, ClientEvent::Ended { .. }));
    assert_eq!(code(&end), "NetStream.Play.Failed");
    server.log_line(LIMIT, |line| line.contains("the file has changed"));
}
