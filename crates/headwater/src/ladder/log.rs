//! Logs ffmpeg's messages, and messages about ffmpeg, under the stream's name.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::net::LogLimit;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Most lines that are logged, and the time in which they count. Further lines are only counted.
const LINES: (u32, Duration) = (16, Duration::from_secs(10));

/// Most bytes of a line that are kept; the rest is dropped.
const LONGEST: usize = 1024;

/// The log of one stream's ladder or companion.
#[derive(Debug)]
pub(super) struct Log {
    /// `ladder` or `companion`.
    what: &'static str,
    stream: String,
    allowance: Mutex<LogLimit>,
}

/// How serious a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Info,
    Warning,
    Error,
}

impl Log {
    pub(super) fn new(what: &'static str, stream: &str) -> Self {
        let allowance = Mutex::new(LogLimit::new(LINES.0, LINES.1));
        Self { what, stream: stream.to_owned(), allowance }
    }

    /// Logs a line, unless there were too many.
    pub(super) fn say(&self, severity: Severity, line: &str) {
        let mut allowance = self.allowance.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(held_back) = allowance.take(Instant::now()) else { return };
        let Self { what, stream, .. } = self;
        if held_back > 0 {
            tracing::warn!(stream, lines = held_back, "{what}: lines were not logged");
        }
        match severity {
            Severity::Info => tracing::info!(stream, "{what}: {line}"),
            Severity::Warning => tracing::warn!(stream, "{what}: {line}"),
            Severity::Error => tracing::error!(stream, "{what}: {line}"),
        }
    }

    /// Logs what ffmpeg writes to its standard error, until that is closed.
    pub(super) async fn follow(&self, mut stderr: impl AsyncRead + Unpin) {
        let mut lines = Lines::default();
        let mut buffer = [0; 1024];
        while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
            for byte in &buffer[..read] {
                if let Some(line) = lines.take(*byte) {
                    self.say_for_ffmpeg(&line);
                }
            }
        }
        if let Some(line) = lines.take(b'\n') {
            self.say_for_ffmpeg(&line);
        }
    }

    fn say_for_ffmpeg(&self, line: &str) {
        let (severity, message) = parse(line);
        self.say(severity, &format!("ffmpeg: {message}"));
    }
}

/// Splits bytes into lines.
#[derive(Debug, Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// Takes a byte. Returns a line if the byte ends one that is not empty.
    fn take(&mut self, byte: u8) -> Option<String> {
        if byte != b'\n' && byte != b'\r' {
            if self.0.len() < LONGEST {
                self.0.push(byte);
            }
            return None;
        }
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.0)).trim_end().to_owned();
        (!line.is_empty()).then_some(line)
    }
}

/// Parses a line of ffmpeg in the format of `-loglevel level+…`: `[libx264 @ 0x5581] [warning]
/// message`.
fn parse(line: &str) -> (Severity, String) {
    const LEVELS: [(&str, Severity); 5] = [
        ("[info] ", Severity::Info),
        ("[warning] ", Severity::Warning),
        ("[error] ", Severity::Error),
        ("[fatal] ", Severity::Error),
        ("[panic] ", Severity::Error),
    ];
    let found =
        LEVELS.iter().filter_map(|&(level, severity)| Some((line.find(level)?, level, severity)));
    let Some((at, level, severity)) = found.min_by_key(|&(at, ..)| at) else {
        return (Severity::Warning, line.to_owned());
    };
    let message = &line[at + level.len()..];
    let who = line[..at].strip_prefix('[').and_then(|who| who.split_once(" @ "));
    (severity, who.map_or_else(|| message.to_owned(), |(who, _)| format!("{who}: {message}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_bad_it_is() {
        for (line, severity, message) in [
            ("[libx264 @ 0x55] [warning] odd", Severity::Warning, "libx264: odd"),
            ("[error] Unknown encoder 'x'", Severity::Error, "Unknown encoder 'x'"),
            ("[fatal] no", Severity::Error, "no"),
            ("[h264 @ 0x1] [error] a [warning] b", Severity::Error, "h264: a [warning] b"),
            ("something else", Severity::Warning, "something else"),
        ] {
            assert_eq!(parse(line), (severity, message.to_owned()), "{line}");
        }
    }

    #[tokio::test]
    async fn lines_are_bounded_and_need_no_end() {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        let text = [&[b'a'; 5000][..], b"\r\n\n", b"b\nc"].concat();
        for byte in text {
            all.extend(lines.take(byte));
        }
        all.extend(lines.take(b'\n'));
        assert_eq!(all.iter().map(String::len).collect::<Vec<_>>(), [LONGEST, 1, 1]);
    }
}
