//! Puts what an agent tells of a child together: numbered pieces to lines.

use crate::agents::wire::Report;

/// Longest line of a child. The longest that a child sends has histograms, of some 100 KB.
const LONGEST: usize = 16 << 20;

/// What has come of a child.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Number of the next report.
    next: u64,
    /// The line that has not come whole yet.
    line: Vec<u8>,
}

/// What a piece brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Brings {
    /// Lines that are whole now.
    Lines(Vec<Vec<u8>>),
    /// The child has ended, well or not.
    End(Result<(), String>),
}

/// A child cannot go on, because what it said is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    /// A message was lost.
    #[error("a message of it was lost")]
    Lost,
    /// A line is too long.
    #[error("it sent a line of more than {LONGEST} bytes")]
    TooLong,
}

impl Said {
    /// Takes the next piece.
    ///
    /// # Errors
    /// [`Broken`].
    pub(super) fn take(&mut self, report: Report, mut piece: &[u8]) -> Result<Brings, Broken> {
        if report.number != self.next {
            return Err(Broken::Lost);
        }
        self.next += 1;
        if let Some(ended) = report.ended {
            return Ok(Brings::End(ended));
        }
        let mut whole = Vec::new();
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = piece.split_at(end);
            self.line.extend_from_slice(line);
            whole.push(std::mem::take(&mut self.line));
            piece = rest.get(1..).unwrap_or_default();
        }
        if self.line.len() + piece.len() > LONGEST {
            return Err(Broken::TooLong);
        }
        self.line.extend_from_slice(piece);
        Ok(Brings::Lines(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(number: u64) -> Report {
        Report { child: 0, number, ended: None }
    }

    #[test]
    fn lines_are_the_same_however_they_come() {
        let text = b"one\n\ntwo and three\nno end";
        for size in 1..text.len() {
            let mut said = Said::default();
            let mut found = Vec::new();
            for (number, piece) in (0..).zip(text.chunks(size)) {
                match said.take(report(number), piece).unwrap() {
                    Brings::Lines(lines) => found.extend(lines),
                    Brings::End(_) => panic!("no end was told"),
                }
            }
            assert_eq!(found, [&b"one"[..], b"", b"two and three"], "{size}");
        }
    }

    #[test]
    fn a_piece_that_is_lost_or_comes_twice_is_noticed() {
        let mut said = Said::default();
        assert_eq!(said.take(report(0), b"a\n"), Ok(Brings::Lines(vec![b"a".to_vec()])));
        assert_eq!(said.take(report(2), b"c\n"), Err(Broken::Lost));
        assert_eq!(said.take(report(0), b"a\n"), Err(Broken::Lost));
        let end = Report { ended: Some(Err("signal: 9".to_owned())), ..report(1) };
        assert_eq!(said.take(end, b""), Ok(Brings::End(Err("signal: 9".to_owned()))));
    }

    #[test]
    fn a_line_without_an_end_is_given_up() {
        let mut said = Said::default();
        let piece = vec![b'x'; LONGEST / 4];
        for number in 0..4 {
            assert_eq!(said.take(report(number), &piece), Ok(Brings::Lines(Vec::new())));
        }
        assert_eq!(said.take(report(4), b"x"), Err(Broken::TooLong));
    }
}
