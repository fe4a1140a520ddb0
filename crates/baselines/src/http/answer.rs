//! Decides on the answer to a request, and writes it.

use std::fmt::{self, Write as _};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use super::range::{Selected, select};
use super::root::media_type;
use super::{Refusal, Request, Root};

/// The last second of 9999-12-31, the last day that an HTTP date can express, in seconds since
/// 1970.
const LAST_DATE: u64 = 253_402_300_799;

/// The answer to one request: status, header fields, and the source of the body.
#[derive(Debug)]
pub(crate) struct Answer {
    status: u16,
    modified: Option<SystemTime>,
    content: Content,
    head_only: bool,
}

#[derive(Debug)]
enum Content {
    /// 304
    Nothing,
    /// A sentence that describes the error.
    Text(&'static str),
    /// 416, for a file of this length.
    Beyond(u64),
    File {
        file: File,
        range: Range<u64>,
        /// Length of the whole file.
        length: u64,
        media_type: &'static str,
    },
}

impl Answer {
    /// Decides on the answer to a request, and opens the file if there is one to send. The file is
    /// not read yet, so a client that already has it causes no reading.
    pub(crate) fn to(request: &Result<Request, Refusal>, root: &Root) -> Self {
        let request = match request {
            Ok(request) => request,
            Err(refusal) => return Self::refuse(*refusal),
        };
        let mut answer = match root.file(&request.path) {
            Ok((file, metadata)) => Self::file(request, file, &metadata),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::MFILE | Errno::NFILE) => Self::text(503, "too many open files\n"),
                _ => Self::text(404, "no such file\n"),
            },
        };
        answer.head_only = request.head_only;
        answer
    }

    fn refuse(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed => Self::text(400, "malformed request\n"),
            Refusal::Path => Self::text(404, "no such file\n"),
            Refusal::Method => Self::text(405, "only GET and HEAD\n"),
            Refusal::Timeout => Self::text(408, "the request took too long\n"),
            Refusal::TooLarge => Self::text(431, "the request's head is too large\n"),
        }
    }

    fn text(status: u16, text: &'static str) -> Self {
        Self { status, modified: None, content: Content::Text(text), head_only: false }
    }

    fn file(request: &Request, file: File, metadata: &Metadata) -> Self {
        let (length, modified) = (metadata.len(), modified(metadata));
        let answer = |status, content| Self { status, modified, content, head_only: false };
        if modified.is_some_and(|at| request.modified_since.is_some_and(|since| at <= since)) {
            return answer(304, Content::Nothing);
        }
        // RFC 9110 13.1.5: a range applies only to exactly the version that If-Range names.
        let applies = request.if_range.is_none_or(|date| date.is_some() && date == modified);
        let selected = match &request.range {
            Some(field) if applies => select(field, length),
            _ => Selected::Whole,
        };
        let (status, range) = match selected {
            Selected::Whole => (200, 0..length),
            Selected::Part(range) => (206, range),
            Selected::Nothing => return answer(416, Content::Beyond(length)),
        };
        let media_type = media_type(&request.path);
        answer(status, Content::File { file, range, length, media_type })
    }

    /// Such as 206.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Calls `each` with the name and value of every header field except `Date` and `Connection`.
    pub(crate) fn fields(&self, mut each: impl FnMut(&'static str, fmt::Arguments<'_>)) {
        if let Some(modified) = self.modified {
            each("Last-Modified", format_args!("{}", httpdate::HttpDate::from(modified)));
        }
        if self.status == 405 {
            each("Allow", format_args!("GET, HEAD"));
        }
        match &self.content {
            Content::Nothing => {}
            Content::Text(text) => {
                each("Content-Type", format_args!("text/plain; charset=utf-8"));
                each("Content-Length", format_args!("{}", text.len()));
            }
            Content::Beyond(length) => {
                each("Content-Range", format_args!("bytes */{length}"));
                each("Content-Length", format_args!("0"));
            }
            Content::File { range, length, media_type, .. } => {
                each("Content-Type", format_args!("{media_type}"));
                each("Accept-Ranges", format_args!("bytes"));
                if self.status == 206 {
                    let (first, last) = (range.start, range.end.saturating_sub(1));
                    each("Content-Range", format_args!("bytes {first}-{last}/{length}"));
                }
                each("Content-Length", format_args!("{}", range.end - range.start));
            }
        }
    }

    /// The head as it is sent, followed by a refusal's sentence; and the body, if it is a file's.
    pub(crate) fn into_parts(self, keep_alive: bool) -> (Vec<u8>, Option<Body>) {
        let mut head = String::with_capacity(384);
        let reason = reason(self.status);
        let now = httpdate::HttpDate::from(SystemTime::now());
        let connection = if keep_alive { "keep-alive" } else { "close" };
        // Writing to a String does not fail.
        let _ = write!(head, "HTTP/1.1 {} {reason}\r\nDate: {now}\r\n", self.status);
        self.fields(|name, value| {
            let _ = write!(head, "{name}: {value}\r\n");
        });
        let _ = write!(head, "Connection: {connection}\r\n\r\n");
        let (text, body) = self.into_body();
        head.push_str(text);
        (head.into_bytes(), body)
    }

    /// The bytes behind the head: a refusal's sentence, or a file.
    pub(crate) fn into_body(self) -> (&'static str, Option<Body>) {
        match self.content {
            _ if self.head_only => ("", None),
            Content::Nothing | Content::Beyond(_) => ("", None),
            Content::Text(text) => (text, None),
            Content::File { file, range, .. } => {
                ("", (!range.is_empty()).then_some(Body { file, left: range }))
            }
        }
    }

    /// The response as pieces of bytes: the head first, then `size` bytes of the file at a time.
    pub(crate) fn into_pieces(self, keep_alive: bool, size: usize) -> Pieces {
        let (head, body) = self.into_parts(keep_alive);
        Pieces { head: Some(head), body, size }
    }
}

/// Modification time of the file in whole seconds; `None` where HTTP has no date for it.
fn modified(metadata: &Metadata) -> Option<SystemTime> {
    let seconds = u64::try_from(metadata.mtime()).ok().filter(|seconds| *seconds <= LAST_DATE)?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        304 => "Not Modified",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        416 => "Range Not Satisfiable",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    }
}

/// The bytes of a file that are not sent yet. Empty only after the last byte was read.
#[derive(Debug)]
pub(crate) struct Body {
    file: File,
    left: Range<u64>,
}

impl Body {
    /// Fills the front of `into` with the next bytes; 0 after the last.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter. The connection must then end early.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = self.most(into.len());
        let into = into.get_mut(..most).unwrap_or_default();
        self.file.read_exact_at(into, self.left.start)?;
        self.left.start += most as u64;
        Ok(most)
    }

    /// Appends the next bytes, at most `most` of them.
    ///
    /// # Errors
    /// The same as those of [`Body::read`].
    pub(crate) fn append(&mut self, into: &mut Vec<u8>, most: usize) -> io::Result<()> {
        let end = into.len() + self.most(most);
        into.reserve_exact(end - into.len());
        // The spare capacity is filled directly: zeroing it first would cost as much as another
        // read.
        while into.len() < end {
            match rustix::io::pread(&self.file, spare_capacity(into), self.left.start) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    // The allocator may have provided more room than requested.
                    let beyond = into.len().saturating_sub(end);
                    into.truncate(end);
                    self.left.start += (read - beyond) as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether no bytes are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// The file, and the range of its unsent bytes.
    pub(crate) fn into_file(self) -> (File, Range<u64>) {
        (self.file, self.left)
    }

    fn most(&self, most: usize) -> usize {
        usize::try_from(self.left.end - self.left.start).map_or(most, |left| left.min(most))
    }
}

/// A response as pieces of bytes, in order.
#[derive(Debug)]
pub(crate) struct Pieces {
    head: Option<Vec<u8>>,
    body: Option<Body>,
    size: usize,
}

impl Pieces {
    /// The next piece: the head with the first bytes of the file, then more bytes; `None` after the
    /// last.
    ///
    /// # Errors
    /// The same as those of [`Body::read`].
    pub(crate) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let head = self.head.take();
        let Some(body) = self.body.as_mut().filter(|body| !body.is_empty()) else {
            return Ok(head);
        };
        let mut piece = head.unwrap_or_default();
        body.append(&mut piece, self.size)?;
        Ok(Some(piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn pieces_are_the_range_and_no_more() {
        let bytes: Vec<u8> = (0..=255).collect();
        for size in [1, 7, 100, 1000] {
            let body = Body { file: file(&bytes), left: 10..200 };
            let mut pieces = Pieces { head: Some(b"head".to_vec()), body: Some(body), size };
            let mut all = Vec::new();
            while let Some(piece) = pieces.next().unwrap() {
                assert!(piece.len() <= size + 4);
                all.extend_from_slice(&piece);
            }
            assert_eq!(all, [b"head", &bytes[10..200]].concat());
        }
        let mut body = Body { file: file(&bytes), left: 10..200 };
        let mut block = [0; 128];
        assert_eq!(body.read(&mut block).unwrap(), 128);
        assert_eq!(block, bytes[10..138]);
        assert_eq!(body.read(&mut block).unwrap(), 62);
        assert_eq!(block[..62], bytes[138..200]);
        assert_eq!(body.read(&mut block).unwrap(), 0);
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let mut body = Body { file: file(b"abc"), left: 0..4 };
        let error = body.append(&mut Vec::new(), 10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        let mut body = Body { file: file(b"abc"), left: 0..4 };
        assert_eq!(body.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn dates_that_http_cannot_name_are_not_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for (seconds, named) in [(-5, false), (5, true), (300_000_000_000, false)] {
            let time = if seconds < 0 {
                UNIX_EPOCH - Duration::from_secs(5)
            } else {
                UNIX_EPOCH + Duration::from_secs(seconds as u64)
            };
            let file = File::create(&path).unwrap();
            file.set_modified(time).unwrap();
            let metadata = file.metadata().unwrap();
            // Not every file system can store the last of these times.
            if metadata.mtime() == seconds {
                assert_eq!(modified(&metadata).is_some(), named, "{seconds}");
            }
        }
    }
}
