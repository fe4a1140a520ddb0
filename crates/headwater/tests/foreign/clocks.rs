//! Publishers whose timestamps wrap: in the 24 bits of an RTMP header, where the sign changes, and
//! in all 32 bits.

use std::path::Path;
use std::process::Command;
use std::thread;

use testkit::{Program, Server};

use crate::support::{
    Begin, LIMIT, Received, assert_came_through, count, cut, finish, media, over_hls, server,
};

/// How long before the wrap the clip begins, in milliseconds.
const BEFORE: u32 = 2_000;

/// An FLV file whose timestamps begin at `start` instead of 0.
fn shifted(clip: &Path, start: u32, into: &Path) {
    let mut file = std::fs::read(clip).unwrap();
    let mut at = 9 + 4;
    while at + 11 <= file.len() {
        let size = u32::from_be_bytes([0, file[at + 1], file[at + 2], file[at + 3]]);
        let time = &mut file[at + 4..at + 8];
        let was = u32::from_be_bytes([time[3], time[0], time[1], time[2]]);
        let [high, low @ ..] = was.wrapping_add(start).to_be_bytes();
        time[..3].copy_from_slice(&low);
        time[3] = high;
        at += 11 + size as usize + 4;
    }
    std::fs::write(into, file).unwrap();
}

/// GStreamer's librtmp element sends the tags of a file unchanged. It gets them in one buffer,
/// because it loses tags that lie across two.
fn librtmp(file: &Path, url: &str) -> Program {
    let from = format!("location={}", file.display());
    let to = format!("location={url} live=1");
    let args = ["-q", "filesrc", &from, "blocksize=100000000", "!", "rtmpsink", &to];
    Program::spawn(Command::new("gst-launch-1.0").args(args))
}

fn passes(server: &Server, start: u32, name: &str, folder: &Path) {
    let clip = folder.join(format!("{name}-source.flv"));
    // ffmpeg ends a file with an end of sequence, which librtmp leaves out: that is not an access
    // unit.
    let options = ["-flvflags", "no_sequence_end+no_duration_filesize"];
    cut(&media("flv/legacy.flv"), "4", &options, &clip);
    let source = Received::of(&clip);
    let file = folder.join(format!("{name}.flv"));
    shifted(&clip, start, &file);
    let stream = |by: &str| format!("live/{name}-{by}");
    let publishers = [
        ("librtmp", librtmp(&file, &server.rtmp_url(&stream("librtmp")))),
        // In real time: a program that mistakes the wrap for a jump waits for ever.
        ("headwater", server.publish(&file, &server.rtmp_url(&stream("headwater")), &[])),
    ];
    for (by, publisher) in publishers {
        finish(publisher);
        let playlist = server.until_ended(&stream(by), "v0", LIMIT);
        assert_eq!(count(&playlist, "#EXT-X-DISCONTINUITY"), 0, "{name} by {by}:\n{playlist}");
        assert_eq!(count(&playlist, "#EXT-X-GAP"), 0, "{name} by {by}:\n{playlist}");
        let received = over_hls(server, &stream(by));
        let name = format!("{name} by {by}");
        assert_came_through(&name, &source, &received, Begin::Start);
        // There is no gap: every frame comes one frame's time after the one before, within a
        // clock's rounding.
        for pair in received.video().windows(2) {
            let step = pair[1].dts - pair[0].dts;
            assert!((step - 0.04).abs() < 0.002, "{name}: a step of {step} s");
        }
    }
}

#[test]
fn a_clock_may_wrap() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for (start, name) in [
            ((1 << 24) - BEFORE, "24-bits"),
            ((1 << 31) - BEFORE, "31-bits"),
            (0_u32.wrapping_sub(BEFORE), "32-bits"),
        ] {
            let (server, folder) = (&server, folder.path());
            scope.spawn(move || passes(server, start, name, folder));
        }
    });
}
