//! The only place where bytes of responses are written.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use payload::{Queue, Region};
use rustix::io::Errno;

use crate::ahead::Ahead;
use crate::counters::{Tally, count};
use crate::socket::Socket;
use crate::source::{Broken, Source, Sources, Why};
use crate::{Piece, cache};

/// Most parts per write. Our responses have fewer, and the kernel's limit of 1,024 is far above.
const MAX_PARTS: usize = 64;

/// Most bytes per write from memory.
const MAX_WRITE: usize = 256 << 10;

/// Most bytes per write from a file.
const MAX_SENDFILE: u64 = 2 << 20;

/// Ranges of a file and regions up to this length are copied into memory, and sent together with the
/// bytes around them. A `sendfile` of their own would cost more, and another segment on the wire. A
/// region that is not copied keeps up to 1 MiB of its window until the peer has taken it.
const SHORT: u64 = 16 << 10;

/// Most bytes that follow a head in the same segment. The kernel handles 64 KiB of a connection at
/// a time. More bytes would leave a short rest for a second turn. With a congestion control that
/// paces by the kernel's timers (BBR without `fq`), this rest waits for a timer. Measured: only 60
/// % as many answers of 64 KiB a second.
const TOGETHER: u64 = 60 << 10;

/// Most bytes of files that a connection holds in memory.
const COPIES: u64 = 64 << 10;

/// Ranges of a file with gaps of at most this many bytes are read in together.
const NEAR: u64 = 256 << 10;

/// The bytes to send on a connection, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Bytes that go first.
    memory: Queue,
    /// The parts after them. The first of them is not bytes.
    parts: VecDeque<Part>,
    size: u64,
    /// Whether long regions were added since all was sent.
    keeps_regions: bool,
    /// The files of the response that is being sent.
    sources: Sources,
    ahead: Ahead,
    /// Whether the last write had to wait, or was cut short. Then time may pass before the next.
    waited: bool,
    /// Whether the socket took less of the last write from a file than was offered.
    cut_short: bool,
}

#[derive(Debug)]
enum Part {
    Bytes(Bytes),
    /// A long region.
    Region(Region),
    File {
        source: Rc<Source>,
        range: Range<u64>,
        /// Whether it is short enough to be copied.
        short: bool,
    },
}

/// Why nothing more can be sent.
#[derive(Debug)]
pub enum Fault {
    /// The connection failed.
    Socket(io::Error),
    /// The bytes of a file are not available.
    File(Broken),
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        Self::File(broken)
    }
}

impl Outbox {
    /// Adds bytes.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.size += bytes.len() as u64;
            match self.parts.is_empty() {
                true => self.memory.push(bytes),
                false => self.parts.push_back(Part::Bytes(bytes)),
            }
        }
    }

    /// Adds a piece of a complete payload. A short range of a file that is in memory is copied at
    /// once, and the file is not kept open.
    pub fn push_piece(&mut self, piece: Piece) -> Result<(), Broken> {
        self.add(piece, false)
    }

    /// Adds a piece of a payload that arrives piece by piece. All pieces of a file must be of one
    /// version, although time passes between them.
    pub(crate) fn push_streamed(&mut self, piece: Piece) -> Result<(), Broken> {
        self.add(piece, true)
    }

    fn add(&mut self, piece: Piece, streamed: bool) -> Result<(), Broken> {
        let length = piece.len();
        let (file, range, version) = match piece {
            Piece::Bytes(bytes) => {
                self.push(bytes);
                return Ok(());
            }
            Piece::Region(region) => {
                if length <= SHORT {
                    self.push(Bytes::copy_from_slice(region.as_ref()));
                } else {
                    self.size += length;
                    self.keeps_regions = true;
                    self.parts.push_back(Part::Region(region));
                }
                return Ok(());
            }
            Piece::File { .. } if length == 0 => return Ok(()),
            Piece::File { file, range, version } => (file, range, version),
        };
        let mut source = None;
        if streamed {
            source.insert(self.sources.of(&file, version)?).goes_on.set(true);
        }
        let short = length <= SHORT;
        let copy = match short && self.size + length <= COPIES {
            true => cache::read_now(&file, &range),
            false => None,
        };
        if let Some(source) = &source {
            source.check()?;
        }
        if let Some(bytes) = copy {
            if let Some(source) = source {
                source.remember_copy(range.start, &bytes);
            }
            self.push(bytes);
            return Ok(());
        }
        let source = source.map_or_else(|| self.sources.of(&file, version), Ok)?;
        self.size += length;
        self.parts.push_back(Part::File { source, range, short });
        Ok(())
    }

    /// Bytes that are not sent yet.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether it may keep memory of live windows.
    pub(crate) fn keeps_regions(&self) -> bool {
        self.keeps_regions
    }

    /// Whether files are kept open for the response that is being sent.
    pub(crate) fn has_files(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Closes the files of a response that has been sent.
    pub fn release(&mut self) {
        self.sources.clear();
        self.ahead = Ahead::default();
    }

    /// Whether the socket took less of the last write from a file than was offered.
    pub(crate) fn was_cut_short(&self) -> bool {
        self.cut_short
    }

    /// Whether the outbox waits for a disk, not for the peer.
    pub fn is_reading(&self) -> bool {
        self.ahead.is_reading()
    }

    /// Writes once. Ready with the number of bytes written, which is 0 only if there were none to
    /// write.
    pub(crate) fn poll_write<S: Socket>(
        &mut self,
        socket: &mut S,
        tally: &Tally,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Fault>> {
        self.cut_short = false;
        let written = self.poll_front(socket, tally, cx);
        // Others may have their turn before the next write.
        self.waited = written.is_pending() || self.cut_short;
        if let Poll::Ready(Ok(written)) = &written {
            self.size -= *written as u64;
            self.keeps_regions &= self.size > 0;
        }
        written
    }

    fn poll_front<S: Socket>(
        &mut self,
        socket: &mut S,
        tally: &Tally,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Fault>> {
        loop {
            self.gather();
            if !self.memory.is_empty() {
                return self.poll_memory(socket, tally, cx);
            }
            match self.parts.front() {
                None | Some(Part::Bytes(_)) => return Poll::Ready(Ok(0)),
                Some(Part::Region(_)) => {
                    if let Some(sent) = ready!(self.poll_region(socket, tally, cx))? {
                        return Poll::Ready(Ok(sent));
                    }
                }
                Some(Part::File { source, short, .. }) => {
                    if self.waited {
                        source.check()?;
                    }
                    let copies = *short || source.copies.get();
                    let resident = ready!(self.poll_resident(tally, cx))?;
                    if copies {
                        self.copy(resident)?;
                    } else if let Some(sent) = ready!(self.poll_file(resident, socket, tally, cx))?
                    {
                        return Poll::Ready(Ok(sent));
                    }
                }
            }
        }
    }

    /// Moves the bytes at the front of the parts to the bytes that go first.
    fn gather(&mut self) {
        while let Some(Part::Bytes(bytes)) = self.parts.front_mut() {
            self.memory.push(std::mem::take(bytes));
            self.parts.pop_front();
        }
    }

    /// Sends the bytes that go first.
    fn poll_memory<S: Socket>(
        &mut self,
        socket: &mut S,
        tally: &Tally,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Fault>> {
        // Head and payload need two calls, but should share a segment if they fit into one. A head
        // does not wait for bytes that must be read in first.
        let more = match self.parts.front() {
            Some(Part::File { range, .. }) => {
                range.end - range.start <= TOGETHER && self.poll_resident(tally, cx).is_ready()
            }
            Some(Part::Region(region)) => region.len() as u64 <= TOGETHER,
            Some(Part::Bytes(_)) | None => false,
        };
        let mut slices = [IoSlice::new(&[]); MAX_PARTS];
        let count = self.memory.fill(&mut slices, MAX_WRITE);
        let written = ready!(socket.poll_send(&slices[..count], more, cx));
        let written = match written.map_err(Fault::Socket)? {
            0 => return Poll::Ready(Err(Fault::Socket(io::ErrorKind::WriteZero.into()))),
            written => written,
        };
        self.memory.advance(written);
        Poll::Ready(Ok(written))
    }

    /// Up to which offset the file at the front is in memory. Ready when the part's beginning is.
    fn poll_resident(&mut self, tally: &Tally, cx: &mut Context<'_>) -> Poll<Result<u64, Broken>> {
        let near = self.parts.iter().take(2 * MAX_PARTS);
        let mut parts = near.filter_map(|part| match part {
            Part::File { source, range, .. } => Some((source, range)),
            Part::Bytes(_) | Part::Region(_) => None,
        });
        let Some((source, range)) = parts.next() else { return Poll::Ready(Ok(0)) };
        // Includes the following ranges of the same file, because a payload may consist of many
        // short ranges.
        let mut all = range.clone();
        for (other, range) in parts {
            if Rc::ptr_eq(source, other) && (all.end..all.end + NEAR).contains(&range.start) {
                all.end = range.end;
            }
        }
        let resident = ready!(self.ahead.poll(source, &all, tally, cx));
        Poll::Ready(resident.map_err(|error| source.broken(Why::Unreadable(error))))
    }

    /// Sends from the region at the front. `None` if it must be copied instead.
    fn poll_region<S: Socket>(
        &mut self,
        socket: &mut S,
        tally: &Tally,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<usize>, Fault>> {
        let Some(Part::Region(region)) = self.parts.front_mut() else {
            return Poll::Ready(Ok(None));
        };
        let length = region.len().min(MAX_SENDFILE as usize);
        let sent = ready!(socket.poll_sendfile(region.fd(), region.offset(), length, cx));
        match sent {
            // The file of a window is never shortened.
            Ok(0) => Poll::Ready(Err(Fault::Socket(io::ErrorKind::WriteZero.into()))),
            Ok(sent) => {
                self.cut_short = sent < length;
                count(&tally.file_bytes, sent as u64);
                if sent < region.len() {
                    *region = region.slice(sent..region.len());
                } else {
                    self.parts.pop_front();
                }
                Poll::Ready(Ok(Some(sent)))
            }
            Err(error) if has_no_sendfile(&error) => {
                let bytes = region.to_bytes();
                self.parts[0] = Part::Bytes(bytes);
                Poll::Ready(Ok(None))
            }
            Err(error) => Poll::Ready(Err(Fault::Socket(error))),
        }
    }

    /// Sends from the file at the front, which is in memory up to `resident`. `None` if it must be
    /// copied instead.
    fn poll_file<S: Socket>(
        &mut self,
        resident: u64,
        socket: &mut S,
        tally: &Tally,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<usize>, Fault>> {
        let Some(Part::File { source, range, .. }) = self.parts.front_mut() else {
            return Poll::Ready(Ok(None));
        };
        let length = range.end.min(resident).saturating_sub(range.start).min(MAX_SENDFILE);
        let file = source.file.local().as_fd();
        let sent = ready!(socket.poll_sendfile(file, range.start, length as usize, cx));
        let sent = match sent {
            Ok(0) => return Poll::Ready(Err(source.broken(Why::Shorter).into())),
            Ok(sent) => sent,
            Err(error) if has_no_sendfile(&error) => {
                source.copies.set(true);
                return Poll::Ready(Ok(None));
            }
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::IO | Errno::STALE | Errno::OVERFLOW) => {
                    return Poll::Ready(Err(source.broken(Why::Unreadable(error)).into()));
                }
                _ => return Poll::Ready(Err(Fault::Socket(error))),
            },
        };
        self.cut_short = (sent as u64) < length;
        count(&tally.file_bytes, sent as u64);
        let written = range.start..range.start + sent as u64;
        range.start = written.end;
        let is_sent = range.start >= range.end;
        // The kernel takes the bytes from the file when it sends them. So this check only tells
        // that nothing was written until now.
        if is_sent && source.is_of_a_version() {
            source.check()?;
        }
        if !is_sent || source.goes_on.get() {
            source.remember(&written);
        }
        if is_sent {
            self.parts.pop_front();
        }
        Poll::Ready(Ok(Some(sent)))
    }

    /// Copies from the file at the front, which is in memory up to `resident`.
    fn copy(&mut self, resident: u64) -> Result<(), Broken> {
        let mut copies = Vec::new();
        let mut room = COPIES;
        let mut last: Option<(Rc<Source>, u64)> = None;
        while let Some(Part::File { source, range, short }) = self.parts.front_mut() {
            let next = last.as_ref().is_none_or(|(same, from)| {
                (*short || source.copies.get()) && Rc::ptr_eq(same, source) && *from <= range.start
            });
            let end = range.end.min(resident).min(range.start + room);
            if !next || end <= range.start {
                break;
            }
            // The last copy of a range is checked like the last `sendfile`.
            let is_last = end == range.end && source.is_of_a_version();
            copies.push(match is_last {
                true => source.copy_checked(range.start..end)?,
                false => source.copy(range.start..end)?,
            });
            room -= end - range.start;
            last = Some((Rc::clone(source), end));
            range.start = end;
            if range.start < range.end {
                break;
            }
            self.parts.pop_front();
        }
        for bytes in copies.into_iter().rev() {
            self.parts.push_front(Part::Bytes(bytes));
        }
        Ok(())
    }
}

/// Whether the socket or the file does not support `sendfile`, as opposed to a failure of this
/// call.
fn has_no_sendfile(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP))
}
