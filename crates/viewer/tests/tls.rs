//! Players over TLS, with rustls and with openssl as servers.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod support;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use support::*;
use tempfile::TempDir;
use testkit::Program;
use tokio_rustls::TlsAcceptor;
use viewer::tls::Trust;
use viewer::websocket::accept;
use viewer::{End, Options};

/// An authority, and its certificate for 127.0.0.1, as files.
struct Keys {
    folder: TempDir,
}

impl Keys {
    fn make() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let certificate =
            CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for (name, pem) in [
            ("authority.pem", authority.pem()),
            ("certificate.pem", certificate.pem()),
            ("key.pem", key.serialize_pem()),
        ] {
            std::fs::write(folder.path().join(name), pem).unwrap();
        }
        Self { folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn trusted(&self) -> Options {
        Options { trust: Trust::Authorities(self.file("authority.pem")), ..options() }
    }

    /// Starts a TLS server in front of a plain one. The TLS server knows these ALPN protocols.
    fn before(&self, plain: SocketAddr, alpn: &[&[u8]]) -> SocketAddr {
        let certificate = CertificateDer::from_pem_file(self.file("certificate.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.file("key.pem")).unwrap();
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate], key)
                .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let address = ([127, 0, 0, 1], listener.local_addr().unwrap().port()).into();
        listener.set_nonblocking(true).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                loop {
                    let (socket, _) = listener.accept().await.unwrap();
                    let acceptor = acceptor.clone();
                    tokio::spawn(async move {
                        let Ok(mut near) = acceptor.accept(socket).await else { return };
                        let mut far = tokio::net::TcpStream::connect(plain).await.unwrap();
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    });
                }
            });
        });
        address
    }
}

#[test]
fn segments_over_tls_are_the_same_and_cost_the_same_bytes() {
    let clip = AudioClip::new(6);
    let reference = clip.reference();
    let server = Server::start(move |asked| clip.answer(&asked.target));
    let keys = Keys::make();
    let secure = keys.before(server.address, &[b"h2", b"http/1.1"]);
    let url = format!("https://{secure}/x/index.m3u8");
    let report = watch(&url, keys.trusted(), true, Some(reference), LIMIT);
    assert_eq!((report.end, report.troubles.len()), (End::Ended, 0), "{report:#?}");
    assert_eq!((report.reconnects, report.verified.unwrap().matched), (0, 6 * u64::from(UNITS)));
    // Counters count the bytes inside TLS, not those of TLS itself.
    let secure = watch(&url, keys.trusted(), false, None, LIMIT);
    let open = plain(&server.url("/x/index.m3u8"));
    assert_eq!((secure.media_bytes, secure.received), (open.media_bytes, open.received));
    assert_eq!(secure.overhead_bytes, open.overhead_bytes);
    assert_eq!(secure.requests, open.requests);
    assert_eq!(secure.requests_by_kind["segment"].count, 6);
}

#[test]
fn a_long_body_comes_whole_and_at_its_end() {
    let clip = AudioClip::new(400);
    let flv = clip.flv();
    assert!(flv.len() > 1 << 20);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", flv.len());
    let answer = [head.as_bytes(), &flv].concat();
    let server = Server::start(move |_| vec![Act::Send(answer.clone())]);
    let keys = Keys::make();
    let secure = keys.before(server.address, &[]);
    let url = format!("https://{secure}/all.flv");
    for verify in [true, false] {
        let hasty = Options { ahead: None, ..keys.trusted() };
        let report = watch(&url, hasty, verify, None, LIMIT);
        assert_eq!((report.end, report.troubles.len()), (End::Ended, 0), "{report:#?}");
        assert_eq!(report.media_bytes, flv.len() as u64);
    }
}

#[test]
fn certificates_are_looked_at() {
    let clip = AudioClip::new(2);
    let server = Server::start(move |asked| clip.answer(&asked.target));
    let (keys, others) = (Keys::make(), Keys::make());
    let secure = keys.before(server.address, &[b"http/1.1"]);
    let url = format!("https://{secure}/x/index.m3u8");
    let report = watch(&url, others.trusted(), false, None, LIMIT);
    let (kind, what) = failure(&report);
    assert!(kind == "tls" && what.contains("certificate"), "{kind}: {what}");
    let anybody = Options { trust: Trust::Anybody, ..options() };
    assert_eq!(watch(&url, anybody.clone(), false, None, LIMIT).end, End::Ended);
    // With a name that the certificate does not have.
    let other = url.replace("127.0.0.1", "127.0.0.2");
    let report = watch(&other, keys.trusted(), false, None, LIMIT);
    assert_eq!(failure(&report).0, "tls", "{report:#?}");
    // Bytes that are not TLS, and no bytes at all.
    let garbage = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut socket, _) = listener.accept().unwrap();
            let _ = socket.read(&mut [0; 1000]);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = socket.read(&mut [0; 1000]);
        });
        address
    };
    let report = watch(&format!("https://{garbage}/x"), anybody.clone(), false, None, LIMIT);
    assert_eq!(failure(&report).0, "tls", "{report:#?}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let impatient = Options { patience: Duration::from_millis(300), ..anybody };
    let address = silent.local_addr().unwrap();
    let report = watch(&format!("https://{address}/x"), impatient, false, None, LIMIT);
    assert_eq!(failure(&report).0, "timeout", "{report:#?}");
    let missing = Options { trust: Trust::Authorities("/nowhere.pem".into()), ..options() };
    let report = watch(&url, missing, false, None, LIMIT);
    assert!(failure(&report).1.contains("/nowhere.pem"), "{report:#?}");
}

#[test]
fn redirects_lead_to_tls_and_what_is_relative_stays_there() {
    let clip = AudioClip::new(3);
    let server = Server::start(move |asked| clip.answer(&asked.target));
    let keys = Keys::make();
    let secure = keys.before(server.address, &[b"http/1.1"]);
    let redirect = Server::start(move |asked| {
        let to = format!("https://{secure}{}", asked.target);
        raw(&format!("HTTP/1.1 301 Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"))
    });
    let report = watch(&redirect.url("/x/index.m3u8"), keys.trusted(), true, None, LIMIT);
    assert_eq!((report.end, report.troubles.len()), (End::Ended, 0), "{report:#?}");
    near(report.received, 3.0 * 0.512, 1e-6);
    assert_eq!(redirect.asked().len(), 1, "only the playlist is asked for in the open");
}

#[test]
fn push_and_rtmp_over_tls() {
    let clip = AudioClip::new(2);
    let header = clip.header();
    let fragments = [clip.fragment(0), clip.fragment(1)];
    let message = |payload: &[u8]| {
        let size = u16::try_from(payload.len()).unwrap();
        [&[0x82, 126][..], &size.to_be_bytes(), payload].concat()
    };
    let mut frames = message(&header);
    fragments.iter().for_each(|fragment| frames.extend(message(fragment)));
    frames.extend([0x88, 2, 3, 232]);
    let server = Server::start(move |asked| {
        let key = asked.head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\n\r\n",
            accept(key.unwrap())
        );
        vec![Act::Send([head.as_bytes(), &frames].concat())]
    });
    let keys = Keys::make();
    let secure = keys.before(server.address, &[b"http/1.1"]);
    let url = format!("wss://{secure}/live/x/push");
    let report = watch(&url, keys.trusted(), true, Some(clip.reference()), LIMIT);
    assert_eq!((report.end, report.troubles.len()), (End::Ended, 0), "{report:#?}");
    assert_eq!(report.verified.unwrap().matched, 2 * u64::from(UNITS));

    // RTMP has no ALPN name, and a server that knows only other names would refuse any. The bytes
    // inside TLS are not RTMP, which the viewer must notice.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; 1537]).unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let _ = socket.read(&mut [0; 1]);
    });
    let secure = keys.before(address, &[b"only-this"]);
    let url = format!("rtmps://{secure}/live/x");
    let report = watch(&url, keys.trusted(), false, None, LIMIT);
    assert_eq!(failure(&report).0, "garbage", "{report:#?}");
}

/// `openssl s_server -WWW` answers in HTTP/1.0 from the folder it runs in.
#[test]
fn openssl_serves_a_film() {
    let keys = Keys::make();
    let clip = AudioClip::new(4);
    let flv = clip.flv();
    std::fs::write(keys.file("all.flv"), &flv).unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        let server = Program::spawn(
            Command::new("openssl")
                .args(["s_server", "-accept", "127.0.0.1:0", "-WWW", version])
                .arg("-cert")
                .arg(keys.file("certificate.pem"))
                .arg("-key")
                .arg(keys.file("key.pem"))
                .current_dir(keys.folder.path()),
        );
        let line = server.stdout_line(LIMIT, |line| line.starts_with("ACCEPT"));
        let address = line.split_whitespace().last().unwrap();
        let url = format!("https://{address}/all.flv");
        let report = watch(&url, keys.trusted(), true, Some(clip.reference()), LIMIT);
        assert_eq!((report.end, report.troubles.len()), (End::Ended, 0), "{version}: {report:#?}");
        assert_eq!(report.media_bytes, flv.len() as u64);
        server.terminate();
    }
}
