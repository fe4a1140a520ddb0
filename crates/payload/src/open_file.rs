//! Open files: local ones, and local copies of objects that are fetched block by block.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bytes::Bytes;

use crate::FileVersion;

/// A file that is open for reading. Not all of its bytes need be on this machine.
///
/// All bytes of a local file are here. Of a [`Copied`] file, a range may only be read while a
/// [`Hold`] of it lives.
#[derive(Debug)]
pub enum OpenFile {
    /// A file of this machine.
    Local(File),
    /// The local copy of an object.
    Copied(Box<dyn Copied>),
}

/// One version of an object, and the local file that has some of its bytes.
pub trait Copied: Debug + Send + Sync {
    /// The local file. It is as long as the object, and has holes where bytes are missing.
    fn local(&self) -> &File;

    /// The version of the object.
    fn version(&self) -> FileVersion;

    /// Holds a range if all its bytes are in the local file. Does not block.
    fn hold(&self, range: &Range<u64>) -> Option<Hold>;

    /// Begins to fetch what is missing of a range, and holds the range. The future may be dropped.
    fn fetch(&self, range: &Range<u64>) -> Answer<Hold>;

    /// Begins to fetch some bytes from this offset on, because a viewer will need them soon. Does
    /// not block.
    fn read_ahead(&self, from: u64);
}

/// As long as it lives, a range of a file keeps its bytes.
#[derive(Debug, Default)]
pub struct Hold {
    _bytes: Option<Box<dyn Any + Send + Sync>>,
}

impl Hold {
    /// A hold that ends when `bytes` is dropped.
    pub fn new(bytes: impl Any + Send + Sync) -> Self {
        Self { _bytes: Some(Box::new(bytes)) }
    }
}

/// What is asked of another machine.
pub type Answer<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

impl From<File> for OpenFile {
    fn from(file: File) -> Self {
        Self::Local(file)
    }
}

impl OpenFile {
    /// The file on this machine. Of a copied file, it has only what is held.
    pub fn local(&self) -> &File {
        match self {
            Self::Local(file) => file,
            Self::Copied(copied) => copied.local(),
        }
    }

    /// Whether bytes may have to be fetched from another machine.
    pub fn is_copied(&self) -> bool {
        matches!(self, Self::Copied(_))
    }

    /// The current version of the content.
    ///
    /// # Errors
    /// The system does not report the metadata.
    pub fn version(&self) -> io::Result<FileVersion> {
        match self {
            Self::Local(file) => FileVersion::now(file),
            Self::Copied(copied) => Ok(copied.version()),
        }
    }

    /// Holds a range if all its bytes are on this machine. Does not block.
    pub fn hold(&self, range: &Range<u64>) -> Option<Hold> {
        match self {
            Self::Local(_) => Some(Hold::default()),
            Self::Copied(copied) => copied.hold(range),
        }
    }

    /// Begins to fetch what is missing of a range, and holds the range.
    ///
    /// # Errors
    /// The other machine does not answer in time, or no longer has this version.
    pub fn fetch(&self, range: &Range<u64>) -> Answer<Hold> {
        match self {
            Self::Local(_) => Box::pin(std::future::ready(Ok(Hold::default()))),
            Self::Copied(copied) => copied.fetch(range),
        }
    }

    /// Says that a viewer reads on from this offset.
    pub fn read_ahead(&self, from: u64) {
        if let Self::Copied(copied) = self {
            copied.read_ahead(from);
        }
    }

    /// Reads exactly `len` bytes. Blocks, and fetches them if necessary.
    ///
    /// # Errors
    /// The file cannot be read, or is shorter, or the bytes cannot be fetched.
    pub fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let end = offset.checked_add(len as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        let range = offset..end;
        let _hold = match self.hold(&range) {
            Some(hold) => hold,
            None => wait(self.fetch(&range))?,
        };
        let mut bytes = vec![0; len];
        self.local().read_exact_at(&mut bytes, offset)?;
        Ok(bytes.into())
    }
}

/// How many bytes [`fetch_all`] fetches at the same time: a cache can remove none of them meanwhile.
const AT_ONCE: u64 = 32 << 20;
/// What a range may need besides its bytes, because files are fetched in blocks.
const BESIDE: u64 = 2 << 20;

/// Fetches what is missing of some ranges, many at the same time, and blocks for each of them in turn.
pub fn fetch_all<'a>(
    ranges: impl IntoIterator<Item = (&'a OpenFile, Range<u64>)>,
) -> impl Iterator<Item = io::Result<Hold>> {
    let begin = |(file, range): (&OpenFile, Range<u64>)| match file.hold(&range) {
        Some(hold) => Box::pin(std::future::ready(Ok(hold))),
        None => file.fetch(&range),
    };
    let needs = |range: &Range<u64>| (range.end.saturating_sub(range.start)).saturating_add(BESIDE);
    let (mut ranges, mut begun) = (ranges.into_iter().peekable(), VecDeque::new());
    let mut bytes: u64 = 0;
    std::iter::from_fn(move || {
        // A range that is longer than this is fetched alone.
        while let Some((file, range)) =
            ranges.next_if(|(_, range)| bytes == 0 || bytes.saturating_add(needs(range)) <= AT_ONCE)
        {
            bytes += needs(&range);
            begun.push_back((needs(&range), begin((file, range))));
        }
        let (of, answer) = begun.pop_front()?;
        bytes -= of;
        Some(wait(answer))
    })
}

/// Blocks the thread until a future is ready.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut future, mut cx) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A file that counts the bytes that were asked for.
    #[derive(Debug)]
    struct Counted(File, Arc<AtomicU64>);

    impl Copied for Counted {
        fn local(&self) -> &File {
            &self.0
        }
        fn version(&self) -> FileVersion {
            FileVersion::now(&self.0).unwrap()
        }
        fn hold(&self, _: &Range<u64>) -> Option<Hold> {
            None
        }
        fn fetch(&self, range: &Range<u64>) -> Answer<Hold> {
            self.1.fetch_add(range.end - range.start, Ordering::Relaxed);
            Box::pin(std::future::ready(Ok(Hold::default())))
        }
        fn read_ahead(&self, _: u64) {}
    }

    #[test]
    fn ranges_are_fetched_together_up_to_a_bound() {
        const LEN: u64 = 10 << 20;
        let asked = Arc::new(AtomicU64::new(0));
        let file = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        let file = OpenFile::Copied(Box::new(Counted(file, Arc::clone(&asked))));
        let mut came = 0;
        for hold in fetch_all((0..20).map(|number| (&file, number * LEN..(number + 1) * LEN))) {
            hold.unwrap();
            let under_way = asked.load(Ordering::Relaxed) - came;
            assert!((1..=AT_ONCE).contains(&under_way), "{under_way}");
            assert!(under_way > LEN || came == 19 * LEN, "one at a time");
            came += LEN;
        }
        assert_eq!((came, asked.load(Ordering::Relaxed)), (20 * LEN, 20 * LEN));
    }
}
