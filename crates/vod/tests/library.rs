//! Finding titles, keeping them, and dropping them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::{Arc, Barrier};
use std::thread;

use support::{bytes, folder, made, media};
use vod::{Error, Library, Piece, Root, gather};

const CLIP: &str = "mp4/short.mp4";

#[test]
fn a_title_is_made_once_and_shared() {
    let (root, library) = folder(64 << 20);
    fs::copy(media(CLIP), root.path().join("a.mp4")).unwrap();
    let first = library.title("a.mp4").unwrap();
    assert!(Arc::ptr_eq(&first, &library.title("a.mp4").unwrap()));
    assert_eq!(library.usage().0, 1);
    assert!(library.usage().1 >= first.memory());
    // Unrelated files appear and disappear.
    fs::write(root.path().join("b.txt"), "beside").unwrap();
    assert!(Arc::ptr_eq(&first, &library.title("a.mp4").unwrap()));
    // The same bytes under another name are another title.
    fs::hard_link(root.path().join("a.mp4"), root.path().join("c.mp4")).unwrap();
    assert_ne!(library.title("c.mp4").unwrap().version, first.version);
}

#[test]
fn a_replaced_file_is_another_title_and_the_old_one_still_reads() {
    let (root, library) = folder(64 << 20);
    let path = root.path().join("a.mp4");
    fs::copy(media(CLIP), &path).unwrap();
    let old = library.title("a.mp4").unwrap();
    let before = bytes(&old.tracks[0].segment(0).unwrap());
    let next = root.path().join("next");
    fs::copy(media("mp4/pictures-ntsc.mp4"), &next).unwrap();
    fs::rename(next, &path).unwrap();

    let new = library.title("a.mp4").unwrap();
    assert_ne!(old.version, new.version);
    assert_eq!((old.tracks.len(), new.tracks.len()), (2, 1));
    assert!(old.is_intact(), "its file has lost its name and nothing else");
    assert_eq!(bytes(&old.tracks[0].segment(0).unwrap()), before);
    assert_eq!(library.usage().0, 1);

    // The file was written into, so the open file has changed.
    fs::write(&path, b"not an MP4 at all").unwrap();
    assert!(!new.is_intact());
    assert!(matches!(library.title("a.mp4"), Err(Error::Unreadable { .. })));
    fs::remove_file(&path).unwrap();
    assert!(matches!(library.title("a.mp4"), Err(Error::NotFound)));
    assert_eq!(library.usage(), (0, 0));
}

#[test]
fn paths_that_lead_nowhere_or_out_are_not_found_and_take_no_memory() {
    let (root, library) = folder(64 << 20);
    let inside = root.path().join("inside");
    fs::create_dir(&inside).unwrap();
    fs::copy(media(CLIP), inside.join("a.mp4")).unwrap();
    symlink(media(CLIP), inside.join("out.mp4")).unwrap();
    symlink("../inside/a.mp4", inside.join("in.mp4")).unwrap();
    symlink("loop.mp4", inside.join("loop.mp4")).unwrap();
    fs::create_dir(root.path().join("empty")).unwrap();
    for path in [
        "",
        "/",
        "..",
        "nothing.mp4",
        "inside/nothing.mp4",
        "inside/../inside/a.mp4",
        "inside//a.mp4",
        "./inside/a.mp4",
        "/inside/a.mp4",
        "inside/a.mp4/",
        "inside/a.mp4/index.m3u8",
        "inside/a.mp4\0",
        "inside/out.mp4",
        "inside/loop.mp4",
        "empty",
    ] {
        assert!(matches!(library.title(path), Err(Error::NotFound)), "{path:?}");
    }
    let long = "a/".repeat(5_000) + "b";
    assert!(matches!(library.title(&long), Err(Error::NotFound)));
    assert_eq!(library.usage(), (0, 0));
    assert!(library.title("inside/in.mp4").is_ok());
    let nowhere = Library::new(Root::new(root.path().join("missing")), vod::Settings::default());
    assert!(matches!(nowhere.title("a.mp4"), Err(Error::NotFound)));
}

#[test]
fn unreadable_files_are_remembered() {
    let (root, library) = folder(64 << 20);
    let whole = fs::read(media("mp4/film.mp4")).unwrap();
    fs::write(root.path().join("cut.mp4"), &whole[..whole.len() / 2]).unwrap();
    for _ in 0..3 {
        let error = library.title("cut.mp4").unwrap_err();
        let Error::Unreadable { what, reason: media::Error::CutOff { .. } } = &error else {
            panic!("{error}");
        };
        assert_eq!(what, "cut.mp4");
        assert!(error.to_string().contains("is cut off"), "{error}");
    }
    assert_eq!(library.usage().0, 1);
    fs::write(root.path().join("cut.mp4"), &whole).unwrap();
    assert!(library.title("cut.mp4").is_ok());
}

#[test]
fn full_folders_are_no_titles_and_their_files_are() {
    let (root, library) = folder(64 << 20);
    let many = root.path().join("many");
    fs::create_dir(&many).unwrap();
    fs::copy(media(CLIP), many.join("0.mp4")).unwrap();
    for n in 1..17 {
        fs::hard_link(many.join("0.mp4"), many.join(format!("{n}.mp4"))).unwrap();
    }
    for _ in 0..2 {
        let error = library.title("many").unwrap_err();
        assert!(error.to_string().contains("files of one title"), "{error}");
    }
    assert_eq!(library.usage().0, 1, "it is remembered");
    // With one file fewer it is a title.
    fs::remove_file(many.join("16.mp4")).unwrap();
    assert_eq!(library.title("many").unwrap().tracks.len(), 17);

    // Above the limit of listed entries, the movie has no subtitles.
    fs::write(many.join("0.en.vtt"), "WEBVTT\n").unwrap();
    assert_eq!(library.title("many/0.mp4").unwrap().texts.len(), 1);
    for n in 0..100_000 {
        fs::hard_link(many.join("0.en.vtt"), many.join(format!("x{n}.vtt")))
            .or_else(|_| {
                // A file may have only so many names.
                fs::File::create(many.join(format!("x{n}.vtt"))).map(drop)
            })
            .unwrap();
    }
    assert_eq!(library.title("many/0.mp4").unwrap().texts.len(), 0);
    let error = library.title("many").unwrap_err();
    assert!(error.to_string().contains("entries of a title's folder"), "{error}");
}

#[test]
fn memory_is_bounded_and_the_one_unused_for_longest_goes() {
    let (root, library) = folder(64 << 20);
    fs::copy(media(CLIP), root.path().join("a.mp4")).unwrap();
    library.title("a.mp4").unwrap();
    let each = library.usage().1;

    let (root, library) = folder(each * 4 + each / 2);
    let names: Vec<String> = (0..9).map(|n| format!("{n}.mp4")).collect();
    for name in &names {
        fs::copy(media(CLIP), root.path().join(name)).unwrap();
    }
    let first = library.title("0.mp4").unwrap();
    for name in &names[1..] {
        library.title(name).unwrap();
        // The first title is requested repeatedly, so it stays.
        assert!(Arc::ptr_eq(&first, &library.title("0.mp4").unwrap()), "{name}");
        let (titles, memory) = library.usage();
        assert!(titles <= 4 && memory <= each * 5, "{titles} titles, {memory} bytes");
    }
    assert_eq!(library.usage().0, 4);

    // A title that is larger than the limit is kept alone.
    let (root, library) = folder(1);
    for name in &names[..2] {
        fs::copy(media(CLIP), root.path().join(name)).unwrap();
        let title = library.title(name).unwrap();
        assert!(Arc::ptr_eq(&title, &library.title(name).unwrap()));
        assert_eq!(library.usage().0, 1);
    }
}

#[test]
fn one_thread_makes_a_title_and_the_others_wait_for_it() {
    let (root, library) = folder(64 << 20);
    for name in ["a.mp4", "b.mp4"] {
        fs::copy(media("mp4/two-minutes.mp4"), root.path().join(name)).unwrap();
    }
    let start = Barrier::new(16);
    let titles: Vec<_> = thread::scope(|scope| {
        let ask = |n: usize| {
            let (start, library) = (&start, &library);
            scope.spawn(move || {
                start.wait();
                (n % 2, library.title(["a.mp4", "b.mp4"][n % 2]).unwrap())
            })
        };
        let asked: Vec<_> = (0..16).map(ask).collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // If two threads had made the same title, there would be two.
    for (which, title) in &titles {
        let same = titles.iter().find(|(other, _)| other == which).unwrap();
        assert!(Arc::ptr_eq(title, &same.1));
    }
    assert_eq!(library.usage().0, 2);
}

#[test]
fn the_root_opens_files_and_nothing_else() {
    let root = made().library().root().clone();
    let (_, metadata) = root.open(CLIP).unwrap();
    assert_eq!(metadata.len, fs::metadata(media(CLIP)).unwrap().len());
    assert_eq!(root.open("mp4").unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert!(root.open("../../Cargo.toml").is_err());
}

#[test]
fn gathered_pieces_are_the_same_bytes() {
    let title = made().title("mp4/film.mp4");
    for track in &title.tracks {
        let pieces = track.segment(1).unwrap();
        let length: u64 = pieces.iter().map(Piece::len).sum();
        assert_eq!(Some(length), track.segments().nth(1).map(|segment| segment.bytes));
        for small in [0, 1_000, 20_000, u64::MAX] {
            let gathered = gather(pieces.clone(), small).unwrap();
            assert_eq!(bytes(&gathered), bytes(&pieces), "{} {small}", track.name);
            assert!(gathered.len() <= pieces.len());
            let files = gathered.iter().filter(|piece| matches!(piece, Piece::File { .. }));
            assert!(files.clone().all(|piece| piece.len() >= small));
            assert!(small < u64::MAX || gathered.len() == 1);
        }
    }
}

#[test]
fn rendered_texts_are_kept_with_the_title() {
    let title = made().title(CLIP);
    assert!(!title.is_rendered("index"));
    let first = title.rendered("index", || title.rendered("within", || "one".into()).bytes);
    assert!(title.is_rendered("index") && title.is_rendered("within"));
    let again = title.rendered("index", || unreachable!("it is kept"));
    assert_eq!(first, again);
    assert_ne!(first.hash, title.rendered("other", || "two".into()).hash);
    // Unexpected names do not fill the memory.
    for n in 0..1_000 {
        title.rendered(&n.to_string(), || "three".into());
    }
    assert_eq!(title.rendered("999", || "four".into()).bytes, "four");
}
