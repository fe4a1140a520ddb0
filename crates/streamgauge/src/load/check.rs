//! Checks answers: against the range that was asked for, and against the file that bodies must be.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::response::Head;
use super::tally::Fault;
use super::target::ByteRange;
use super::trouble::Trouble;

/// A file that every body must equal, or be a range of.
#[derive(Debug)]
pub(super) struct Reference {
    file: File,
    length: u64,
}

impl Reference {
    /// Opens the file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }

    /// Its length in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length
    }
}

/// A comparison of one body, piece by piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Position of the next byte in the file.
    position: u64,
    /// Where the body must end.
    end: u64,
    /// The first difference, once there is one.
    wrong: Option<Wrong>,
}

/// How a body differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Wrong {
    /// A byte is different.
    #[error("byte {0} of the file is another in the body")]
    Byte(u64),
    /// The body is too long.
    #[error("the body goes on after byte {0}, its end")]
    Long(u64),
    /// The body is too short.
    #[error("the body ends before byte {0} of the file")]
    Short(u64),
    /// The file could not be read.
    #[error("the file cannot be read at byte {0}")]
    Unreadable(u64),
}

impl Comparison {
    /// Compares a body with the bytes of the file from `first` to before `end`.
    pub(super) fn new(first: u64, end: u64) -> Self {
        Self { position: first, end, wrong: None }
    }

    /// Makes the comparison for an answer with this head; `None` if its body is no part of the
    /// file.
    pub(super) fn of(head: &Head, reference: &Reference) -> Option<Self> {
        match (head.status, head.content_range) {
            (200, _) => Some(Self::new(0, reference.length())),
            (206, Some(Ok(range))) => Some(Self::new(range.first, range.last.saturating_add(1))),
            _ => None,
        }
    }

    /// Compares the next bytes of the body. `buffer` is used to read the file.
    pub(super) fn take(&mut self, reference: &Reference, mut bytes: &[u8], buffer: &mut Vec<u8>) {
        buffer.resize(16 << 10, 0);
        while !bytes.is_empty() && self.wrong.is_none() {
            let left =
                usize::try_from(self.end.saturating_sub(self.position)).unwrap_or(usize::MAX);
            let step = bytes.len().min(buffer.len()).min(left);
            if step == 0 {
                self.wrong = Some(Wrong::Long(self.end));
                return;
            }
            let (now, later) = bytes.split_at(step);
            let expected = &mut buffer[..step];
            if reference.file.read_exact_at(expected, self.position).is_err() {
                self.wrong = Some(if self.position + step as u64 > reference.length {
                    Wrong::Long(reference.length)
                } else {
                    Wrong::Unreadable(self.position)
                });
                return;
            }
            if let Some(differs) = now.iter().zip(&*expected).position(|(a, b)| a != b) {
                self.wrong = Some(Wrong::Byte(self.position + differs as u64));
            }
            self.position += step as u64;
            bytes = later;
        }
    }

    /// Returns the error of the body after its end.
    fn finish(&self) -> Option<Wrong> {
        self.wrong.or((self.position < self.end).then_some(Wrong::Short(self.position)))
    }

    /// Returns the error of the body after its end, as the fault of its request.
    pub(super) fn fault(&self) -> Option<Trouble> {
        self.finish().map(|wrong| Trouble::new(Fault::Corrupt, wrong.to_string()))
    }
}

/// Checks a 206 (RFC 9110, 15.3.7). A server may ignore a range: 200 is no error.
pub(super) fn wrong_range(head: &Head, asked: Option<ByteRange>) -> Option<Trouble> {
    let asked = asked.filter(|_| head.status == 206)?;
    let wrong = |detail: String| Some(Trouble::new(Fault::WrongRange, detail));
    let Some(Ok(found)) = head.content_range else {
        return wrong("206 without a valid Content-Range".to_owned());
    };
    let up_to = head.whole.map_or(asked.last, |whole| asked.last.min(whole.saturating_sub(1)));
    if (found.first, found.last) != (asked.first, up_to) {
        return wrong(format!(
            "asked for bytes {}-{}, got {}-{}",
            asked.first, asked.last, found.first, found.last
        ));
    }
    let length = head.content_length.filter(|length| *length != found.length())?;
    Some(Trouble::new(
        Fault::ContentLength,
        format!("Content-Range is of {} bytes, Content-Length {length}", found.length()),
    ))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_body_is_compared_byte_for_byte() {
        let content: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&content).unwrap();
        let reference = Reference::open(file.path()).unwrap();
        let mut buffer = Vec::new();
        let mut verdict = |first: u64, end: u64, body: &[u8]| {
            let mut comparison = Comparison::new(first, end);
            for piece in body.chunks(33_333) {
                comparison.take(&reference, piece, &mut buffer);
            }
            comparison.finish()
        };
        assert_eq!(verdict(0, 100_000, &content), None);
        assert_eq!(verdict(500, 50_000, &content[500..50_000]), None);
        assert_eq!(verdict(500, 50_000, &content[500..49_999]), Some(Wrong::Short(49_999)));
        assert_eq!(verdict(500, 50_000, &content[500..50_001]), Some(Wrong::Long(50_000)));
        assert_eq!(verdict(99_999, 100_001, b"xx"), Some(Wrong::Long(100_000)));
        let mut other = content.clone();
        other[77_777] ^= 1;
        assert_eq!(verdict(0, 100_000, &other), Some(Wrong::Byte(77_777)));
        assert_eq!(verdict(0, 0, b""), None);
    }
}
