//! Programs of peers: where they are, and which versions a peer's file is for.

use std::fs;
use std::path::PathBuf;

use streamgauge::lab::binaries::{Binaries, PeerBin};
use streamgauge::lab::folders::Folders;
use streamgauge::lab::peer::Peer;
use streamgauge::lab::process::Server;
use streamgauge::lab::version::version;

use crate::Scene;

/// No machine has a program of this name.
const NAME: &str = "streamgauge-no-such-server";

impl Scene {
    /// A peer with a program of that name, for versions from 1.9 on and below 2.
    fn rival(&self) -> Peer {
        let text = format!(
            "title = \"Mine\"\nabout = \"A script.\"\n[install]\nhint = \"buy it.\"\n[version]\n\
             command = [\"{{bin.{NAME}}}\", \"--version\"]\nat_least = \"1.9\"\nbelow = \"2\"\n\
             [start]\ncommand = [\"{{bin.{NAME}}}\"]\nready.line = \"ready\"\n[serves]\n"
        );
        self.peer(&text).unwrap()
    }

    /// A program that prints this.
    fn program(&self, says: &str) -> PathBuf {
        let path = self.path("program");
        let script = format!(
            "#!/bin/sh\necho '{says}'\n[ \"$1\" = --version ] && exit\necho ready\nexec sleep 600\n"
        );
        testkit::write_program(&path, &script);
        path
    }
}

fn folders(given: &[PeerBin], peer: &Peer) -> anyhow::Result<Folders> {
    Ok(Folders { binaries: Binaries::new(given, [peer])?, ..Folders::find()? })
}

fn at(path: PathBuf) -> PeerBin {
    PeerBin { name: NAME.to_owned(), path }
}

#[test]
fn a_program_that_is_nowhere_is_named_with_how_to_get_it() {
    let peer = Scene::new().rival();
    let error = version(&peer, &folders(&[], &peer).unwrap()).expect_err("nowhere").to_string();
    let expected = format!(
        "there is no program {NAME} on PATH, and no --peer-bin {NAME}=PATH says where it is. How to \
         get it: buy it."
    );
    assert_eq!(error, expected);
}

#[test]
fn only_versions_that_the_file_is_for_are_taken() {
    let scene = Scene::new();
    let peer = scene.rival();
    let ask = |says: &str| {
        let folders = folders(&[at(scene.program(says))], &peer).unwrap();
        version(&peer, &folders).map(|it| it.version).map_err(|error| error.to_string())
    };
    for good in ["Mine v1.9", "mine 1.20.1-6-g3e09466c", "1.9.0"] {
        assert_eq!(ask(good).unwrap(), good);
    }
    for bad in ["Mine v1.8.9", "mine/2.0", "mine 10.1"] {
        let expected = format!(
            "the program is {bad:?}, but the peer's file is for versions from 1.9 on and below 2. \
             How to get it: buy it."
        );
        assert_eq!(ask(bad).expect_err(bad), expected);
    }
    let error = ask("a fine server").expect_err("no number");
    assert!(error.starts_with("no version in \"a fine server\""), "{error}");
}

#[test]
fn a_program_is_started_from_where_it_is_said_to_be() {
    let scene = Scene::new();
    let peer = scene.rival();
    let path = scene.program("1.9");
    let mut place = scene.place();
    place.folders = folders(&[at(path.clone())], &peer).unwrap();
    let log = scene.path("server.log");
    let server = Server::start(&peer, &place, &log).unwrap();
    assert_eq!(server.command(), [path.to_str().unwrap()]);
}

#[test]
fn a_wrong_peer_bin_is_refused() {
    let scene = Scene::new();
    let peer = scene.rival();
    let path = scene.program("1.9");
    let refused = |given: &[PeerBin]| folders(given, &peer).expect_err("refused").to_string();
    let other = PeerBin { name: "other".to_owned(), path: path.clone() };
    let error = refused(&[other]);
    let expected = format!(": no peer here has a program of this name; their programs: {NAME}");
    assert!(error.starts_with("--peer-bin other=/") && error.ends_with(&expected), "{error}");
    let error = refused(&[at(scene.path("absent"))]);
    assert!(error.ends_with("/absent: there is no such program"), "{error}");
    // It is there, but no program.
    fs::write(scene.path("text"), "").unwrap();
    let error = refused(&[at(scene.path("text"))]);
    assert!(error.ends_with("/text: there is no such program"), "{error}");
    let error = refused(&[at(path.clone()), at(path)]);
    assert!(error.ends_with(&format!(": {NAME} is given twice")), "{error}");
    for text in ["", "mine", "=x", "mine=", "1=x", "a b=x"] {
        assert!(text.parse::<PeerBin>().is_err(), "{text}");
    }
    let read: PeerBin = "gst-launch-1.0=a=b".parse().unwrap();
    assert_eq!(read, PeerBin { name: "gst-launch-1.0".to_owned(), path: "a=b".into() });
}
