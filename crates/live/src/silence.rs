//! Silence that replaces missing audio.
//!
//! A player that plays a video and an audio track waits for both: missing audio would stop the
//! video for every viewer. So when a publisher's audio falls behind its video, the audio track goes
//! on with silence until the audio is back.

use bytes::Bytes;
use media::Codec;

use crate::UnixMicros;

/// The most silence that may be made for a track at once, in microseconds. It is longer than any
/// gap that silence fills.
const AT_ONCE: u64 = 20_000_000;
/// How much faster than time passes silence may be made. Publishers' clocks may run a little fast.
const FASTER: u64 = 2;

/// How much silence may be made for a track: [`AT_ONCE`], and [`FASTER`] times the time that
/// passes.
///
/// The publisher's times tell how much audio is missing, and a publisher can claim seconds with a
/// few bytes. So the origin's time decides how much of it is made.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Microseconds of silence that were allowed at `since` and are not used.
    left: u64,
    since: UnixMicros,
}

impl Allowance {
    pub(crate) fn new(now: UnixMicros) -> Self {
        Self { left: AT_ONCE, since: now }
    }

    /// Uses `micros` of the allowance, and returns whether so much was left.
    pub(crate) fn take(&mut self, micros: u64, now: UnixMicros) -> bool {
        let passed = now.0.saturating_sub(self.since.0);
        self.since = self.since.max(now);
        self.left = self.left.saturating_add(passed.saturating_mul(FASTER)).min(AT_ONCE);
        let allowed = micros <= self.left;
        if allowed {
            self.left -= micros;
        }
        allowed
    }
}

/// An access unit that decodes to silence, and its duration in samples of the track's rate. `None`
/// for configurations that have no such unit here.
pub(crate) fn access_unit(codec: &Codec) -> Option<(Bytes, u32)> {
    match codec {
        Codec::Aac(config) => Some((config.silence()?, config.frame_length)),
        // An empty CELT frame of 20 ms at full bandwidth (RFC 6716 3.1: configuration 31, mono, one
        // frame). A stereo decoder plays it in both channels.
        Codec::Opus(config) if config.channels <= 2 => {
            Some((Bytes::from_static(&[0xf8, 0xff, 0xfe]), 960))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_lasts_as_long_as_one_of_the_publisher() {
        // AAC-LC of 5.1; HE-AAC, whose unit lasts twice as long at the rate that is heard; AAC Main.
        let records: [(&'static [u8], Option<u32>); 3] = [
            (&[0x11, 0xb0], Some(1024)),
            (&[0x2b, 0x92, 0x08, 0x00], Some(2048)),
            (&[0x09, 0x90], None),
        ];
        for (record, lasts) in records {
            let config = media::codec::aac::Config::parse(Bytes::from_static(record));
            let unit = access_unit(&Codec::Aac(config.expect("a valid record")));
            assert_eq!(unit.map(|(_, duration)| duration), lasts, "{record:x?}");
        }
    }
}
