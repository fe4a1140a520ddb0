//! Puts pieces together to lines.

/// Longest line of a child. The longest that a child sends has histograms, of some 100 KB.
const LONGEST: usize = 16 << 20;

/// The line that has not come whole yet.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

/// A line is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it sent a line of more than {LONGEST} bytes")]
pub(super) struct TooLong;

impl Lines {
    /// Takes the next piece; returns the lines that are whole now.
    ///
    /// # Errors
    /// [`TooLong`].
    pub(super) fn take(&mut self, mut piece: &[u8]) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut whole = Vec::new();
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = piece.split_at(end);
            self.0.extend_from_slice(line);
            whole.push(std::mem::take(&mut self.0));
            piece = rest.get(1..).unwrap_or_default();
        }
        if self.0.len() + piece.len() > LONGEST {
            return Err(TooLong);
        }
        self.0.extend_from_slice(piece);
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_they_come() {
        let text = b"one\n\ntwo and three\nno end";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let found: Vec<_> =
                text.chunks(size).flat_map(|piece| lines.take(piece).unwrap()).collect();
            assert_eq!(found, [&b"one"[..], b"", b"two and three"], "{size}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_given_up() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; LONGEST / 4];
        assert!((0..4).all(|_| lines.take(&piece) == Ok(Vec::new())));
        assert_eq!(lines.take(b"x"), Err(TooLong));
    }
}
