//! A viewer by WHEP whose rendition is chosen. The viewer is str0m, which tells of each packet that came.

use std::path::Path;

use testkit::{Program, Server};

use crate::play::{Viewer, units};
use crate::support::{Bottleneck, LIMIT, server};

/// Publishes a rendition of the stream for ever: ten pictures a second, with a keyframe each second.
#[track_caller]
fn publish(server: &Server, folder: &Path, stream: &str, (size, rate): (&str, &str)) -> Program {
    let clip = folder.join(format!("{size}.mp4"));
    let picture = format!("testsrc2=s={size}:r=10:d=10");
    let encode = format!(
        "-c:v libx264 -preset ultrafast -bf 0 -g 10 -pix_fmt yuv420p -b:v {rate} -minrate {rate} \
         -maxrate {rate} -bufsize {rate} -x264-params nal-hrd=cbr"
    );
    let input = ["-f", "lavfi", "-i", &picture].into_iter();
    testkit::ffmpeg(input.chain(encode.split_ascii_whitespace()).chain([clip.to_str().unwrap()]));
    testkit::publish_looped(clip, &server.rtmp_url(stream))
}

#[test]
fn a_viewer_gets_the_rendition_that_its_link_carries() {
    let server = server("");
    let folder = tempfile::tempdir().unwrap();
    let renditions =
        [("live/x", ("640x360", "2000k")), ("live/x?rendition=low", ("320x180", "200k"))];
    let _publishers =
        renditions.map(|(stream, what)| publish(&server, folder.path(), stream, what));
    server.get_until("/live/x/index.m3u8", LIMIT, |answer| {
        renditions.iter().all(|(_, (size, _))| answer.text().contains(size))
    });

    let link = Bottleneck::new(server.webrtc.unwrap());
    let mut viewer = Viewer::by(&server, link.port);
    // It begins with the rendition that most links carry, and learns that its link carries more.
    viewer.play(|viewer| viewer.sets.len() == 2);
    link.carry(1_000_000);
    viewer.play(|viewer| viewer.sets.len() == 3);
    link.carry(0);
    viewer.play(|viewer| viewer.sets.len() == 4);
    let sets = &viewer.sets;
    assert!(sets[0] == sets[2] && sets[1] == sets[3] && sets[0] != sets[1], "{sets:?}");

    // All of it can be decoded, and is of one source and one clock. A busy machine may lose packets that nobody
    // reads in time.
    let video = viewer.of("video");
    let packets: Vec<_> = video.iter().collect();
    let runs = packets.chunk_by(|before, after| *after.0 == before.0 + 1);
    let units: Vec<_> = runs.map(|run| units(run.iter().map(|(_, packet)| *packet))).collect();
    let whole: usize = units.iter().map(|(whole, _)| whole).sum();
    assert!(whole > 30 && units.iter().all(|(_, broken)| *broken == 0), "{units:?}");
    let times: Vec<_> = video.values().map(|packet| packet.header.timestamp).collect();
    let is_later = |pair: &[u32]| (pair[1].wrapping_sub(pair[0]) as i32) >= 0;
    assert!(times.windows(2).all(is_later), "{times:?}");
}
