//! aiortc publishes and plays. ffmpeg reads what it published, by HLS.

use std::process::Command;

use testkit::{Program, Server, access_unit_hashes_with};

use crate::support::{LIMIT, Relay, aiortc, aiortc_by, despite_stops, find, said, server};

/// Seconds from one picture of aiortc's to the next.
const FRAME: f64 = 1.0 / 15.0;

/// Times at which the picture turns white, or the sound begins, in seconds.
fn begins(output: &str, key: &str, least: f64) -> Vec<f64> {
    let (mut time, mut is_on, mut begins) = (0.0, true, Vec::new());
    for line in output.lines() {
        if let Some(rest) = line.split("pts_time:").nth(1) {
            time = rest.split_whitespace().next().unwrap().parse().unwrap();
        } else if let Some(value) = line.strip_prefix(key) {
            let now = value.parse::<f64>().is_ok_and(|value| value > least);
            if now && !is_on {
                begins.push(time);
            }
            is_on = now;
        }
    }
    begins
}

#[test]
fn what_one_publishes_another_plays_and_hls_has() {
    despite_stops("", one_publishes_and_another_plays);
}

fn one_publishes_and_another_plays(server: &Server) -> Result<(), String> {
    let publisher = aiortc("publish", &server.url("/live/cam/whip"));
    server.get_until("/api/v1/streams/live/cam", LIMIT, |answer| {
        answer.text().contains("\"avc1.42") && answer.text().contains("\"opus\"")
    });
    assert!(server.get("/api/v1/streams/live/cam").text().contains("\"protocol\":\"whip\""));
    let player = aiortc("hear", &server.url("/live/cam/whep"));

    // ffmpeg decodes what came in. White begins with the tone.
    let playlist = server.url("/live/cam/index.m3u8");
    let read = |filter: [&str; 2]| {
        let mut command = Command::new("ffmpeg");
        command.args(["-v", "error", "-xerror", "-copyts", "-t", "12", "-i", &playlist]);
        let output = Program::output(command.args(filter).args(["-f", "null", "-"]), LIMIT);
        String::from_utf8(output).unwrap()
    };
    let (key, metadata) = ("lavfi.signalstats.YAVG=", "metadata=print:file=-");
    let pictures = read(["-vf", &format!("signalstats,{metadata}")]);
    let sounds = read(["-af", &format!("asetnsamples=96,astats=metadata=1:reset=1,a{metadata}")]);
    let white = begins(&pictures, key, 150.0);
    let tones = begins(&sounds, "lavfi.astats.Overall.Peak_level=", -30.0);
    // Its times are those of the RTP clock: 15 frames a second are 66.7 ms apart each.
    let times: Vec<f64> = pictures
        .lines()
        .filter_map(|line| line.split("pts_time:").nth(1)?.trim().parse().ok())
        .collect();
    // At one place the first sender reports move them beside the audio, by as much as the first packets of one
    // track came later than those of the other.
    let is_uneven = |pair: &[f64]| (pair[1] - pair[0] - FRAME).abs() > 0.001;
    let steps: Vec<bool> = times.windows(2).map(is_uneven).collect();
    let places = steps.chunk_by(|one, next| one == next).filter(|run| run[0]).count();
    // A server that is not run for too long loses packets.
    if places > 1 {
        return Err(format!("{times:?}"));
    }
    // From there on they are together.
    let moved = steps.iter().rposition(|is_uneven| *is_uneven).map_or(0.0, |at| times[at + 1]);
    let white: Vec<f64> = white.into_iter().filter(|time| *time > moved).collect();
    assert!(white.len() >= 3 && tones.len() >= 3, "{white:?} {tones:?}");
    for time in &white {
        let nearest = tones.iter().map(|tone| (tone - time).abs()).fold(f64::MAX, f64::min);
        let is_beside = nearest < 0.015 || *time < tones[0] || tones.last() < Some(time);
        if !is_beside {
            return Err(format!("{white:?} {tones:?}"));
        }
    }

    let played = said(player);
    for kind in ["video", "audio"] {
        let kind = find(&played, kind);
        assert!(kind["frames"].as_u64().unwrap() >= 150, "{kind}");
    }
    publisher.terminate();
    assert_eq!(played.last().unwrap()["deleted"], 200);
    assert_eq!(said(publisher).last().unwrap()["deleted"], 200);
    assert!(!server.whole_log().contains("further problems"), "{}", server.log());
    Ok(())
}

#[test]
fn what_is_lost_is_sent_again_and_all_that_passes_can_be_decoded() {
    let server = server("");
    let webrtc = server.webrtc.unwrap();
    // One in 20 datagrams is lost on each way.
    let [to, from] = [Relay::new(webrtc, 20), Relay::new(webrtc, 20)];
    let by = |relay: &Relay| [webrtc.port(), relay.port];
    let publisher = aiortc_by("publish", &server.url("/live/cam/whip"), &by(&to));
    server.get_until("/live/cam/index.m3u8", LIMIT, |answer| answer.status() == 200);
    let player = aiortc_by("see", &server.url("/live/cam/whep"), &by(&from));
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-xerror", "-t", "6", "-i", &server.url("/live/cam/index.m3u8")]);
    Program::output(command.args(["-f", "null", "-"]), LIMIT);

    let played = said(player);
    let frames = find(&played, "video")["frames"].as_u64().unwrap();
    assert!(frames >= 150, "{frames}");
    publisher.terminate();
    said(publisher);
    assert!(to.dropped() > 10 && from.dropped() > 10, "{} {}", to.dropped(), from.dropped());
}

#[test]
fn what_is_lost_is_sent_again_without_rtx() {
    despite_stops("[webrtc]\njitter = \"30s\"\n", is_sent_again_without_rtx);
}

fn is_sent_again_without_rtx(server: &Server) -> Result<(), String> {
    let webrtc = server.webrtc.unwrap();
    // One in 20 datagrams is lost on each way.
    let relay = Relay::new(webrtc, 20);
    let ports = [webrtc.port(), relay.port];
    let publisher = aiortc_by("publish-plain", &server.url("/live/cam/whip"), &ports);
    server.get_until("/live/cam/index.m3u8", LIMIT, |answer| answer.status() == 200);
    let playlist = server.url("/live/cam/index.m3u8");
    let units = access_unit_hashes_with(&playlist, &["-copyts"], &["-an", "-t", "12"]);
    publisher.terminate();
    said(publisher);
    assert!(units.len() > 150 && relay.dropped() > 10, "{} {}", units.len(), relay.dropped());
    // No frame is missing. Video is put beside audio once, by a few milliseconds.
    for pair in units.windows(2) {
        let step = pair[1].pts_time() - pair[0].pts_time();
        // A server that is not run for too long misses more packets than can be asked for again.
        if step >= 1.5 * FRAME {
            return Err(format!("{step} s after {}", pair[0].pts_time()));
        }
    }
    Ok(())
}
