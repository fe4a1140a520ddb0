//! One answer, parsed as its bytes come, without I/O.

use super::body::Framing;
use super::{Body, Change};
use crate::{Error, Kind, Viewer};

/// Longest head of an answer, in bytes.
const MAX_HEAD: usize = 64 << 10;
/// Most header fields of an answer.
const MAX_FIELDS: usize = 64;
/// A body that nobody reads is dropped in the kernel from this size on. Below, the extra call costs
/// as much as the copy it saves.
const DISCARD_FROM: u64 = 16 << 10;
/// Bodies of refusals up to this size are read, so that the connection can be kept.
const MAX_REFUSAL: u64 = 64 << 10;

/// An answer, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Response {
    /// A head that has not come whole yet.
    partial: Vec<u8>,
    pub(super) head: Option<Head>,
    /// Bytes of the body so far.
    pub(super) bytes: u64,
    /// Whether the answer is over before its framing says so: the rest of a refusal is not worth
    /// reading, or the server closed the connection as it should.
    over: bool,
    /// Whether the request was to make or to remove something. Other answers are good then.
    changes: bool,
}

#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    /// Where a redirect leads.
    pub(super) location: Option<String>,
    framing: Framing,
    /// Content-Length, if it frames the body.
    length: Option<u64>,
    keep: bool,
}

impl Response {
    /// Waits for the answer to a request.
    pub(super) fn to(change: Option<&Change<'_>>) -> Self {
        Self { changes: change.is_some(), ..Self::default() }
    }

    /// Whether any byte has come.
    pub(super) fn has_begun(&self) -> bool {
        self.head.is_some() || !self.partial.is_empty()
    }

    pub(super) fn is_done(&self) -> bool {
        self.over || self.head.as_ref().is_some_and(|head| head.framing.is_done())
    }

    /// Whether the status is a success; if a resource was asked for, one with a body: 200 or 206.
    pub(super) fn is_good(&self) -> bool {
        self.head.as_ref().is_some_and(|head| match head.status {
            200 | 206 => true,
            status => self.changes && (200..300).contains(&status),
        })
    }

    /// Whether another request may follow on the connection.
    pub(super) fn can_keep(&self) -> bool {
        !self.over && self.head.as_ref().is_some_and(|head| head.keep && head.framing.is_done())
    }

    /// Bytes left of a good body whose length is known, if there are enough to drop them in the
    /// kernel.
    pub(super) fn discardable(&self) -> Option<u64> {
        match self.head.as_ref()?.framing {
            Framing::Length(left) if left >= DISCARD_FROM && self.is_good() => Some(left),
            _ => None,
        }
    }

    /// Counts bytes of the body that were dropped.
    pub(super) fn discard(&mut self, size: u64) {
        self.bytes += size;
        if let Some(Head { framing: Framing::Length(left), .. }) = &mut self.head {
            *left = left.saturating_sub(size);
        }
    }

    /// Handles the end of the connection.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        match &self.head {
            None => Err(Error::new(Kind::Dropped, "closed before an answer")),
            Some(Head { framing: Framing::Close, .. }) => {
                self.over = true;
                Ok(())
            }
            Some(Head { length: Some(length), .. }) => {
                let what = format!("body of {} bytes where {length} were promised", self.bytes);
                Err(Error::new(Kind::Length, what))
            }
            Some(_) => Err(Error::new(Kind::Dropped, "closed within a body")),
        }
    }

    /// Takes the next bytes.
    pub(super) fn read(
        &mut self,
        mut input: &[u8],
        body: &mut Body<'_>,
        viewer: &Viewer,
    ) -> Result<(), Error> {
        while self.head.is_none() {
            let known = self.partial.len();
            let joined;
            let bytes = if known == 0 {
                input
            } else {
                self.partial.extend_from_slice(input);
                joined = std::mem::take(&mut self.partial);
                &joined
            };
            let Some((head, size)) = Head::parse(bytes)? else {
                if bytes.len() > MAX_HEAD {
                    return Err(Error::new(Kind::Garbage, "head of an answer too long"));
                }
                self.partial = bytes.to_vec();
                viewer.count_overhead(input.len());
                return Ok(());
            };
            // The bytes of the head that came before are counted already.
            let size = size.saturating_sub(known);
            viewer.count_overhead(size);
            input = input.get(size..).unwrap_or_default();
            // An interim answer; the final one follows (RFC 9110 15.2).
            if head.status >= 200 {
                self.head = Some(head);
            } else if input.is_empty() {
                return Ok(());
            }
        }
        self.body(input, body, viewer)
    }

    fn body(
        &mut self,
        mut input: &[u8],
        body: &mut Body<'_>,
        viewer: &Viewer,
    ) -> Result<(), Error> {
        let good = self.is_good();
        let Some(head) = &mut self.head else { return Ok(()) };
        let came = input.len();
        let mut data = 0;
        let read = head.framing.read(&mut input, &mut |bytes| {
            data += bytes.len();
            if good {
                return body.take(bytes, viewer);
            }
            viewer.count_overhead(bytes.len());
            Ok(())
        });
        self.bytes += data as u64;
        // Chunk sizes and trailers.
        viewer.count_overhead((came - input.len()).saturating_sub(data));
        read?;
        if head.framing.is_done() && !input.is_empty() {
            let what = format!("{} bytes behind the body's end", input.len());
            return Err(Error::new(Kind::Length, what));
        }
        self.over |= !good && self.bytes > MAX_REFUSAL;
        Ok(())
    }
}

impl Body<'_> {
    fn take(&mut self, data: &[u8], viewer: &Viewer) -> Result<(), Error> {
        let (buffer, limit) = match self {
            Self::Text(buffer, limit) => {
                viewer.count_overhead(data.len());
                if buffer.capacity() == 0 {
                    **buffer = viewer.lane.buffer();
                }
                (buffer, limit)
            }
            Self::Discard => {
                viewer.count_media(data.len());
                return Ok(());
            }
            Self::Media(take) => {
                viewer.count_media(data.len());
                return take(data);
            }
            Self::Collect(buffer, limit) => {
                viewer.count_media(data.len());
                (buffer, limit)
            }
        };
        if buffer.len() + data.len() > *limit {
            return Err(Error::new(Kind::Garbage, format!("body of more than {limit} bytes")));
        }
        buffer.extend_from_slice(data);
        Ok(())
    }
}

impl Head {
    /// Parses the head at the front of `bytes` and returns it with its length; `None` if it has not
    /// come whole.
    fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Error> {
        let garbage = |what: String| Error::new(Kind::Garbage, what);
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut parsed = httparse::Response::new(&mut fields);
        let size = match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(size)) => size,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(garbage(format!("not an HTTP answer: {error}"))),
        };
        let status = parsed.code.unwrap_or_default();
        let mut keep = parsed.version == Some(1);
        let (mut length, mut chunked, mut coded, mut location) = (None, false, false, None);
        for field in parsed.headers.iter() {
            let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                let parsed: u64 =
                    value.parse().map_err(|_| garbage(format!("Content-Length: {value:?}")))?;
                if length.is_some_and(|known| known != parsed) {
                    return Err(garbage("two lengths of one body".to_owned()));
                }
                length = Some(parsed);
            } else if is("transfer-encoding") {
                coded = true;
                chunked = value
                    .rsplit(',')
                    .next()
                    .is_some_and(|last| last.trim().eq_ignore_ascii_case("chunked"));
            } else if is("connection") {
                let says =
                    |word: &str| value.split(',').any(|v| v.trim().eq_ignore_ascii_case(word));
                keep = (keep || says("keep-alive")) && !says("close");
            } else if is("location") {
                location = Some(value.to_owned());
            }
        }
        // RFC 9112 6.3.
        let framing = match length {
            _ if matches!(status, 100..=199 | 204 | 304) => Framing::Length(0),
            _ if chunked => Framing::chunked(),
            Some(length) if !coded => Framing::Length(length),
            _ => Framing::Close,
        };
        let length = length.filter(|_| matches!(framing, Framing::Length(_)));
        Ok(Some((Self { status, location, framing, length, keep }, size)))
    }
}
