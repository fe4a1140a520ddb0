use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use payload::memory::{Account, Arena, Memory};

use super::*;
use crate::{FileVersion, OpenFile};

/// Takes a varying small number of bytes per call, and sometimes none.
#[derive(Default)]
struct Reluctant {
    taken: Vec<u8>,
    calls: usize,
    no_sendfile: bool,
    from_files: usize,
}

impl Reluctant {
    fn take(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.calls += 1;
        if self.calls.is_multiple_of(5) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let n = bytes.len().min(self.calls * 37 % 20_011 + 1);
        self.taken.extend_from_slice(&bytes[..n]);
        Poll::Ready(Ok(n))
    }
}

impl Socket for Reluctant {
    fn poll_send(
        &mut self,
        parts: &[IoSlice<'_>],
        _: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.take(&all, cx)
    }

    fn poll_sendfile(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.no_sendfile {
            return Poll::Ready(Err(Errno::INVAL.into()));
        }
        let mut bytes = vec![0; length];
        let read = rustix::io::pread(file, &mut bytes[..], offset).unwrap();
        let taken = self.take(&bytes[..read], cx);
        if let Poll::Ready(Ok(n)) = taken {
            self.from_files += n;
        }
        taken
    }
}

async fn send(outbox: &mut Outbox, socket: &mut Reluctant, tally: &Tally) -> Result<(), Fault> {
    while std::future::poll_fn(|cx| outbox.poll_write(socket, tally, cx)).await? > 0 {}
    Ok(())
}

fn file(size: usize) -> (Arc<OpenFile>, Vec<u8>) {
    let bytes: Vec<u8> = (0..size).map(|i| ((i * 7) ^ (i >> 8)) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    (Arc::new(file.into()), bytes)
}

/// A region of `size` bytes.
fn region(size: usize) -> Region {
    let memory = Memory::new(u64::MAX);
    let mut arena = Arena::new(&memory, Account::open(memory.budget())).unwrap();
    arena.store(&vec![7; size]).unwrap()
}

/// In whatever amounts and ways bytes are taken, the pushed bytes arrive.
#[tokio::test]
async fn in_order() {
    let (first, first_bytes) = file(300_000);
    let (second, second_bytes) = file(2_000_000);
    let region = region(70_000);
    for no_sendfile in [false, true] {
        let (mut outbox, mut expected) = (Outbox::default(), Vec::new());
        let mut push = |piece: Piece, bytes: &[u8]| {
            outbox.push_piece(piece).unwrap();
            expected.extend_from_slice(bytes);
        };
        for i in 0..200_usize {
            let part = vec![i as u8; i % 11];
            push(Bytes::from(part.clone()).into(), &part);
            // Short and long ranges, forwards and backwards, of both files.
            let (file, bytes) =
                if i % 3 == 0 { (&first, &first_bytes) } else { (&second, &second_bytes) };
            let from = i * 7919 * 13 % bytes.len();
            let to = bytes.len().min(from + [100, 0, 16_384, 16_385, 60_000][i % 5]);
            let range = from as u64..to as u64;
            push(Piece::File { file: Arc::clone(file), range, version: None }, &bytes[from..to]);
            let to = [0, 16_384, 16_385, 60_000][i % 4];
            push(region.slice(0..to).into(), &region.as_ref()[..to]);
        }
        assert_eq!(outbox.size(), expected.len() as u64);
        let mut socket = Reluctant { no_sendfile, ..Reluctant::default() };
        let tally = Tally::default();
        send(&mut outbox, &mut socket, &tally).await.unwrap();
        assert!(socket.taken == expected, "{} of {}", socket.taken.len(), expected.len());
        assert_eq!(outbox.size(), 0);
        assert!(outbox.has_files());
        outbox.release();
        assert!(!outbox.has_files());
        assert_eq!(no_sendfile, socket.from_files == 0);
        let counted = tally.file_bytes.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(counted, socket.from_files as u64);
    }
}

#[tokio::test]
async fn nothing_beyond_the_end() {
    let (file, bytes) = file(100_000);
    for range in [90_000..100_001, 0..200_000, 100_000..100_001] {
        let mut outbox = Outbox::default();
        outbox
            .push_piece(Piece::File {
                file: Arc::clone(&file),
                range: range.clone(),
                version: None,
            })
            .unwrap();
        let mut socket = Reluctant::default();
        let fault = send(&mut outbox, &mut socket, &Tally::default()).await;
        let Err(Fault::File(Broken { why: Why::Shorter, .. })) = fault else {
            panic!("{fault:?}");
        };
        let sent = &bytes[range.start as usize..][..socket.taken.len()];
        assert_eq!(socket.taken, sent);
    }
}

/// Streamed pieces wait outside the outbox, but are checked as well.
#[tokio::test]
async fn streamed_pieces_are_of_one_version() {
    let tally = Tally::default();
    // Sizes that are copied, and sent from the file.
    for size in [4096, 40_000] {
        for longer in [false, true] {
            let (file, bytes) = file(100_000);
            let past = std::time::SystemTime::now() - std::time::Duration::from_secs(10);
            file.local().set_modified(past).unwrap();
            let piece = |range| Piece::File { file: Arc::clone(&file), range, version: None };
            let (mut outbox, mut socket) = (Outbox::default(), Reluctant::default());
            for at in [0, size] {
                outbox.push_streamed(piece(at..at + size)).unwrap();
                send(&mut outbox, &mut socket, &tally).await.unwrap();
            }
            file.local().write_all_at(&[9; 10], 99_990).unwrap();
            if longer {
                // Other content with the same beginning.
                file.local().write_all_at(&vec![9; 100_000], size).unwrap();
            }
            let Err(broken) = outbox.push_streamed(piece(2 * size..100_000)) else {
                panic!("{size}, {longer}: sent on");
            };
            assert!(matches!(broken.why, Why::Rewritten), "{broken}");
            assert!(socket.taken == bytes[..2 * size as usize]);
        }
    }
}

/// Takes all bytes from memory, but none from files.
struct Eager(usize);

impl Socket for Eager {
    fn poll_send(
        &mut self,
        parts: &[IoSlice<'_>],
        _: bool,
        _: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let taken = parts.iter().map(|part| part.len()).sum();
        self.0 += taken;
        Poll::Ready(Ok(taken))
    }

    fn poll_sendfile(
        &mut self,
        _: BorrowedFd<'_>,
        _: u64,
        _: usize,
        _: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(Errno::OPNOTSUPP.into()))
    }
}

/// Only bytes of the announced version of a file are sent, even if all of them go out at once.
#[tokio::test]
async fn of_the_version_announced() {
    for (eager, rewritten) in [(false, false), (false, true), (true, false), (true, true)] {
        let (file, bytes) = file(30_000);
        let past = std::time::SystemTime::now() - std::time::Duration::from_secs(10);
        file.local().set_modified(past).unwrap();
        let version = Some(FileVersion::of(&file.local().metadata().unwrap()));
        if rewritten {
            file.local().write_all_at(&[9; 10], 0).unwrap();
        }
        let (mut outbox, tally) = (Outbox::default(), Tally::default());
        let range = 0..bytes.len() as u64;
        outbox.push_piece(Piece::File { file, range, version }).unwrap();
        let sent = match eager {
            true => loop {
                match outbox.poll_write(&mut Eager(0), &tally, &mut noop()) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(end) => break end.map(drop),
                    Poll::Pending => unreachable!("it takes everything"),
                }
            },
            false => send(&mut outbox, &mut Reluctant::default(), &tally).await,
        };
        match sent {
            Err(Fault::File(Broken { why: Why::Rewritten, .. })) => assert!(rewritten),
            other => assert!(other.is_ok() && !rewritten, "{other:?}"),
        }
    }
}

/// The same where nothing had to wait.
#[tokio::test]
async fn copies_are_of_one_version() {
    let tally = Tally::default();
    for rewritten in [false, true] {
        let (file, bytes) = file(100_000);
        let past = std::time::SystemTime::now() - std::time::Duration::from_secs(10);
        file.local().set_modified(past).unwrap();
        let (mut outbox, mut socket) = (Outbox::default(), Eager(0));
        let range = 0..bytes.len() as u64;
        outbox.push_piece(Piece::File { file: Arc::clone(&file), range, version: None }).unwrap();
        let mut write = || outbox.poll_write(&mut socket, &tally, &mut noop());
        assert!(matches!(write(), Poll::Ready(Ok(sent)) if sent as u64 == COPIES));
        if rewritten {
            file.local().write_all_at(&[9; 10], 99_990).unwrap();
        }
        match write() {
            Poll::Ready(Err(Fault::File(Broken { why: Why::Rewritten, .. }))) => {
                assert!(rewritten);
            }
            Poll::Ready(Ok(sent)) => assert!(!rewritten && sent as u64 == 100_000 - COPIES),
            other => panic!("{other:?}"),
        }
    }
}

/// Takes half of what it is offered, and never waits.
struct Half;

impl Socket for Half {
    fn poll_send(
        &mut self,
        parts: &[IoSlice<'_>],
        _: bool,
        _: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum::<usize>().div_ceil(2)))
    }

    fn poll_sendfile(
        &mut self,
        _: BorrowedFd<'_>,
        _: u64,
        length: usize,
        _: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(length.div_ceil(2)))
    }
}

/// Other connections have their turn after a send that was cut short. So time passes.
#[tokio::test]
async fn a_file_is_checked_after_a_send_that_was_cut_short() {
    for rewritten in [false, true] {
        let (file, _) = file(1_000_000);
        let past = std::time::SystemTime::now() - std::time::Duration::from_secs(10);
        file.local().set_modified(past).unwrap();
        let (mut outbox, tally) = (Outbox::default(), Tally::default());
        let piece = Piece::File { file: Arc::clone(&file), range: 0..1_000_000, version: None };
        outbox.push_piece(piece).unwrap();
        let mut write = || outbox.poll_write(&mut Half, &tally, &mut noop());
        assert!(matches!(write(), Poll::Ready(Ok(500_000))));
        if rewritten {
            file.local().write_all_at(&[9; 10], 999_990).unwrap();
        }
        match write() {
            Poll::Ready(Err(Fault::File(Broken { why: Why::Rewritten, .. }))) => {
                assert!(rewritten);
            }
            Poll::Ready(Ok(250_000)) => assert!(!rewritten && outbox.was_cut_short()),
            other => panic!("{other:?}"),
        }
    }
}

fn noop() -> Context<'static> {
    Context::from_waker(std::task::Waker::noop())
}

/// Short ranges keep no file open.
#[test]
fn short_ranges_are_copied() {
    let (file, _) = file(100_000);
    let mut outbox = Outbox::default();
    outbox
        .push_piece(Piece::File { file: Arc::clone(&file), range: 0..4096, version: None })
        .unwrap();
    assert!(!outbox.has_files() && Arc::strong_count(&file) == 1);
    outbox
        .push_piece(Piece::File { file: Arc::clone(&file), range: 0..40_000, version: None })
        .unwrap();
    assert!(outbox.has_files());
}
