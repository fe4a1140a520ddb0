//! Files of payloads. A response sends bytes of one version only, from the first to the last.
//!
//! The opened file is the one that is sent: if a file is replaced or deleted meanwhile, sending
//! continues from its descriptor. A write into the file is detected by its size and modification
//! time, which are queried whenever a response had to wait or a send was cut short. A file that has
//! grown, and still has the bytes that were sent first and last, is a recording in progress. It is
//! sent up to the announced length.
//!
//! Some changes cannot be detected. `sendfile` gives the kernel pages of the file, which it reads
//! when it sends them, and again when it retransmits them. After the kernel has taken the last
//! bytes of an answer, nothing checks the file any more. So up to 1 MiB of unsent bytes, and the
//! bytes on their way to the viewer, are sent as the file is then. When an answer is cut short,
//! the bytes on their way are not checked either. And two writes within one tick of the kernel's
//! clock (usually 4 ms) look like one. Replacing a file by renaming another to its name avoids all
//! of this. With TLS, bytes are copied first and checked after that.
//!
//! None of this concerns the copy of an object: its bytes never change. If the object does, bytes
//! that are not here yet cannot be had any more, and the answer is cut short.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use payload::{FileVersion, OpenFile};
use rustix::buffer::spare_capacity;

/// Bytes recorded of what was sent first, and of what was sent last.
const SAMPLE: usize = 64;

/// How often a file is checked again that was modified less than [`RECENT`] ago but has the same
/// length. A write changes the modification time before the length, so an append may have changed
/// only the time yet. On a busy machine the writer may have lost its processor in between. On a quiet
/// machine all looks take less than 2 ms.
const LOOKS: u32 = 500;
/// A file that was modified earlier is not being appended to, nor is a file that is dated later than
/// now: the response is closed without further looks. So many viewers of a file that was rewritten
/// hold up nobody else.
const RECENT: Duration = Duration::from_millis(50);

/// Whether the file was modified so recently that an append may not be complete.
fn is_recent(file: FileVersion, now: SystemTime) -> bool {
    let is_before = |time: Option<SystemTime>| time.is_some_and(|time| file.is_before(time));
    !is_before(now.checked_sub(RECENT)) && is_before(now.checked_add(RECENT))
}

/// A file of the response that is being sent.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: Arc<OpenFile>,
    version: Cell<FileVersion>,
    /// Whether this version was announced to the viewer, maybe some time ago.
    is_announced: bool,
    /// Samples of the first and of the last bytes that were sent.
    first: Cell<Option<Sample>>,
    last: Cell<Option<Sample>>,
    /// Whether more of the file may follow the bytes that are known now.
    pub(crate) goes_on: Cell<bool>,
    /// Whether its file system has no `sendfile`.
    pub(crate) copies: Cell<bool>,
}

/// A few bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    offset: u64,
    len: usize,
    bytes: [u8; SAMPLE],
}

impl Sample {
    /// A sample of `bytes`, which are at this offset.
    fn of(offset: u64, bytes: &[u8]) -> Self {
        let mut sample = Self { offset, len: bytes.len().min(SAMPLE), bytes: [0; SAMPLE] };
        sample.bytes[..sample.len].copy_from_slice(&bytes[..sample.len]);
        sample
    }

    /// The current bytes of the file.
    fn read(file: &OpenFile, range: &Range<u64>) -> Self {
        let len = range.end.saturating_sub(range.start).min(SAMPLE as u64) as usize;
        let mut sample = Self { offset: range.start, len, bytes: [0; SAMPLE] };
        sample.len = file.local().read_at(&mut sample.bytes[..len], range.start).unwrap_or(0);
        sample
    }

    fn is_in(&self, file: &OpenFile) -> bool {
        Self::read(file, &(self.offset..self.offset + self.len as u64)) == *self
    }
}

/// The last bytes of a range, at most a sample.
fn tail(range: &Range<u64>) -> Range<u64> {
    range.start.max(range.end.saturating_sub(SAMPLE as u64))..range.end
}

impl Source {
    fn new(file: Arc<OpenFile>, announced: Option<FileVersion>) -> Result<Self, Broken> {
        match announced.map_or_else(|| file.version(), Ok) {
            Ok(version) => Ok(Self {
                file,
                version: Cell::new(version),
                is_announced: announced.is_some(),
                first: Cell::default(),
                last: Cell::default(),
                goes_on: Cell::default(),
                copies: Cell::new(false),
            }),
            Err(error) => Err(Broken::new(&file, Why::Unreadable(error))),
        }
    }

    /// Length in bytes when the file was last checked.
    pub(crate) fn size(&self) -> u64 {
        self.version.get().size()
    }

    /// Records a sent range. Must be called for each one when more follows; the range is in the
    /// page cache then.
    pub(crate) fn remember(&self, range: &Range<u64>) {
        if self.first.get().is_none() {
            self.first.set(Some(Sample::read(&self.file, range)));
        }
        self.last.set(Some(Sample::read(&self.file, &tail(range))));
    }

    /// Like [`remember`](Self::remember), with the bytes that were copied.
    pub(crate) fn remember_copy(&self, offset: u64, bytes: &[u8]) {
        if self.first.get().is_none() {
            self.first.set(Some(Sample::of(offset, bytes)));
        }
        let range = tail(&(offset..offset + bytes.len() as u64));
        // The offset is within the bytes, whose length is a usize.
        self.last.set(Some(Sample::of(range.start, &bytes[(range.start - offset) as usize..])));
    }

    /// Whether the file must be checked when the last bytes of a range are sent, because there is
    /// something to compare with.
    pub(crate) fn is_of_a_version(&self) -> bool {
        self.is_announced || self.first.get().is_some()
    }

    /// Copies a range that is in memory.
    pub(crate) fn copy(&self, range: Range<u64>) -> Result<Bytes, Broken> {
        let bytes = self.bytes(&range)?;
        self.remember_copy(range.start, &bytes);
        Ok(bytes)
    }

    /// Like [`copy`](Self::copy), and checks that the version has not changed.
    pub(crate) fn copy_checked(&self, range: Range<u64>) -> Result<Bytes, Broken> {
        let bytes = self.bytes(&range)?;
        self.check()?;
        self.remember_copy(range.start, &bytes);
        Ok(bytes)
    }

    fn bytes(&self, range: &Range<u64>) -> Result<Bytes, Broken> {
        let length = range.end.saturating_sub(range.start) as usize;
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let at = range.start + bytes.len() as u64;
            // Zeroing the buffer first would cost a part of the copy.
            let read = rustix::io::pread(self.file.local(), spare_capacity(&mut bytes), at);
            match read {
                Ok(0) => return Err(self.unreadable(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.unreadable(error.into())),
            }
        }
        bytes.truncate(length);
        Ok(bytes.into())
    }

    fn unreadable(&self, error: io::Error) -> Broken {
        self.broken(match error.kind() {
            io::ErrorKind::UnexpectedEof => Why::Shorter,
            _ => Why::Unreadable(error),
        })
    }

    /// Checks that the unsent bytes still belong to the version with which sending began.
    pub(crate) fn check(&self) -> Result<(), Broken> {
        let then = self.version.get();
        let look = || {
            let now = self.file.version();
            now.map_err(|error| self.broken(Why::Unreadable(error)))
        };
        let mut now = look()?;
        for _ in 0..LOOKS {
            if now == then || now.size() != then.size() || !is_recent(now, SystemTime::now()) {
                break;
            }
            std::thread::yield_now();
            now = look()?;
        }
        if now == then {
            return Ok(());
        }
        if now.size() < then.size() {
            return Err(self.broken(Why::Shorter));
        }
        // If a file was modified but has the same length, nothing tells which bytes have changed.
        let mut samples = [&self.first, &self.last].into_iter().filter_map(Cell::get);
        let grown = now.size() > then.size() && samples.all(|sample| sample.is_in(&self.file));
        if !grown {
            return Err(self.broken(Why::Rewritten));
        }
        self.version.set(now);
        Ok(())
    }

    pub(crate) fn broken(&self, why: Why) -> Broken {
        Broken::new(&self.file, why)
    }
}

/// The files of one response. They are identified by their `Arc`.
#[derive(Debug, Default)]
pub(crate) struct Sources(Vec<Rc<Source>>);

impl Sources {
    /// Finds the file, or adds it with the announced version, or else with its current version.
    pub(crate) fn of(
        &mut self,
        file: &Arc<OpenFile>,
        announced: Option<FileVersion>,
    ) -> Result<Rc<Source>, Broken> {
        // A title has few renditions, so this list is short.
        if let Some(known) = self.0.iter().find(|known| Arc::ptr_eq(&known.file, file)) {
            return Ok(Rc::clone(known));
        }
        let source = Rc::new(Source::new(Arc::clone(file), announced)?);
        self.0.push(Rc::clone(&source));
        Ok(source)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets the files of a response that has been sent.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// A file that cannot be sent up to the announced length. The connection is closed early.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct Broken {
    /// The kernel's path of the file, which marks deleted ones.
    path: PathBuf,
    pub(crate) why: Why,
}

#[derive(Debug)]
pub(crate) enum Why {
    /// The file no longer has the bytes.
    Shorter,
    /// The file may have other bytes than those sent before.
    Rewritten,
    Unreadable(io::Error),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shorter => f.write_str("became shorter while it was sent"),
            Self::Rewritten => f.write_str("was written to while it was sent"),
            Self::Unreadable(error) => write!(f, "{error}"),
        }
    }
}

impl Broken {
    fn new(file: &OpenFile, why: Why) -> Self {
        let descriptor = file.local().as_raw_fd();
        let path = std::fs::read_link(format!("/proc/self/fd/{descriptor}"));
        Self { path: path.unwrap_or_default(), why }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Seek, Write};

    use super::*;

    #[test]
    fn versions() {
        let verdict = |change: fn(&mut File)| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            std::fs::write(&path, [1; 1000]).unwrap();
            let old = File::open(&path).unwrap();
            // Two changes in one tick of the kernel's clock would look like one.
            let past = SystemTime::now() - Duration::from_secs(10);
            File::options().write(true).open(&path).unwrap().set_modified(past).unwrap();
            let source = Sources::default().of(&Arc::new(old.into()), None).unwrap();
            source.remember(&(100..1000));
            source.check().unwrap();
            change(&mut File::options().write(true).open(&path).unwrap());
            source
                .check()
                .err()
                .map(|broken| broken.to_string().rsplit("/file: ").next().unwrap().to_owned())
        };
        let append = |file: &mut File| {
            file.seek(io::SeekFrom::End(0)).unwrap();
            file.write_all(b"more").unwrap();
        };
        assert_eq!(verdict(append), None);
        let rewritten = Some("was written to while it was sent".to_owned());
        assert_eq!(verdict(|file| file.write_all(b"x").unwrap()), rewritten);
        assert_eq!(verdict(|file| file.write_all(&[2; 2000]).unwrap()), rewritten);
        let shorter = Some("became shorter while it was sent".to_owned());
        assert_eq!(verdict(|file| file.set_len(999).unwrap()), shorter);
        assert_eq!(verdict(|_| {}), None);
        // Other content with the same beginning.
        let from_the_middle = |file: &mut File| {
            file.seek(io::SeekFrom::Start(500)).unwrap();
            file.write_all(&[2; 2000]).unwrap();
        };
        assert_eq!(verdict(from_the_middle), rewritten);
    }

    #[test]
    fn a_file_dated_long_ago_or_in_the_future_is_not_looked_at_again() {
        let file = tempfile::tempfile().unwrap();
        let now = SystemTime::now();
        let recent_if = |modified: SystemTime| {
            file.set_modified(modified).unwrap();
            is_recent(FileVersion::now(&file).unwrap(), now)
        };
        let ms = Duration::from_millis;
        assert!(recent_if(now));
        assert!(recent_if(now - ms(40)) && recent_if(now + ms(40)));
        assert!(!recent_if(now - ms(60)) && !recent_if(now + ms(60)));
        assert!(!recent_if(now - Duration::from_secs(3600)));
        assert!(!recent_if(now + Duration::from_secs(3600)));
    }

    #[test]
    fn each_file_once() {
        let (a, b) = (
            Arc::new(tempfile::tempfile().unwrap().into()),
            Arc::new(tempfile::tempfile().unwrap().into()),
        );
        let mut sources = Sources::default();
        let first = sources.of(&a, None).unwrap();
        assert!(!Rc::ptr_eq(&first, &sources.of(&b, None).unwrap()));
        assert!(Rc::ptr_eq(&first, &sources.of(&a, None).unwrap()));
        sources.clear();
        assert!(sources.is_empty());
    }
}
