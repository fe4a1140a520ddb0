//! Limits for clients that behave badly.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use hyper::{Request, StatusCode};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use testkit::http::Client;
use testkit::{Program, eventually, noise};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{LIMIT, PROTOCOLS, Site};

fn connect(site: &Site) -> TcpStream {
    let socket = TcpStream::connect(site.server.https.unwrap()).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

/// Reads to the end. The server may send no more than an alert.
fn closed(mut socket: TcpStream) {
    let mut said = Vec::new();
    match socket.read_to_end(&mut said) {
        Ok(_) => assert!(said.len() < 100, "{said:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn a_handshake_that_takes_too_long() {
    let site = Site::start("head_timeout = \"8s\"", &[]);
    let began = Instant::now();
    let silent = connect(&site);
    let mut slow = connect(&site);
    // The beginning of a handshake of 512 bytes.
    slow.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).unwrap();
    closed(silent);
    closed(slow);
    assert!(began.elapsed() >= Duration::from_secs(8));
    site.until_metric("headwater_http_tls_handshakes_failed_total", 2);

    // A connection without a handshake ends at once.
    let mut plain = connect(&site);
    plain.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    closed(plain);
}

#[test]
fn the_limit_of_connections_is_for_both_listeners() {
    let site = Site::start("max_connections = 2", &[]);
    let secured = connect(&site);
    // The other connection is the one that asks for the metric.
    site.until_metric("headwater_http_connections", 2);
    let mut plain = Client::connect(site.server.http, LIMIT).unwrap();
    eventually(LIMIT, "the connection before has left its place", || {
        // The previous connection keeps its place for a moment longer.
        let answered = plain.send("GET", "/live/none", &[], b"").and_then(|()| plain.receive());
        answered.is_ok_and(|answer| answer.status() == 404) || {
            plain = Client::connect(site.server.http, LIMIT).unwrap();
            false
        }
    });
    closed(connect(&site));
    drop((secured, plain));
    // Their places are free again.
    eventually(LIMIT, "both places are free", || {
        let mut curl = site.curl(&["-f", &site.url("/healthz")]);
        Program::spawn(&mut curl).wait(LIMIT).status.success()
    });
}

#[test]
fn a_client_that_reads_nothing() {
    let site = Site::start("send_timeout = \"1s\"", &[]);
    let big = std::fs::File::create(site.server.vod("big.bin")).unwrap();
    big.set_len(1 << 32).unwrap();
    big.write_all_at(&noise(1, 1 << 20), 0).unwrap();
    for protocol in PROTOCOLS {
        let url = site.url("/vod/big.bin");
        let sent = || site.metric("headwater_http_sent_bytes_total");
        let (mut before, mut stalled) = (sent(), 0);
        let begin = || Program::spawn(&mut site.curl(&[protocol, "-o", "/dev/null", &url]));
        let mut curl = begin();
        eventually(LIMIT, "it is being sent", || {
            stalled = site.metric("headwater_http_connections_stalled_total");
            // A busy machine may not have run curl for longer than the server's limit.
            if !curl.is_running() {
                (before, curl) = (sent(), begin());
            }
            sent() > before + (1 << 20)
        });
        curl.pause();
        site.until_metric("headwater_http_connections_stalled_total", stalled + 1);
        // Only the connection that asks for the metric is left.
        eventually(LIMIT, "it is closed", || site.metric("headwater_http_connections") == 1);
        curl.resume();
        let ended = curl.wait(LIMIT);
        assert!(!ended.status.success(), "{protocol}: {ended:?}");
    }
}

/// A connection whose handshake chose HTTP/2.
async fn secured(site: &Site) -> TlsStream<tokio::net::TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(site.certificate()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let address = site.server.https.unwrap();
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = ServerName::from(address.ip());
    TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap()
}

/// An HTTP/2 connection and its end. The server may send `window` bytes on each stream before it
/// needs permission for more.
async fn http2(site: &Site, window: u32) -> (SendRequest<Bytes>, JoinHandle<()>) {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(1 << 30);
    let (requests, connection) = builder.handshake(secured(site).await).await.unwrap();
    // The requests show how the connection ends.
    let connection = tokio::spawn(async move { drop(connection.await) });
    (requests, connection)
}

fn ask(site: &Site, path: &str) -> Request<()> {
    Request::get(site.url(path)).body(()).unwrap()
}

/// The server gives up a stream that nobody reads. The others of its connection go on.
#[tokio::test]
async fn a_stream_that_is_not_read() {
    let site = Site::start("send_timeout = \"12s\"", &[]);
    let bytes = noise(2, 4_000_000);
    std::fs::write(site.server.vod("a.bin"), &bytes).unwrap();
    let (mut requests, _) = http2(&site, 20_000).await;
    let (answer, _) = requests.send_request(ask(&site, "/vod/a.bin"), true).unwrap();
    let mut unread = answer.await.unwrap().into_body();
    let (answer, _) = requests.send_request(ask(&site, "/vod/a.bin"), true).unwrap();
    let mut slow = answer.await.unwrap().into_body();

    // This stream is read slowly until the server has given up the other one. So it takes longer than
    // the time-out, but it is never idle for so long.
    let stalled = || site.metric("headwater_http_connections_stalled_total");
    let (mut got, mut released, mut is_alone) = (Vec::new(), 0, false);
    while let Some(data) = slow.data().await {
        got.extend_from_slice(&data.unwrap());
        if got.len() >= released + 10_000 {
            if !is_alone {
                is_alone = stalled() > 0;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            slow.flow_control().release_capacity(got.len() - released).unwrap();
            released = got.len();
        }
    }
    assert!(got == bytes);
    assert_eq!(stalled(), 1);

    let mut taken = 0;
    let error = loop {
        match tokio::time::timeout(LIMIT, unread.data()).await.unwrap().unwrap() {
            Ok(data) => taken += data.len(),
            Err(error) => break error,
        }
    };
    assert!(taken <= 20_000 && error.is_reset(), "{taken} bytes, {error}");
    assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
    assert_eq!(stalled(), 1);

    let (answer, _) = requests.send_request(ask(&site, "/healthz"), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
}

/// The time limit of a stream is for its last bytes, too.
#[tokio::test]
async fn a_stream_whose_end_is_not_read() {
    let site = Site::start("send_timeout = \"1s\"\nidle_timeout = \"10m\"", &[]);
    std::fs::write(site.server.vod("a.bin"), noise(3, 10_000)).unwrap();
    let (mut requests, _) = http2(&site, 1_000).await;
    let (answer, _) = requests.send_request(ask(&site, "/vod/a.bin"), true).unwrap();
    let mut unread = answer.await.unwrap().into_body();
    let mut taken = 0;
    let error = loop {
        match tokio::time::timeout(LIMIT, unread.data()).await.unwrap().unwrap() {
            Ok(data) => taken += data.len(),
            Err(error) => break error,
        }
    };
    assert!(taken <= 1_000 && error.is_reset(), "{taken} bytes, {error}");
    assert_eq!(site.metric("headwater_http_connections_stalled_total"), 1);
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// A frame (RFC 9113 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The next frame: its kind, its flags, and its payload.
async fn next_frame(stream: &mut TlsStream<tokio::net::TcpStream>) -> Result<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut payload).await?;
    Ok((head[3], head[4], payload))
}

/// The frame of a GET: the end of head and stream. The head is `GET`, `https`, the path and the
/// authority (RFC 7541 6.1 and 6.2).
fn get_frame(stream: u32, path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap();
    let path = [&[0x82, 0x87, 0x04, length], path.as_bytes()].concat();
    frame(HEADERS, 0x5, stream, &[&path, [0x41, 9].as_slice(), b"127.0.0.1"].concat())
}

/// A client that cancels its requests at once, many times (CVE-2023-44487).
#[tokio::test]
async fn a_client_that_takes_its_requests_back() {
    let site = Site::start("", &[]);
    let mut stream = secured(&site).await;
    let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    said.extend(frame(SETTINGS, 0, 0, &[]));
    for i in 0..1000 {
        said.extend(get_frame(2 * i + 1, "/"));
        said.extend(frame(RST_STREAM, 0, 2 * i + 1, &8u32.to_be_bytes()));
    }
    // The server may be gone before it has read all of it.
    let _ = stream.write_all(&said).await;
    let farewell = async {
        loop {
            let (kind, _, payload) = next_frame(&mut stream).await.expect("an end without a word");
            if kind == GOAWAY {
                break u32::from_be_bytes(payload[4..8].try_into().unwrap());
            }
        }
    };
    let reason = tokio::time::timeout(LIMIT, farewell).await.unwrap();
    assert_eq!(h2::Reason::from(reason), h2::Reason::ENHANCE_YOUR_CALM);
    let (mut others, _) = http2(&site, 1 << 20).await;
    let (answer, _) = others.send_request(ask(&site, "/healthz"), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
}

/// The server announces that it closes a connection without requests. It does so soon if the
/// connection never had any.
#[tokio::test]
async fn a_connection_that_idles() {
    // The handshake has the same time-out as the first request, so that one is long.
    let unused = Site::start("idle_timeout = \"10m\"\nhead_timeout = \"10s\"", &[]);
    let used = Site::start("idle_timeout = \"1s\"\nhead_timeout = \"10s\"", &[]);
    let first = async {
        let began = Instant::now();
        let (requests, connection) = http2(&unused, 1 << 20).await;
        tokio::time::timeout(LIMIT, connection).await.unwrap().unwrap();
        assert!(began.elapsed() >= Duration::from_secs(10));
        drop(requests);
    };
    let next = async {
        let began = Instant::now();
        let (mut requests, connection) = http2(&used, 1 << 20).await;
        let (answer, _) = requests.send_request(ask(&used, "/healthz"), true).unwrap();
        assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
        tokio::time::timeout(LIMIT, connection).await.unwrap().unwrap();
        assert!(began.elapsed() >= Duration::from_secs(1));
    };
    tokio::join!(first, next);
}

/// A request that crosses the announced end of an idle connection gets all of its answer, however
/// long that takes.
#[tokio::test]
async fn a_request_after_the_announced_end() {
    const STEP: usize = 40_000;
    let site = Site::start("idle_timeout = \"1s\"", &[]);
    std::fs::write(site.server.vod("a.bin"), noise(4, 5 * STEP)).unwrap();
    let mut stream = secured(&site).await;
    let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    said.extend([frame(SETTINGS, 0, 0, &[]), get_frame(1, "/healthz")].concat());
    stream.write_all(&said).await.unwrap();
    // The ping after this frame is not answered, so the server does not know that it was heard.
    while next_frame(&mut stream).await.unwrap().0 != GOAWAY {}
    stream.write_all(&get_frame(3, "/vod/a.bin")).await.unwrap();
    let (mut got, mut released, mut is_whole) = (0, 0, false);
    while !is_whole {
        let (kind, flags, payload) = next_frame(&mut stream).await.unwrap();
        if kind == DATA {
            got += payload.len();
            is_whole = flags & 1 != 0;
        }
        if got >= released + STEP {
            // All in all longer than the server waits for a connection without streams.
            tokio::time::sleep(Duration::from_millis(800)).await;
            let more = u32::try_from(got - released).unwrap().to_be_bytes();
            let updates = [0, 3].map(|of| frame(WINDOW_UPDATE, 0, of, &more));
            stream.write_all(&updates.concat()).await.unwrap();
            released = got;
        }
    }
    assert_eq!(got, 5 * STEP);
    let ended = async { while next_frame(&mut stream).await.is_ok() {} };
    tokio::time::timeout(LIMIT, ended).await.unwrap();
}
