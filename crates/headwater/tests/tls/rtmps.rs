//! RTMP over TLS, as ffmpeg and openssl see it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use testkit::{Program, access_unit_hashes_with, demo_clip, uninterrupted};

use crate::support::{LIMIT, Site};

/// A server with RTMPS, and with these lines of `[rtmp]`.
fn site(rtmp: &str) -> Site {
    Site::configured(
        "",
        &format!("[rtmp]\n{rtmp}[rtmp.tls]\nenabled = true\nlisten = \"127.0.0.1:0\"\n"),
    )
}

fn address(site: &Site) -> SocketAddr {
    site.server.rtmps.expect("configured")
}

fn url(site: &Site, path: &str) -> String {
    format!("rtmps://{}/{path}", address(site))
}

/// The hashes of the access units that ffmpeg gets.
fn hashes(url: &str, options: &[&str]) -> Vec<String> {
    access_unit_hashes_with(url, &[], options).into_iter().map(|unit| unit.md5).collect()
}

fn publish(site: &Site, path: &str) -> Program {
    testkit::publish_looped(demo_clip(), &url(site, path))
}

#[test]
fn ffmpeg_publishes_and_plays_what_others_get_by_rtmp() {
    let site = site("");
    let _publisher = publish(&site, "live/x");
    site.server.get_until("/live/x/index.m3u8", LIMIT, |answer| answer.status() == 200);
    let live = hashes(&url(&site, "live/x"), &["-an", "-t", "3"]);
    let film = hashes(demo_clip().to_str().unwrap(), &["-an"]);
    assert!(live.len() >= 50 && live.iter().all(|unit| film.contains(unit)), "{}", live.len());

    // A file that is sent as fast as the player takes it, so the connection is full most of the time.
    let (long, title) = (site.scratch("long.mp4"), "vod/long.mp4?pace=fast");
    let mut repeat = Command::new("ffmpeg");
    repeat.args(["-v", "error", "-stream_loop", "20", "-i"]).arg(demo_clip());
    Program::output(repeat.args(["-c", "copy"]).arg(&long), LIMIT);
    site.server.put("long.mp4", &std::fs::read(&long).unwrap());
    let secured = hashes(&url(&site, title), &[]);
    assert!(secured.len() > 1000 && secured == hashes(&site.server.rtmp_url(title), &[]));
}

#[test]
fn those_without_a_handshake_leave_and_disturb_nobody() {
    let site = site("setup_timeout = \"8s\"\n");
    let _publisher = publish(&site, "live/x");
    site.server.get_until("/live/x/index.m3u8", LIMIT, |answer| answer.status() == 200);
    // RTMP in the clear, garbage, and nothing at all.
    for greeting in [&[3; 1537][..], &[0xff; 4096], &[]] {
        let mut socket = TcpStream::connect(address(&site)).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.write_all(greeting).unwrap();
        let mut answer = Vec::new();
        let ended = uninterrupted(|| socket.read_to_end(&mut answer));
        let is_open = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        // An alert at most (RFC 8446 6).
        assert!(!is_open && answer.len() < 100, "{}", answer.len());
    }
    let live = hashes(&url(&site, "live/x"), &["-an", "-t", "2"]);
    assert!(live.len() >= 30, "{}", live.len());
}

#[test]
fn the_certificate_is_that_of_https() {
    let site = site("");
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", &address(&site).to_string(), "-CAfile"]);
    openssl.arg(site.certificate()).stdin(Stdio::null());
    let said = Program::spawn(&mut openssl).wait(LIMIT);
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(text.contains("Verify return code: 0 (ok)"), "{text}{}", said.stderr);
}
