//! Files that change while they are sent. A response has one version of the file, or is visibly cut
//! short.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

use testkit::{eventually, noise};

use crate::support::{LIMIT, Origin, settled};

/// More bytes than the kernel holds for a viewer that does not read.
const SIZE: usize = 24 << 20;

enum Outcome {
    /// All announced bytes, of the old version.
    Whole,
    /// Fewer bytes than announced. The log has these words.
    Short(&'static str),
}

/// Asks for a file, changes it after a part of it was read, and reads the rest. With `through_page`
/// the connection asked for another page first and was handed over.
fn change(through_page: bool, change: fn(&Path), outcome: &Outcome) {
    let origin = Origin::start();
    let bytes = noise(7, SIZE);
    let path = origin.put("film.mp4", &bytes);
    let mut client = origin.client();
    let first = if through_page { "/healthz" } else { "/vod/none" };
    client.get(first, &[]);
    let descriptors = origin.descriptors_at_rest();
    client.send("GET", "/vod/film.mp4", &[], b"").unwrap();
    let (head, mut body) = client.begin().unwrap();
    assert_eq!(head.header("Content-Length"), Some(SIZE.to_string().as_str()));
    let mut got = vec![0; 100_000];
    body.read_exact(&mut got).unwrap();
    change(&path);
    let end = body.read_to_end(&mut got);
    match outcome {
        Outcome::Whole => {
            end.unwrap();
            assert!(got == bytes, "{} bytes", got.len());
            // The connection goes on with the present version.
            let now = client.get("/vod/film.mp4", &[]);
            match fs::read(&path) {
                Ok(bytes) => assert!(now.body == bytes),
                Err(_) => assert_eq!(now.status(), 404),
            }
            eventually(LIMIT, "no file is left open", || origin.descriptors() <= descriptors);
        }
        Outcome::Short(words) => {
            let kind = end.expect_err("cut short").kind();
            let cut = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
            assert!(cut.contains(&kind), "{kind}");
            assert!(got.len() < SIZE);
            let line = origin.server.log_line(LIMIT, |line| line.contains("closed short"));
            assert!(line.contains(words) && line.contains("film.mp4"), "{line}");
            let lines = origin.server.whole_log().matches("closed short").count();
            assert_eq!(lines, 1, "{}", origin.server.log());
        }
    }
}

fn open(path: &Path) -> File {
    File::options().write(true).open(path).unwrap()
}

#[test]
fn grown() {
    for through_page in [false, true] {
        let append = |path: &Path| {
            let mut file = open(path);
            file.seek(SeekFrom::End(0)).unwrap();
            file.write_all(&[1; 1000]).unwrap();
        };
        change(through_page, append, &Outcome::Whole);
    }
}

#[test]
fn replaced() {
    for through_page in [false, true] {
        let replace = |path: &Path| {
            let new = path.with_extension("new");
            fs::write(&new, noise(8, SIZE)).unwrap();
            fs::rename(new, path).unwrap();
        };
        change(through_page, replace, &Outcome::Whole);
    }
}

#[test]
fn deleted() {
    for through_page in [false, true] {
        change(through_page, |path| fs::remove_file(path).unwrap(), &Outcome::Whole);
    }
}

#[test]
fn deleted_and_gone() {
    // A recorder may do this to free the disk at once.
    let truncate_and_delete = |path: &Path| {
        let file = open(path);
        fs::remove_file(path).unwrap();
        file.set_len(0).unwrap();
    };
    change(false, truncate_and_delete, &Outcome::Short("became shorter"));
}

#[test]
fn truncated() {
    for through_page in [false, true] {
        let truncate = |path: &Path| open(path).set_len(20 << 20).unwrap();
        change(through_page, truncate, &Outcome::Short("became shorter"));
    }
}

#[test]
fn rewritten_in_place() {
    for through_page in [false, true] {
        let rewrite = |path: &Path| open(path).write_all(&noise(9, SIZE)).unwrap();
        change(through_page, rewrite, &Outcome::Short("was written to"));
    }
}

/// The kernel does not hold most of a file of a few megabytes while nobody reads. So the server
/// checks the file before it sends the rest.
#[test]
fn changed_while_nothing_is_read() {
    const SIZE: usize = 3 << 20;
    let changes: [(fn(&Path), _); 2] = [
        (|path| open(path).write_all(&noise(18, SIZE)).unwrap(), "was written to"),
        (|path| open(path).set_len(2 << 20).unwrap(), "became shorter"),
    ];
    for (change, words) in changes {
        // The server must not close the connection because the viewer reads nothing.
        let origin = Origin::with("[http]\nsend_timeout = \"10m\"\n");
        let path = origin.put("a.bin", &noise(17, SIZE));
        let mut viewer = origin.reluctant();
        viewer.write_all(b"GET /vod/a.bin HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let taken = settled(|| origin.metric("headwater_http_file_sent_bytes_total"));
        assert!(taken < 3 << 19, "the kernel has {taken} bytes");
        change(&path);
        // No bytes of the other version follow, and no filler.
        let mut got = Vec::new();
        let error = viewer.read_to_end(&mut got).expect_err("cut short");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let line = origin.server.log_line(LIMIT, |line| line.contains("closed short"));
        assert!(line.contains(words), "{line}");
    }
}

/// As `dd conv=notrunc` does it: the same inode with other and more bytes. `cp` makes the file empty
/// first, and a server may notice that or the new bytes.
#[test]
fn rewritten_in_place_and_longer() {
    let rewrite = |path: &Path| {
        let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all(&noise(10, SIZE + 5000)).unwrap();
    };
    change(false, rewrite, &Outcome::Short("was written to"));
}

/// Each version has its own tag. A viewer that returns with an old tag learns that the file has
/// changed.
#[test]
fn tags_tell_versions_apart() {
    let origin = Origin::start();
    let path = origin.put("a.bin", &[1; 1000]);
    let mut client = origin.client();
    let mut tags = vec![];
    let changes: [fn(&Path); 4] = [
        |_| {},
        |path| open(path).write_all(b"x").unwrap(),
        |path| open(path).set_len(500).unwrap(),
        |path| {
            let new = path.with_extension("new");
            fs::write(&new, [1; 500]).unwrap();
            fs::rename(new, path).unwrap();
        },
    ];
    for change in changes {
        // Two changes in one tick of the kernel's clock would have the same date.
        std::thread::sleep(std::time::Duration::from_millis(20));
        change(&path);
        let answer = client.get("/vod/a.bin", &[]);
        let tag = answer.header("ETag").unwrap().to_owned();
        assert!(!tags.contains(&tag), "{tag} in {tags:?}");
        for old in &tags {
            let fields = [("Range", "bytes=0-9"), ("If-Range", old)];
            assert_eq!(client.get("/vod/a.bin", &fields).status(), 200);
            let fields = [("If-Match", old.as_str())];
            assert_eq!(client.get("/vod/a.bin", &fields).status(), 412);
        }
        tags.push(tag);
    }
}
