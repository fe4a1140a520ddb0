//! Other servers, which check signatures: s3s-fs, and Azurite, which speaks as Azure Blob Storage does. `scripts/s3s.sh`
//! and `scripts/azurite.sh` install them, and `scripts/interop.sh` runs this.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use testkit::{Port, Program, Server, eventually};

use crate::support::{ENVIRONMENT, LIMIT, ask, bytes, clip, local, origin_of, resources};

const TITLES: [&str; 2] = ["film.mp4", "late-index.mp4"];

/// Starts a program of `target` that listens at a port.
fn start(
    program: &str,
    script: &str,
    arguments: impl Fn(&Port) -> Vec<String>,
) -> (Program, SocketAddr) {
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(program);
    assert!(binary.is_file(), "no {program}: scripts/{script} installs it");
    let port = Port::find();
    let server = Program::spawn(Command::new(binary).args(arguments(&port)));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
    eventually(LIMIT, "the server listens", || TcpStream::connect(address).is_ok());
    (server, address)
}

/// Puts something at an address: an empty bucket, or the clip of this name.
fn put(url: &str, clip: Option<&str>, arguments: &[&str]) {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--fail", "-X", "PUT", url]).args(arguments);
    match clip {
        Some(name) => curl.arg("-T").arg(testkit::clip(&format!("mp4/{name}"))),
        None => curl.args(["-d", ""]),
    };
    Program::output(&mut curl, LIMIT);
}

/// The titles of this origin are those of a folder.
fn has_the_titles(there: &Server) {
    let folder = tempfile::tempdir().unwrap();
    for name in TITLES {
        fs::write(folder.path().join(name), clip(name)).unwrap();
    }
    let here = local(folder.path());
    for title in TITLES {
        assert!(resources(there, title) == resources(&here, title), "{title}");
        assert!(bytes(there, &format!("/vod/{title}")) == clip(title), "{title}");
    }
    for range in ["bytes=3000000-3000099", "bytes=99000000-"] {
        let range = [("Range", range)];
        let [a, b] = [there, &here].map(|server| ask(server, "/vod/film.mp4", &range));
        assert_eq!((a.status(), &a.body), (b.status(), &b.body));
    }
    for path in ["/vod/none.mp4", "/vod/none.mp4/index.m3u8"] {
        assert_eq!(ask(there, path, &[]).status(), 404, "{path}");
    }
    assert_eq!(ask(there, "/vod/", &[]).text().matches(".mp4</a>").count(), TITLES.len());
}

#[test]
#[ignore = "interop"]
fn titles_of_another_server_are_the_same() {
    let (objects, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [(_, key), (_, secret), (_, region)] = ENVIRONMENT;
    let (_server, address) = start("s3s/bin/s3s-fs", "s3s.sh", |port| {
        let port = port.to_string();
        let options =
            ["--host", "127.0.0.1", "--port", &port, "--access-key", key, "--secret-key", secret];
        let folder = objects.path().to_str().unwrap();
        options.into_iter().chain([folder]).map(str::to_owned).collect()
    });
    let (signature, user) = (format!("aws:amz:{region}:s3"), format!("{key}:{secret}"));
    let signed = [
        "-H",
        "x-amz-content-sha256: UNSIGNED-PAYLOAD",
        "--aws-sigv4",
        &signature,
        "--user",
        &user,
    ];
    put(&format!("http://{address}/films"), None, &signed);
    for name in TITLES {
        put(&format!("http://{address}/films/vod/{name}"), Some(name), &signed);
    }
    let options = format!("endpoint = \"http://{address}\"\n");
    has_the_titles(&origin_of("s3://films/vod", cache.path(), &options, &ENVIRONMENT));
}

/// Lets everybody into the account that Azurite has. It is signed with the key of that account, which is public.
const SHARED: &str = "sv=2021-12-02&ss=b&srt=sco&sp=rwlc&se=2099-01-01&\
                      sig=SLC5eslO8fVcZmbxJT7wml3nyg9SQkWxuqAu3j2IPEU%3D";

#[test]
#[ignore = "interop"]
fn titles_of_azure_are_the_same() {
    let cache = tempfile::tempdir().unwrap();
    let program = "azurite/node_modules/.bin/azurite-blob";
    let (_server, address) = start(program, "azurite.sh", |port| {
        let port = port.to_string();
        // The version of the protocol may be newer than Azurite.
        let options =
            ["--skipApiVersionCheck", "--inMemoryPersistence", "--disableTelemetry", "--silent"];
        options.into_iter().chain(["--blobPort", &port]).map(str::to_owned).collect()
    });
    let account = format!("http://{address}/devstoreaccount1");
    put(&format!("{account}/films?restype=container&{SHARED}"), None, &[]);
    for name in TITLES {
        let url = format!("{account}/films/vod/{name}?{SHARED}");
        put(&url, Some(name), &["-H", "x-ms-blob-type: BlockBlob"]);
    }
    let server = format!("http://{address}");
    let environment =
        [("AZURE_STORAGE_USE_EMULATOR", "true"), ("AZURITE_BLOB_STORAGE_URL", server.as_str())];
    has_the_titles(&origin_of("az://films/vod", cache.path(), "", &environment));
}
