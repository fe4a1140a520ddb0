//! A live stream with TLS.

use testkit::playlist::hint;
use testkit::{Program, access_unit_hashes_with, eventually, noise};

use crate::support::{LIMIT, PROTOCOLS, Site};

const STREAM: &str = "/live/demo";

/// A server with a stream that can be played.
fn site() -> Site {
    let site = Site::make("", "[drain]\ntimeout = \"1m\"\n", &["--demo"]);
    let playlist = format!("{STREAM}/v0/media.m3u8");
    site.server.get_until(&playlist, LIMIT, |answer| {
        answer.status() == 200 && answer.text().contains("#EXT-X-PRELOAD-HINT")
    });
    site
}

#[test]
fn blocking_reloads_and_segments_being_made() {
    let site = site();
    let path = |name: &str| format!("{STREAM}/v0/{name}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    for protocol in PROTOCOLS {
        let (msn, part) = hint(&text(site.get(protocol, &path("media.m3u8"))));
        let reload = path(&format!("media.m3u8?_HLS_msn={msn}&_HLS_part={part}"));
        let answer = text(site.get(protocol, &reload));
        assert!(hint(&answer) > (msn, part), "{protocol}: {answer}");
        assert!(answer.contains(&format!("\"{msn}.{part}.m4s\"")), "{protocol}: {answer}");
        let hinted = site.get(protocol, &path(&format!("{msn}.{part}.m4s")));
        assert!(hinted == site.server.get(&path(&format!("{msn}.{part}.m4s"))).body);
        // The whole next segment, from its first byte to its last.
        let next = path(&format!("{}.m4s", msn + 1));
        let made = site.get(protocol, &next);
        let stored = site.server.get(&next);
        assert!(stored.status() == 200 && made == stored.body, "{protocol}");
    }
}

#[test]
fn ffmpeg_plays_it() {
    let site = site();
    let authority = site.certificate();
    let options = ["-tls_verify", "1", "-ca_file", authority.to_str().unwrap()];
    for name in ["index.m3u8", "live.mp4", "live.flv"] {
        let url = site.url(&format!("{STREAM}/{name}"));
        let units = access_unit_hashes_with(&url, &options, &["-t", "2"]);
        let of = |stream| units.iter().filter(|unit| unit.stream_index == stream).count();
        assert!(of(0) >= 30 && of(1) >= 30, "{name}: {} and {}", of(0), of(1));
    }
}

/// When the server drains, endless responses end and the others are finished.
#[test]
fn draining() {
    let site = site();
    let bytes = noise(1, 4_000_000);
    std::fs::write(site.server.vod("a.bin"), &bytes).unwrap();
    let mut viewers = Vec::new();
    let mut downloads = Vec::new();
    for protocol in PROTOCOLS {
        let to = site.scratch(&format!("{protocol}.bin"));
        let slowly = [protocol, "-f", "--limit-rate", "2M", "-o", to.to_str().unwrap()];
        downloads.push((Program::spawn(site.curl(&slowly).arg(site.url("/vod/a.bin"))), to));
    }
    for protocol in PROTOCOLS {
        for name in ["live.mp4", "live.flv"] {
            let to = site.scratch(&format!("{protocol}.{name}"));
            let url = site.url(&format!("{STREAM}/{name}"));
            let curl = site.curl(&[protocol, "-f", "-N", "-o", to.to_str().unwrap(), &url]);
            viewers.push((Program::spawn(&mut { curl }), to));
        }
    }
    let size = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |file| file.len());
    eventually(LIMIT, "all downloads begin", || downloads.iter().all(|(_, to)| size(to) > 0));
    eventually(LIMIT, "all viewers get something", || viewers.iter().all(|(_, to)| size(to) > 0));
    site.server.terminate();
    for (viewer, to) in downloads {
        let ended = viewer.wait(LIMIT);
        assert!(ended.status.success(), "{}: {ended:?}", to.display());
        assert!(std::fs::read(&to).unwrap() == bytes, "{}", to.display());
    }
    for (viewer, to) in viewers {
        let ended = viewer.wait(LIMIT);
        // There is no protocol error and no cut in the middle.
        assert!(ended.status.success(), "{}: {ended:?}", to.display());
    }
}
