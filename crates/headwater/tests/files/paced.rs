//! Files that are sent at the speed of playback: events in the middle of one.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use testkit::noise;

use crate::support::{LIMIT, Origin};

/// Settings with which a file of a minute takes a minute.
const SLOWLY: &str = "[vod]\nburst = \"1s\"\nrate = 1.0";

fn file(origin: &Origin, name: &str) -> Vec<u8> {
    let bytes = fs::read(testkit::clip(name)).unwrap();
    origin.put("film.mp4", &bytes);
    bytes
}

fn cut_short(end: &std::io::Result<usize>) -> bool {
    let cut = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
    end.as_ref().is_err_and(|error| cut.contains(&error.kind()))
}

/// Time passes between the pieces of a response. If the file is rewritten in that time, none of the
/// new bytes may follow.
#[test]
fn no_two_versions_in_one_response() {
    let rewrites: [fn(&Path, usize); 2] = [
        |path, size| {
            let mut file = File::options().write(true).open(path).unwrap();
            file.write_all(&noise(3, size)).unwrap();
        },
        |path, size| fs::write(path, noise(4, size + 5000)).unwrap(),
    ];
    // Pieces that are sent from the file, and pieces that are copied.
    for name in ["mp4/minute.mp4", "mp4/two-minutes.mp4"] {
        for rewrite in rewrites {
            for first in ["/vod/none", "/healthz"] {
                let origin = Origin::with(SLOWLY);
                let bytes = file(&origin, name);
                let mut client = origin.client();
                client.get(first, &[]);
                client.send("GET", "/vod/film.mp4", &[], b"").unwrap();
                let (_, mut body) = client.begin().unwrap();
                let mut got = vec![0; 50_000];
                body.read_exact(&mut got).unwrap();
                assert!(got == bytes[..50_000]);
                rewrite(&origin.vod("film.mp4"), bytes.len());
                let end = body.read_to_end(&mut got);
                assert!(cut_short(&end), "{name} after {first}: {end:?}");
                assert!(got.len() < bytes.len() / 2, "{}", got.len());
                origin.server.log_line(LIMIT, |line| line.contains("closed short"));
            }
        }
    }
}

/// When the server is told to stop, a file has as much time as any response. It comes to its end,
/// or is cut short when the time is over.
#[test]
fn a_file_has_the_time_that_the_server_drains() {
    let grace = Duration::from_secs(2);
    // A file of ten seconds, which goes out in four and a half, and a file of a minute.
    for (options, name, ends) in [
        ("[vod]\nburst = \"1s\"\nrate = 2.0\n[drain]\ntimeout = \"1m\"", "mp4/film.mp4", true),
        (&*format!("{SLOWLY}\n[drain]\ntimeout = \"{grace:?}\""), "mp4/minute.mp4", false),
    ] {
        for first in ["/vod/none", "/healthz"] {
            let origin = Origin::with(options);
            let bytes = file(&origin, name);
            let mut client = origin.client();
            client.get(first, &[]);
            client.send("GET", "/vod/film.mp4", &[], b"").unwrap();
            let (_, mut body) = client.begin().unwrap();
            let mut got = vec![0; 50_000];
            body.read_exact(&mut got).unwrap();
            let begin = Instant::now();
            let end = std::thread::scope(|scope| {
                let reading = scope.spawn(|| body.read_to_end(&mut got));
                origin.server.stop(LIMIT);
                reading.join().unwrap()
            });
            if ends {
                assert!(end.is_ok() && got == bytes, "{first}: {end:?} after {}", got.len());
            } else {
                assert!(cut_short(&end), "{first}: {end:?}");
                assert!(begin.elapsed() >= grace, "{first}: {:?}", begin.elapsed());
            }
        }
    }
}

/// A long range is paced whatever form the request has. A range that ends before the file is not.
#[test]
fn the_pace_goes_by_what_is_sent() {
    let origin = Origin::with("[vod]\nburst = \"1s\"\nrate = 2.0");
    // Ten seconds of media.
    let bytes = file(&origin, "mp4/film.mp4");
    let size = bytes.len();
    let ranges = [
        "bytes=0-".to_owned(),
        "bytes=0-0,1-".to_owned(),
        format!("bytes=0-{}", size - 1),
        format!("bytes=-{size}"),
    ];
    let viewers = ranges.map(|range| {
        let mut client = origin.client();
        std::thread::spawn(move || {
            let begin = Instant::now();
            let body = client.get("/vod/film.mp4", &[("Range", &range)]).body;
            (range, body, begin.elapsed())
        })
    });
    for (range, body, time) in viewers.map(|viewer| viewer.join().unwrap()) {
        assert!(body == bytes, "{range}");
        assert!(time > Duration::from_secs(4), "{range}: {time:?}");
    }

    // Paced, this would take two minutes.
    let origin = Origin::with("[vod]\nburst = \"1s\"\nrate = 1.0");
    let bytes = file(&origin, "mp4/two-minutes.mp4");
    let range = format!("bytes=0-{}", bytes.len() - 2);
    let begin = Instant::now();
    let body = origin.client().get("/vod/film.mp4", &[("Range", &range)]).body;
    assert!(body == bytes[..bytes.len() - 1]);
    assert!(begin.elapsed() < LIMIT, "{:?}", begin.elapsed());
}
