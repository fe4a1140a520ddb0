//! The answers are the same over every protocol.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use testkit::{Program, noise};

use crate::support::{LIMIT, PROTOCOLS, Site};

/// Fields that are the same over every protocol. The others belong to the connection.
const SAME: [&str; 9] = [
    "content-type",
    "content-length",
    "content-range",
    "accept-ranges",
    "cache-control",
    "etag",
    "last-modified",
    "allow",
    "access-control-allow-origin",
];

/// A size that 32 bits cannot hold.
const BIG: u64 = 5 << 30;

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    fields: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// curl's answer for a URL. Values that differ each time are made equal.
#[track_caller]
fn answer(site: &Site, url: &str, arguments: &[&str]) -> Answer {
    let head = site.scratch("head");
    let mut curl = site.curl(arguments);
    curl.arg("-D").arg(&head).arg(url);
    let mut body = Program::output(&mut curl, LIMIT);
    let head = std::fs::read_to_string(head).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let mut fields = BTreeMap::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap();
        let name = name.to_ascii_lowercase();
        if SAME.contains(&name.as_str()) {
            let other = fields.insert(name, value.to_owned());
            assert_eq!(other, None, "a field twice: {head}");
        }
    }
    // With -I, curl shows the head as the body.
    if arguments.contains(&"-I") {
        body.clear();
    }
    let content_type = fields.get("content-type").cloned().unwrap_or_default();
    if let Some((kind, boundary)) = content_type.split_once("; boundary=") {
        let text = body.iter().map(|&byte| char::from(byte)).collect::<String>();
        body = text.replace(boundary, "BOUNDARY").chars().map(|c| c as u8).collect();
        fields.insert("content-type".to_owned(), kind.to_owned());
    }
    Answer { status, fields, body }
}

#[test]
fn the_same_over_plain_http_and_both_protocols_with_tls() {
    let site = Site::start("", &[]);
    let bytes = noise(1, 3_000_000);
    std::fs::write(site.server.vod("a.bin"), &bytes).unwrap();
    std::fs::write(site.server.vod("empty.bin"), b"").unwrap();
    std::fs::copy(testkit::demo_clip(), site.server.vod("clip.mp4")).unwrap();
    let big = File::create(site.server.vod("big.bin")).unwrap();
    big.set_len(BIG).unwrap();
    big.write_all_at(b"the end", BIG - 7).unwrap();
    for (path, arguments, status) in [
        ("/vod/a.bin", &[][..], 200),
        ("/vod/a.bin", &["-I"], 200),
        ("/vod/a.bin", &["-r", "1000-70000"], 206),
        ("/vod/a.bin", &["-r", "0-0,5-9,2000000-2100000,-1"], 206),
        ("/vod/a.bin", &["-r", "3000000-"], 416),
        ("/vod/a.bin", &["-H", "If-None-Match: *"], 304),
        ("/vod/a.bin", &["-H", "If-Match: \"other\""], 412),
        ("/vod/a.bin", &["-X", "OPTIONS"], 204),
        ("/vod/a.bin", &["-d", "some=thing"], 405),
        ("/vod/a%2f..%2fb", &[], 404),
        ("/vod/empty.bin", &[], 200),
        ("/vod/empty.bin", &["-I"], 200),
        ("/vod/none.bin", &[], 404),
        ("/vod/big.bin", &["-r", "5368709113-"], 206),
        ("/vod/big.bin", &["-I"], 200),
        ("/vod/clip.mp4?pace=fast", &[], 200),
        ("/vod/clip.mp4?pace=fast", &["-r", "5-"], 206),
        ("/vod/clip.mp4/index.m3u8", &[], 200),
        ("/vod/clip.mp4/manifest.mpd", &["-I"], 200),
        ("/vod/clip.mp4/v0/init.mp4", &[], 200),
        ("/vod/clip.mp4/v0/3.m4s", &[], 200),
        ("/vod/clip.mp4/v0/3.m4s", &["-r", "100-200000"], 206),
        ("/healthz", &[], 200),
        ("/healthz", &["-I"], 200),
        ("/nothing", &[], 404),
    ] {
        let plain = answer(&site, &site.server.url(path), arguments);
        assert_eq!(plain.status, status, "{path} {arguments:?}: {:?}", plain.fields);
        for protocol in PROTOCOLS {
            let secured = answer(&site, &site.url(path), &[&[protocol], arguments].concat());
            assert_eq!(secured.status, plain.status, "{protocol} {path} {arguments:?}");
            assert_eq!(secured.fields, plain.fields, "{protocol} {path} {arguments:?}");
            assert!(secured.body == plain.body, "{protocol} {path} {arguments:?}: other bytes");
        }
    }
    let whole = answer(&site, &site.url("/vod/a.bin"), &["--http2"]);
    assert!(whole.body == bytes);
    let end = answer(&site, &site.url("/vod/big.bin"), &["--http2", "-r", "-7"]);
    assert_eq!(end.body, b"the end");
    assert_eq!(site.metric("headwater_http_tls_handshakes_failed_total"), 0);
    // These bytes count like those without TLS.
    assert!(site.metric("headwater_http_sent_bytes_total") > 3 * 3_000_000);
}

/// On one connection each request gets its own bytes.
#[test]
fn a_hundred_requests_at_once_on_one_connection() {
    let site = Site::start("", &[]);
    let size = |i: u64| 40_000 + 997 * i as usize;
    let folder = site.scratch("got");
    std::fs::create_dir(&folder).unwrap();
    let mut list = String::new();
    for i in 0..100 {
        std::fs::write(site.server.vod(&format!("{i}.bin")), noise(i, size(i))).unwrap();
        let (url, to) = (site.url(&format!("/vod/{i}.bin")), folder.join(i.to_string()));
        list.push_str(&format!("url = \"{url}\"\noutput = \"{}\"\n", to.display()));
    }
    let urls = site.scratch("urls");
    std::fs::write(&urls, list).unwrap();
    let arguments = ["--http2", "-f", "--parallel", "--parallel-max", "100"];
    let mut curl = site.curl(&arguments);
    curl.args(["-w", "%{http_version}\\n", "-K"]).arg(&urls);
    let versions = String::from_utf8(Program::output(&mut curl, LIMIT)).unwrap();
    assert_eq!(versions.lines().filter(|line| *line == "2").count(), 100, "{versions}");
    for i in 0..100 {
        let got = std::fs::read(folder.join(i.to_string())).unwrap();
        assert!(got == noise(i, size(i)), "{i}");
    }
    assert_eq!(site.metric("headwater_http2_connections_accepted_total"), 1);
}

/// TLS announces an orderly close. Otherwise a client takes an answer without a length for cut
/// short (RFC 8446 6.1), and some clients do so with any answer.
#[test]
fn the_end_is_announced() {
    let site = Site::start("idle_timeout = \"300ms\"", &[]);
    std::fs::write(site.server.vod("a.bin"), noise(3, 100_000)).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(site.certificate()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (config, address) = (Arc::new(config), site.server.https.unwrap());
    for request in [
        "GET /vod/a.bin HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        "GET /vod/a.bin HTTP/1.0\r\n\r\n",
        // The connection is kept, then idle for too long.
        "GET /vod/a.bin HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        "GET nonsense HTTP/1.1\r\n\r\n",
    ] {
        let name = ServerName::from(address.ip());
        let session = rustls::ClientConnection::new(Arc::clone(&config), name).unwrap();
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut stream = rustls::StreamOwned::new(session, socket);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // rustls reports an unannounced end as an error.
        stream.read_to_end(&mut answer).unwrap_or_else(|error| panic!("{request}: {error}"));
        assert!(!request.contains("/vod/") || answer.len() > 100_000, "{request}");
    }
}
