use std::time::Duration;

/// How titles are cut, and how many are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Desired duration of segments: they begin at the keyframes nearest to its multiples.
    pub segment_target: Duration,
    /// Bytes of memory for kept titles. The newest title is kept even if it alone is larger.
    pub memory: usize,
}

impl Default for Settings {
    /// Segments of 2 s, and 64 MiB, which hold about twenty titles of two hours.
    fn default() -> Self {
        Self { segment_target: Duration::from_secs(2), memory: 64 << 20 }
    }
}
