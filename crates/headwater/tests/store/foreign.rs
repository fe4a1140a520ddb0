//! Another server, which checks signatures: s3s-fs. `scripts/s3s.sh` installs it, and `scripts/interop.sh` runs this.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use testkit::{Port, Program, eventually};

use crate::support::{ENVIRONMENT, LIMIT, ask, bytes, clip, local, origin_of, resources};

#[test]
#[ignore = "interop"]
fn titles_of_another_server_are_the_same() {
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/s3s/bin/s3s-fs");
    assert!(binary.is_file(), "no s3s-fs: scripts/s3s.sh installs it");
    let (objects, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = tempfile::tempdir().unwrap();
    let [(_, key), (_, secret), (_, region)] = ENVIRONMENT;
    let port = Port::find();
    let mut command = Command::new(binary);
    command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--access-key", key, "--secret-key", secret]).arg(objects.path());
    let _server = Program::spawn(&mut command);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
    eventually(LIMIT, "s3s-fs listens", || TcpStream::connect(address).is_ok());

    let signed = |arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail", "-X", "PUT", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
        curl.args(["--aws-sigv4", &format!("aws:amz:{region}:s3")]);
        curl.args(["--user", &format!("{key}:{secret}")]).args(arguments);
        Program::output(&mut curl, LIMIT);
    };
    signed(&[&format!("http://{address}/films")]);
    for name in ["film.mp4", "late-index.mp4"] {
        fs::write(folder.path().join(name), clip(name)).unwrap();
        let path = testkit::clip(&format!("mp4/{name}"));
        let url = format!("http://{address}/films/vod/{name}");
        signed(&["-T", path.to_str().unwrap(), &url]);
    }
    let (there, here) = (origin_of(address, "films", cache.path(), ""), local(folder.path()));
    for title in ["film.mp4", "late-index.mp4"] {
        assert!(resources(&there, title) == resources(&here, title), "{title}");
        assert!(bytes(&there, &format!("/vod/{title}")) == clip(title), "{title}");
    }
    assert_eq!(ask(&there, "/vod/none.mp4", &[]).status(), 404);
    assert_eq!(ask(&there, "/vod/", &[]).text().matches(".mp4</a>").count(), 2);
}
