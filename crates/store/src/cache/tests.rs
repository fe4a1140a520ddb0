use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::files::{DATA, INDEX, NEW};
use super::*;
use crate::blocks::{BLOCK, Need};
use crate::meta::hash;

fn settings(folder: &Path, blocks: u64) -> Settings {
    Settings {
        url: "s3://films".to_owned(),
        endpoint: String::new(),
        allow_http: false,
        cache: folder.to_owned(),
        cache_size: blocks * BLOCK,
        revalidate: Duration::from_secs(5),
        timeout: Duration::from_secs(5),
        requests: 1,
        read_ahead: 0,
    }
}

fn cache(folder: &Path, blocks: u64) -> Cache {
    Cache::open(&settings(folder, blocks), Arc::default()).unwrap()
}

fn meta(etag: &str, blocks: u64) -> Meta {
    Meta::new(blocks * BLOCK, Some(etag), 0)
}

/// Does what a fetch does. The block is last used at this time.
fn fill(cache: &Cache, object: &Object, number: u32, now: u64) {
    let bytes = vec![7; BLOCK as usize];
    cache.take(BLOCK);
    let file = cache.file(object).unwrap();
    cache.write(&file, &bytes, number).unwrap();
    object.blocks().came(number, Some(hash(&[&bytes])), now);
    object.is_changed.store(true, Ordering::Relaxed);
}

fn here(object: &Object) -> Vec<u32> {
    object.blocks().kept().map(|(number, ..)| number).collect()
}

fn on_disk(folder: &Path, ending: &str) -> Vec<u64> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let files = files.filter(|file| file.path().extension().is_some_and(|e| e == ending));
    files.map(|file| file.metadata().unwrap().blocks() * 512).collect()
}

#[test]
fn the_blocks_that_were_unused_for_longest_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 10);
    let (a, b) = (cache.object("a", &meta("1", 8)), cache.object("b", &meta("1", 8)));
    for number in 0..5 {
        fill(&cache, &a, number, 10 + u64::from(number));
        fill(&cache, &b, number, 20 + u64::from(number));
    }
    assert_eq!((cache.used(), cache.counts.evictions.now()), (10 * BLOCK, 0));
    // A block that somebody reads stays, however old it is.
    a.blocks().pin(0..1, 0);
    a.blocks().pin(3..4, 30);
    a.blocks().unpin(3..4);
    fill(&cache, &b, 5, 40);
    assert_eq!((here(&a), here(&b)), (vec![0, 3, 4], vec![0, 1, 2, 3, 4, 5]));
    assert_eq!(cache.used(), 9 * BLOCK);
    let disk: u64 = on_disk(folder.path(), DATA).iter().sum();
    assert!((9 * BLOCK..=9 * BLOCK + (64 << 10)).contains(&disk), "{disk}");
    // The blocks of a version that was replaced go first.
    let new = cache.object("b", &meta("2", 8));
    assert!(b.is_old.load(Ordering::Relaxed) && !new.is_old.load(Ordering::Relaxed));
    fill(&cache, &new, 0, 1);
    fill(&cache, &new, 1, 1);
    assert_eq!((here(&a), here(&b), here(&new)), (vec![0, 3, 4], vec![2, 3, 4, 5], vec![0, 1]));
    assert_eq!(cache.newest("b"), Some(meta("2", 8)));
}

#[test]
fn a_block_that_comes_with_an_answer_is_kept_unless_it_is_here_or_comes() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 10);
    let (bytes, version) = (vec![3; BLOCK as usize], meta("1", 4));
    let adopt = |number| cache.adopt("a", &version, number, &bytes);
    for _ in 0..2 {
        adopt(1);
        let object = cache.object("a", &version);
        assert_eq!((here(&object), cache.used()), (vec![1], BLOCK));
        assert_eq!(object.blocks().kept().next().unwrap().1, hash(&[&bytes]));
    }
    let object = cache.object("a", &version);
    let (_give, coming) = watch::channel(None);
    object.blocks().comes(2, coming);
    adopt(2);
    assert!(matches!(object.blocks().need(2), Need::Wait(_)));
    assert_eq!(
        (cache.used(), [0, 1, 2].map(|at| cache.has("a", at))),
        (BLOCK, [false, true, true])
    );
    // Blocks of a version that was replaced are no longer those at the path.
    cache.adopt("a", &meta("2", 4), 0, &bytes);
    assert_eq!([0, 1, 2].map(|at| cache.has("a", at)), [true, false, false]);
}

#[test]
fn an_object_without_blocks_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 2);
    let a = cache.object("a/a", &meta("1", 1));
    fill(&cache, &a, 0, 1);
    cache.flush();
    assert_eq!(cache.below("a", "", 9), [("a".to_owned(), Some(meta("1", 1)))]);
    let b = cache.object("b", &meta("1", 3));
    (0..3).for_each(|number| fill(&cache, &b, number, 2));
    assert!(a.is_gone.load(Ordering::Relaxed));
    assert_eq!((cache.newest("a/a"), cache.below("a", "", 9)), (None, vec![]));
    assert_eq!((on_disk(folder.path(), DATA).len(), on_disk(folder.path(), INDEX).len()), (1, 0));
}

#[test]
fn a_cache_outlives_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let before = cache(folder.path(), 10);
    let (a, b) = (before.object("a", &meta("1", 4)), before.object("x/b.mp4", &meta("1", 4)));
    fill(&before, &a, 1, 5);
    fill(&before, &b, 0, 6);
    fill(&before, &b, 3, 7);
    before.flush();
    // After the last index was written, as if the process had been killed.
    fill(&before, &b, 2, 8);
    let other = Cache::open(&settings(folder.path(), 10), Arc::default());
    assert!(matches!(other, Err(Error::InUse(_))));
    drop(before);
    let stray = folder.path().join(format!("{}.data", "0a".repeat(16)));
    fs::write(&stray, "x").unwrap();
    // These are not the cache's.
    let foreign = ["notes.data", "notes.new", "a.b.index"].map(|name| folder.path().join(name));
    foreign.iter().for_each(|file| fs::write(file, "").unwrap());

    let after = cache(folder.path(), 10);
    assert_eq!(after.used(), 3 * BLOCK);
    assert!(!stray.exists() && foreign.iter().all(|file| file.exists()));
    foreign.iter().for_each(|file| fs::remove_file(file).unwrap());
    assert_eq!(on_disk(folder.path(), DATA).iter().sum::<u64>(), 3 * BLOCK);
    assert_eq!(after.newest("a"), Some(meta("1", 4)));
    let b = after.object("x/b.mp4", &meta("1", 4));
    assert_eq!(
        b.blocks().kept().map(|(n, _, used)| (n, used)).collect::<Vec<_>>(),
        [(0, 6), (3, 7)]
    );
    assert!(matches!(b.blocks().need(0), Need::Fetch(Some(_))), "it is compared first");
    assert_eq!(after.below("x", "b.", 9).len(), 1);
    assert_eq!(after.below("", "", 9).len(), 2);
    drop((after, b));
    // Another root has no use for it.
    let other = Settings { url: "s3://other".to_owned(), ..settings(folder.path(), 10) };
    let other = Cache::open(&other, Arc::default()).unwrap();
    assert_eq!((other.used(), on_disk(folder.path(), DATA).len()), (0, 0));
}

#[test]
fn a_smaller_cache_drops_what_it_has_no_room_for() {
    let folder = tempfile::tempdir().unwrap();
    let before = cache(folder.path(), 10);
    let a = before.object("a", &meta("1", 9));
    (0..9).for_each(|number| fill(&before, &a, number, u64::from(number)));
    before.flush();
    drop(before);
    let after = cache(folder.path(), 4);
    assert!(after.used() <= 4 * BLOCK);
    assert_eq!(here(&after.object("a", &meta("1", 9))).last(), Some(&8));
}

#[test]
fn a_slow_viewer_gets_the_end_of_an_object_that_was_evicted() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 4);
    let a = cache.object("a", &Meta::new(BLOCK + 5000, Some("1"), 0));
    let file = cache.file(&a).unwrap();
    cache.take(5000);
    cache.write(&file, &[7; 5000], 1).unwrap();
    a.blocks().came(1, Some(1), 1);
    let (near, mut far) = UnixStream::pair().unwrap();
    let mut from = BLOCK;
    assert_eq!(rustix::fs::sendfile(&near, &file, Some(&mut from), 5000), Ok(5000));
    cache.evict(&a, 1);
    assert_eq!((here(&a), cache.used()), (vec![], 0));
    let mut sent = [0; 5000];
    far.read_exact(&mut sent).unwrap();
    assert!(sent == [7; 5000], "the bytes changed on their way");
}

#[test]
fn a_copy_that_was_lost_has_no_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 8);
    let [a, b, c] = ["a", "b", "c"].map(|path| cache.object(path, &meta("1", 2)));
    for object in [&a, &b, &c] {
        fill(&cache, object, 0, 1);
    }
    let file = |object: &Object| cache.path(&object.name, DATA);
    fs::remove_file(file(&a)).unwrap();
    File::options().write(true).open(file(&b)).unwrap().set_len(5).unwrap();
    fs::remove_file(file(&c)).unwrap();
    for object in [&a, &b] {
        assert_eq!(cache.file(object).unwrap().metadata().unwrap().len(), 2 * BLOCK);
    }
    // The room of a lost block comes back also where nobody opens the object again.
    cache.evict(&c, 0);
    assert!([&a, &b, &c].iter().all(|object| here(object).is_empty()));
    assert_eq!(cache.used(), 0);
}

#[test]
fn an_object_that_was_deleted_does_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 8);
    let (a, b) = (cache.object("x/a", &meta("1", 1)), cache.object("x/b", &meta("1", 1)));
    cache.deleted("x/a");
    // A version that was replaced, and of whose successor nothing is known.
    b.is_old.store(true, Ordering::Relaxed);
    assert_eq!((cache.newest("x/a"), cache.newest("x/b")), (None, None));
    assert_eq!(cache.below("x", "", 9), []);
    cache.object("x/a", &a.meta);
    assert_eq!(cache.newest("x/a"), Some(meta("1", 1)));
}

#[test]
fn an_index_that_was_not_written_is_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 8);
    let a = cache.object("a", &meta("1", 1));
    fill(&cache, &a, 0, 1);
    let new = cache.path(&a.name, NEW);
    fs::create_dir(&new).unwrap();
    cache.flush();
    assert!(on_disk(folder.path(), INDEX).is_empty());
    fs::remove_dir(&new).unwrap();
    cache.flush();
    assert_eq!(on_disk(folder.path(), INDEX).len(), 1);
}

#[test]
fn a_block_that_is_wanted_while_it_leaves_is_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 10);
    let a = cache.object("a", &meta("1", 3));
    fill(&cache, &a, 0, 1);
    fill(&cache, &a, 1, 2);
    let (leaves, gone) = watch::channel(());
    assert!(a.blocks().leave(0, gone));
    // The lock is free, and the other block can be read.
    assert!(a.blocks().are_here(1..2) && !a.blocks().are_here(0..1));
    let Need::FetchAfter(gone) = a.blocks().need(0) else { panic!("it leaves") };
    assert!(gone.has_changed().is_ok());
    cache.forget(&a);
    assert!(!a.is_gone.load(Ordering::Relaxed), "it is not empty");
    assert!(!a.blocks().left(0, true));
    drop(leaves);
    assert!(gone.has_changed().is_err(), "who waits goes on");
    assert!(matches!(a.blocks().need(0), Need::Fetch(None)));
}

#[test]
fn nobody_waits_for_the_files_of_an_object_that_is_opened_or_removed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(folder.path(), 10);
    let version = meta("1", 3);
    let a = cache.object("a", &version);
    let (began, begins) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // As long as somebody opens it, the thread that removes it waits.
        let open = a.opened();
        scope.spawn(|| {
            began.send(()).unwrap();
            cache.forget(&a);
        });
        begins.recv().unwrap();
        for _ in 0..1000 {
            assert!(cache.opened("a", &version).is_none());
            assert_eq!(cache.newest("a"), Some(version.clone()));
            cache.object("b", &version);
            std::thread::yield_now();
        }
        drop(open);
    });
    assert!(a.is_gone.load(Ordering::Relaxed));
    assert_eq!(cache.newest("a"), None);
    assert!(!Arc::ptr_eq(&a, &cache.object("a", &version)));
}
