//! Servers that do not exist, lie, hang or hang up. The viewer counts each as one kind of trouble,
//! and ends in time with its results.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use support::*;
use viewer::{End, Options};

#[test]
fn each_way_to_answer_wrongly_is_one_kind_of_trouble() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/status.flv" => status("503 Service Unavailable"),
        "/forbidden.m3u8" => status("403 Forbidden"),
        "/garbage.m3u8" => raw("SSH-2.0-OpenSSH\r\n\r\n"),
        "/binary.mpd" => vec![Act::Send(vec![0; 5000]), Act::Close],
        "/short.flv" => raw("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\nFLV\x01\x04\0\0\0\x09"),
        "/long.m3u8" => raw("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n#EXTM3U\n#EXTINF:1,\nx\n"),
        "/lengths.m3u8" => {
            raw("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 8\r\n\r\n#EXTM3U")
        }
        "/chunks.mpd" => raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n"),
        "/cut.flv" => raw(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nFLV\x01\x04\0\0\0\x09\r\n",
        ),
        "/closed.mp4" => vec![Act::Close],
        "/loop.m3u8" => {
            raw("HTTP/1.1 302 Found\r\nLocation: loop.m3u8\r\nContent-Length: 0\r\n\r\n")
        }
        "/html.m3u8" => ok(b"<html>not here</html>"),
        "/html.mpd" => ok(b"<html></html>"),
        "/html.mp4" => ok(b"<html>\xff not here, but long enough to be looked at</html>"),
        "/html.flv" => ok(b"<html></html>"),
        "/latin.m3u8" => ok(b"#EXTM3U\n\xe9"),
        _ => vec![Act::Hang],
    });
    for (path, kind) in [
        ("/status.flv", "status"),
        ("/forbidden.m3u8", "status"),
        ("/garbage.m3u8", "garbage"),
        ("/binary.mpd", "garbage"),
        ("/short.flv", "length"),
        ("/long.m3u8", "length"),
        ("/lengths.m3u8", "garbage"),
        ("/chunks.mpd", "garbage"),
        ("/cut.flv", "dropped"),
        ("/closed.mp4", "dropped"),
        ("/loop.m3u8", "redirect"),
        ("/html.m3u8", "manifest"),
        ("/html.mpd", "manifest"),
        ("/html.mp4", "garbage"),
        ("/html.flv", "garbage"),
        ("/latin.m3u8", "manifest"),
    ] {
        let report = plain(&server.url(path));
        let (found, what) = failure(&report);
        assert_eq!(found, kind, "{path}: {what}");
        assert_eq!(report.troubles.get(kind), Some(&1), "{path}: {report:#?}");
        assert_eq!(report.troubles.len(), 1, "{path}: {report:#?}");
        assert!(what.contains(path.trim_start_matches('/')), "{path}: {what}");
        assert_eq!(report.startup, None, "{path}");
    }
}

#[test]
fn nobody_there_and_nobody_answering() {
    let report = plain("http://127.0.0.1:1/x.m3u8");
    assert_eq!(failure(&report).0, "refused");
    let report = plain("rtmp://127.0.0.1:1/live/x");
    assert_eq!(failure(&report).0, "refused");
    let report = plain("http://no-such-host.invalid/x.m3u8");
    assert_eq!(failure(&report).0, "resolve");

    let server = Server::start(|_| vec![Act::Hang]);
    // The kernel makes the connections; nobody accepts them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let patience = Duration::from_millis(400);
    let impatient = Options { patience, ..options() };
    for url in [server.url("/x.m3u8"), format!("rtmp://{}/live/x", silent.local_addr().unwrap())] {
        let began = Instant::now();
        let report = watch(&url, impatient.clone(), false, None, LIMIT);
        assert_eq!(failure(&report).0, "timeout", "{url}");
        assert!(began.elapsed() >= patience, "{url}: {:?}", began.elapsed());
    }
    // If its time is up first, the viewer ends for that reason.
    let report = watch(&server.url("/x.m3u8"), options(), false, None, patience);
    assert_eq!((report.end, report.troubles.len()), (End::Time, 0));
}

#[test]
fn unusual_but_valid_http_is_no_fault() {
    let clip = AudioClip::new(4);
    let flv = clip.flv();
    let server = Server::start(move |asked| {
        assert!(!asked.head.to_lowercase().contains("accept-encoding"), "{}", asked.head);
        let mut chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for piece in flv.chunks(997) {
            chunked.extend_from_slice(format!("{:x};x=y\r\n", piece.len()).as_bytes());
            chunked.extend_from_slice(piece);
            chunked.extend_from_slice(b"\r\n");
        }
        chunked.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
        let close = [b"HTTP/1.0 200 OK\r\n\r\n", &flv[..]].concat();
        let split: Vec<Act> =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
                .chunks(7)
                .flat_map(|piece| [Act::Send(piece.to_vec()), Act::Wait(Duration::from_millis(2))])
                .chain([Act::Send(flv.clone()), Act::Close])
                .collect();
        let redirect = |to: &str| {
            raw(&format!("HTTP/1.1 307 Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"))
        };
        match asked.target.as_str() {
            "/a/chunked.flv?token=1&x" => vec![Act::Send(chunked)],
            "/close.flv" => vec![Act::Send(close), Act::Close],
            "/split.flv" => split,
            "/relative.flv" => redirect("a/chunked.flv?token=1&x"),
            "/absolute.flv" => redirect(&format!(
                "http://{}/close.flv",
                asked.head.lines().find_map(|line| line.strip_prefix("Host: ")).unwrap()
            )),
            _ => status("404 Not Found"),
        }
    });
    for path in
        ["/a/chunked.flv?token=1&x", "/close.flv", "/split.flv", "/relative.flv", "/absolute.flv"]
    {
        let report = verified(&server.url(path), Some(clip.reference()));
        assert_eq!(report.end, End::Ended, "{path}: {report:#?}");
        assert!(report.troubles.is_empty(), "{path}: {report:#?}");
        let verified = report.verified.unwrap();
        assert_eq!((verified.samples, verified.matched), (96, 96), "{path}");
        // The duration of each access unit but the last is known.
        near(report.received, 95.0 * 1024.0 / 48_000.0, 0.002);
    }
}

#[test]
fn a_kept_connection_that_the_server_closes_is_made_again() {
    let clip = AudioClip::new(6);
    let server = Server::start(move |asked| {
        let mut acts = clip.answer(&asked.target);
        // The server closes without a word after every answer.
        acts.push(Act::Close);
        acts
    });
    let report = plain(&server.url("/x/index.m3u8"));
    assert_eq!((report.end, report.troubles.len()), (End::Ended, 0), "{report:#?}");
    assert_eq!(report.reconnects, 7, "the header and six segments");
    near(report.received, 6.0 * 0.512, 1e-6);
}

#[test]
fn drops_in_the_middle_are_got_over_and_counted() {
    let clip = AudioClip::new(6);
    let server = Server::start(move |asked| {
        let whole = clip.answer(&asked.target);
        match (asked.target.as_str(), asked.before) {
            ("/x/2.m4s", 0) => {
                let Act::Send(bytes) = &whole[0] else { panic!() };
                vec![Act::Send(bytes[..bytes.len() / 2].to_vec()), Act::Close]
            }
            ("/x/3.m4s", _) => status("500 Oops"),
            ("/x/4.m4s", 0) => vec![Act::Close],
            _ => whole,
        }
    });
    let report = plain(&server.url("/x/index.m3u8"));
    assert_eq!(report.end, End::Ended, "{report:#?}");
    assert_eq!(report.troubles.get("length"), Some(&1), "{report:#?}");
    // A player passes over a segment that the server refuses four times.
    assert_eq!(report.troubles.get("status"), Some(&4), "{report:#?}");
    assert_eq!((report.holes, report.troubles.len()), (1, 2), "{report:#?}");
    near(report.missing, 0.512, 1e-6);
    near(report.received, 5.0 * 0.512, 1e-6);
}

#[test]
fn a_stream_that_is_cut_off_is_asked_for_again_if_that_is_wanted() {
    let clip = AudioClip::new(8);
    let (header, fragments) = (clip.header(), |of: Range<u32>| of.flat_map(|it| clip.fragment(it)));
    let mp4 = |of| header.iter().copied().chain(fragments(of)).collect::<Vec<_>>();
    let (flv, begin, end) = (clip.flv(), mp4(0..3), mp4(4..8));
    let server = Server::start(move |asked| {
        let is_first = asked.before == 0;
        match (asked.target.as_str(), is_first) {
            ("/x.flv" | "/again.flv", true) => chunked(&flv[..flv.len() / 2], ""),
            ("/x.mp4" | "/again.mp4", true) => chunked(&begin, ""),
            ("/again.flv", false) => chunked(&flv, "0\r\n\r\n"),
            ("/again.mp4", false) => chunked(&end, "0\r\n\r\n"),
            _ => status("404 Not Found"),
        }
    });
    for (kind, holes, received) in [("flv", 0, 8.0), ("mp4", 1, 7.0)] {
        let report = plain(&server.url(&format!("/x.{kind}")));
        assert_eq!((failure(&report).0, report.reconnects), ("dropped", 0), "{report:#?}");
        let wanted = Options { reconnect: true, ..options() };
        let url = server.url(&format!("/again.{kind}"));
        let report = watch(&url, wanted, true, Some(clip.reference()), LIMIT);
        assert_eq!((report.end, report.reconnects), (End::Ended, 1), "{report:#?}");
        assert_eq!(report.troubles.get("dropped"), Some(&1), "{report:#?}");
        assert_eq!((report.holes, report.troubles.len()), (holes, 1), "{report:#?}");
        // What came twice counts once. How long the last unit of an FLV lasts is not known.
        near(report.received, received * 0.512, 0.03);
    }
}

/// A body in chunks: one, and `rest`.
fn chunked(body: &[u8], rest: &str) -> Vec<Act> {
    let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len());
    vec![Act::Send([head.as_bytes(), body, b"\r\n", rest.as_bytes()].concat()), Act::Close]
}

#[test]
fn an_rtmp_server_that_breaks_the_protocol_or_hangs_up() {
    let serve = |bytes: &'static [u8]| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut c0c1 = [0; 1537];
            socket.read_exact(&mut c0c1).unwrap();
            let _ = socket.write_all(bytes);
        });
        format!("rtmp://{address}/live/x")
    };
    let report = plain(&serve(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    assert_eq!(failure(&report).0, "garbage");
    let report = plain(&serve(b""));
    assert_eq!(failure(&report).0, "dropped");
    let report = plain(&serve(&[3; 1000]));
    assert_eq!(failure(&report).0, "dropped");
}
