//! Servers of WHEP that answer wrongly, or whose media cannot be reached.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use support::*;
use testkit::eventually;
use viewer::player::{Target, part, play};
use viewer::{Clock, End, Lane, Options, Report, Totals, Viewer};

/// An answer to the offer of a player, by a server whose media are at this address.
fn answer(media: SocketAddr, offer: &str) -> String {
    let line = |begin: &str| offer.lines().find(|line| line.starts_with(begin));
    // The offer begins with the video. Its first payload types are H.264 and Opus.
    let mut mids = offer.lines().filter(|line| line.starts_with("a=mid:"));
    let mut payload = |codec: &str| {
        let mut maps = offer.lines().filter(|line| line.starts_with("a=rtpmap:"));
        let map = maps.find(|line| line.contains(codec)).unwrap();
        let number = map.strip_prefix("a=rtpmap:").unwrap().split(' ').next().unwrap();
        let format = line(&format!("a=fmtp:{number} ")).unwrap_or("a=x-none");
        (number.to_owned(), format!("{map}\r\n{format}"), mids.next().unwrap())
    };
    let ((v, video, v_mid), (a, audio, a_mid)) = (payload("H264"), payload("opus"));
    let (ip, port) = (media.ip(), media.port());
    let common = "c=IN IP4 0.0.0.0\r\na=sendonly\r\na=rtcp-mux\r\na=ice-ufrag:serv\r\n\
                  a=ice-pwd:0123456789012345678901\r\na=setup:passive\r\n\
                  a=fingerprint:sha-256 00:01:02:03:04:05:06:07:08:09:0A:0B:0C:0D:0E:0F:\
                  10:11:12:13:14:15:16:17:18:19:1A:1B:1C:1D:1E:1F";
    let candidate = format!("a=candidate:1 1 udp 2130706175 {ip} {port} typ host");
    let group = line("a=group:").unwrap();
    format!(
        "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n{group}\r\na=ice-lite\r\n\
         m=video 9 UDP/TLS/RTP/SAVPF {v}\r\n{common}\r\n{v_mid}\r\n{video}\r\n{candidate}\r\n\
         m=audio 9 UDP/TLS/RTP/SAVPF {a}\r\n{common}\r\n{a_mid}\r\n{audio}\r\n"
    )
}

fn created(text: &str) -> Vec<Act> {
    let length = text.len();
    let head = format!(
        "HTTP/1.1 201 Created\r\nContent-Type: application/sdp\r\nLocation: whep/7\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    vec![Act::Send([head.as_bytes(), text.as_bytes()].concat())]
}

/// Runs a viewer to its end, or until its time is up, which it tells the server.
fn watch_and_part(url: &str, options: Options, time: impl Future<Output = ()>) -> Report {
    let target: Target = url.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let lane = Lane::new(Clock::start(), options, Arc::new(Totals::default()));
        let viewer = Viewer::join(&lane, (0, 0), true, None);
        let outcome = tokio::select! {
            outcome = play(&viewer, &target) => Some(outcome),
            () = time => None,
        };
        part(&viewer).await;
        viewer.leave(outcome).report()
    })
}

/// The longest that a viewer has time.
async fn long() {
    tokio::time::sleep(LIMIT).await;
}

#[test]
fn wrong_answers_are_one_kind_of_trouble() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/none/whep" => status("404 Not Found"),
        "/full/whep" => status("503 Service Unavailable"),
        "/html/whep" => ok(b"<html>not here</html>"),
        "/empty/whep" => created(""),
        "/cut/whep" => created("v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"),
        "/other/whep" => created(&"a=rtpmap:96 H264/90000\r\n".repeat(2)),
        "/long/whep" => created(&"a=x\r\n".repeat(20_000)),
        "/loop/whep" => {
            let head = "HTTP/1.1 307 Moved\r\nLocation: whep\r\nContent-Length: 0\r\n";
            vec![Act::Send(format!("{head}Connection: close\r\n\r\n").into_bytes())]
        }
        _ => status("204 No Content"),
    });
    for (path, kind) in [
        ("/none/whep", "status"),
        ("/full/whep", "status"),
        ("/html/whep", "garbage"),
        ("/empty/whep", "garbage"),
        ("/cut/whep", "garbage"),
        ("/other/whep", "garbage"),
        ("/long/whep", "garbage"),
        ("/loop/whep", "redirect"),
        ("/nothing/whep", "garbage"),
    ] {
        let report = watch_and_part(&server.url(path), options(), long());
        let (found, what) = failure(&report);
        assert_eq!(found, kind, "{path}: {what}");
        assert!(what.contains(path), "{path}: {what}");
        assert_eq!(report.troubles.len(), 1, "{path}: {report:#?}");
        assert_eq!((report.startup, report.rtp), (None, None), "{path}");
    }
    // What a server has made is removed, also where its answer was wrong.
    eventually(LIMIT, "a session that is removed", || {
        let asked = server.asked();
        let mut removed = asked.iter().filter(|asked| asked.head.starts_with("DELETE "));
        removed.any(|asked| asked.target == "/empty/whep/7")
    });
}

#[test]
fn media_that_cannot_be_reached_are_a_timeout_and_the_session_is_removed() {
    // It takes datagrams and says nothing.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let media = silent.local_addr().unwrap();
    let server = Server::start(move |asked| match asked.head.split(' ').next().unwrap() {
        "POST" => created(&answer(media, &asked.body)),
        _ => status("200 OK"),
    });
    // Long enough for the server's answer, where the machine stands still for some seconds.
    let patience = Duration::from_secs(10);
    let impatient = Options { patience, ..options() };
    let report = watch_and_part(&server.url("/x/whep?token=1"), impatient, long());
    let (kind, what) = failure(&report);
    assert_eq!(kind, "timeout", "{what}");
    assert!(what.contains("UDP") && what.contains("/x/whep?token=1"), "{what}");
    assert!(report.watched >= patience.as_secs_f64(), "{report:#?}");
    assert_eq!((report.media_bytes, report.requests), (0, 2), "{report:#?}");
    // The viewer does not wait long for the answer to its last request.
    eventually(LIMIT, "both requests", || server.asked().len() == 2);
    let heads: Vec<_> = server.asked().into_iter().map(|asked| asked.head).collect();
    assert!(heads[0].contains("\r\nContent-Type: application/sdp\r\n"), "{}", heads[0]);
    assert!(heads[1].starts_with("DELETE /x/whep/7 HTTP/1.1\r\n"), "{}", heads[1]);

    // If its time is up first, the viewer ends for that reason, and removes its session. Here that is when it looks for
    // the media: what the viewer before has sent is taken first.
    silent.set_nonblocking(true).unwrap();
    while silent.recv(&mut [0; 2048]).is_ok() {}
    let asked = async move {
        let silent = tokio::net::UdpSocket::from_std(silent).unwrap();
        silent.recv(&mut [0; 2048]).await.unwrap();
    };
    let report = watch_and_part(&server.url("/x/whep"), options(), asked);
    assert_eq!((report.end, report.requests), (End::Time, 2), "{report:#?}");
    eventually(LIMIT, "both requests of the second", || server.asked().len() == 4);
}

#[test]
fn nobody_is_there() {
    let report = plain("http://127.0.0.1:1/x/whep");
    assert_eq!(failure(&report).0, "refused");
}
