use std::borrow::Cow;

/// Why input could not be read. Positions are in bytes from the start of what the parser was given:
/// a file, a tag's payload or a configuration record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes break the format's rules.
    #[error("{what} at byte {at}")]
    Malformed {
        /// What is wrong, as a noun phrase: "stsz: sample count exceeds the box".
        what: Cow<'static, str>,
        /// Position of the error.
        at: u64,
    },
    /// The input ends before the end that it announces.
    #[error("{what} at byte {at} is cut off: {needed} bytes announced, {left} present")]
    CutOff {
        /// What is incomplete, as a noun: "box moov", "tag".
        what: Cow<'static, str>,
        /// Position where the incomplete item starts.
        at: u64,
        /// How many bytes it announces.
        needed: u64,
        /// How many bytes there are.
        left: u64,
    },
    /// The input is valid as far as it was read, but uses something this crate does not handle.
    #[error("{what} at byte {at} is not supported")]
    Unsupported {
        /// What it is, as a noun phrase: "codec 'ac-4'".
        what: Cow<'static, str>,
        /// Position of the unsupported item.
        at: u64,
    },
    /// Reading on would take more memory than any sensible input needs.
    #[error("{what} at byte {at}: {value} exceeds the limit of {limit}")]
    Limit {
        /// What is too large, as a noun: "sample count".
        what: Cow<'static, str>,
        /// Position of the value.
        at: u64,
        /// The value found.
        value: u64,
        /// The most that is accepted.
        limit: u64,
    },
}

impl Error {
    pub(crate) fn malformed(what: impl Into<Cow<'static, str>>, at: u64) -> Self {
        Self::Malformed { what: what.into(), at }
    }

    pub(crate) fn unsupported(what: impl Into<Cow<'static, str>>, at: u64) -> Self {
        Self::Unsupported { what: what.into(), at }
    }

    pub(crate) fn cut_off(
        what: impl Into<Cow<'static, str>>,
        at: u64,
        needed: u64,
        left: u64,
    ) -> Self {
        Self::CutOff { what: what.into(), at, needed, left }
    }

    /// The same error with its position moved by `by` bytes. An inner parser counts from the start
    /// of the bytes it was given; its caller knows where those bytes lie in the whole input.
    #[must_use]
    pub fn offset(mut self, by: u64) -> Self {
        match &mut self {
            Self::Malformed { at, .. }
            | Self::CutOff { at, .. }
            | Self::Unsupported { at, .. }
            | Self::Limit { at, .. } => *at = at.saturating_add(by),
        }
        self
    }
}
