//! FLV tags and RTMP messages.

use media::clock::Unwrapper;
use media::flv::Metadata;
use media::stamp::REACH;

use crate::playback::{Stamps, Track};
use crate::{Error, Micros};

/// Whether an FLV tag or RTMP message with these first bytes of payload holds an access unit.
/// Others are a sequence header, the end of a sequence or a command (FLV annex E.4.2.1 and E.4.3.1;
/// Enhanced RTMP v2, "ExAudioTagHeader" and "ExVideoTagHeader").
fn is_media(track: Track, start: [u8; 2]) -> bool {
    let [first, second] = start;
    match track {
        Track::Video if first & 0x80 != 0 => !matches!(first & 0x0F, 0 | 2 | 4 | 5),
        Track::Video if first >> 4 == 5 => false,
        // AVC, and HEVC in the form that many encoders write.
        Track::Video if matches!(first & 0x0F, 7 | 12) => second == 1,
        Track::Audio if first >> 4 == 9 => !matches!(first & 0x0F, 0 | 2 | 4),
        // AAC.
        Track::Audio if first >> 4 == 10 => second == 1,
        Track::Video | Track::Audio => true,
    }
}

/// Whether decoding can begin with the access unit of an FLV tag or RTMP message with this first byte of payload.
/// FrameType is 1 for a keyframe, in the form of annex E.4.3.1 and in that of Enhanced RTMP.
fn begins(track: Track, first: u8) -> bool {
    track == Track::Audio || first >> 4 & 7 == 1
}

/// Longest step between two messages of a track, in milliseconds, that counts as the duration of
/// the first. A longer step is a hole.
const MAX_FRAME: i64 = 1000;

/// Turns timestamps of FLV tags and RTMP messages into ranges of media. The duration of an access
/// unit is known when the next one comes.
///
/// A server may begin in the midst of a group of pictures. No player can show frames before the next
/// keyframe, so they are no media.
#[derive(Debug)]
pub struct FlvTimes {
    clock: Unwrapper,
    /// Whether an access unit came that decoding can begin with, of each track.
    begun: [bool; 2],
    last: [Option<i64>; 2],
}

impl Default for FlvTimes {
    fn default() -> Self {
        Self { clock: Unwrapper::new(32), begun: [false; 2], last: [None; 2] }
    }
}

impl FlvTimes {
    /// Takes a tag or message: the first bytes of its payload, and its timestamp in milliseconds. Returns from when to
    /// when there are now media to play: up to this access unit, from the one before. `None` if it is nothing to play.
    pub fn unit(
        &mut self,
        track: Track,
        start: [u8; 2],
        timestamp: u32,
    ) -> Option<(Micros, Micros)> {
        let begun = &mut self.begun[track as usize];
        *begun |= is_media(track, start) && begins(track, start[0]);
        if !is_media(track, start) || !*begun {
            return None;
        }
        let to = self.clock.unwrap(timestamp.into());
        let last = self.last[track as usize].replace(to).unwrap_or(to);
        let from = if (0..=MAX_FRAME).contains(&(to - last)) { last } else { to };
        Some((from.saturating_mul(1000), to.saturating_mul(1000)))
    }
}

/// An FLV tag without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlvTag {
    /// Video or audio.
    pub track: Track,
    /// Milliseconds, all 32 bits.
    pub timestamp: u32,
    /// First bytes of the payload.
    pub start: [u8; 2],
    /// Its stamp, if it is video and has one near its start.
    pub stamps: Option<Stamps>,
}

/// What [`Flv`] finds.
#[derive(Debug, Clone, PartialEq)]
pub enum FlvEvent {
    /// What a script tag says of the stream.
    Metadata(Metadata),
    /// An audio or video tag.
    Tag(FlvTag),
}

/// Reads the tags of an FLV file or HTTP-FLV response as it comes (FLV annex E.2 and E.3).
#[derive(Debug)]
pub struct Flv {
    /// Position in the file.
    at: u64,
    stage: FlvStage,
    /// Bytes of the current header, as far as they have come.
    head: [u8; 13],
    len: usize,
    /// Bytes of payload still to pass over.
    skip: u64,
    /// First bytes of the payload of a video or script tag, after those in `head`.
    front: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlvStage {
    File,
    BackLink,
    Tag,
}

/// Tag type of video, annex E.4.1.
const VIDEO: u8 = 9;
/// Tag type of script data.
const SCRIPT: u8 = 18;
/// Longest metadata that are looked at, in bytes. Those of a file may have an index of its keyframes.
const MAX_METADATA: usize = 1 << 20;

/// Keeps the first bytes, up to `most`.
fn keep_front(front: &mut Vec<u8>, bytes: &[u8], most: usize) {
    let wanted = bytes.len().min(most.saturating_sub(front.len()));
    if wanted > 0 {
        front.reserve_exact(most - front.len());
        front.extend_from_slice(&bytes[..wanted]);
    }
}

impl Default for Flv {
    fn default() -> Self {
        Self { at: 0, stage: FlvStage::File, head: [0; 13], len: 0, skip: 0, front: Vec::new() }
    }
}

impl Flv {
    /// Takes the next bytes. Calls `event` for each tag whose payload has come.
    ///
    /// # Errors
    /// The bytes are not FLV.
    pub fn read(
        &mut self,
        mut input: &[u8],
        event: &mut impl FnMut(FlvEvent),
    ) -> Result<(), Error> {
        while !input.is_empty() {
            if self.skip > 0 {
                let taken = usize::try_from(self.skip).unwrap_or(usize::MAX).min(input.len());
                let most = match (self.stage, self.head[0]) {
                    // A stamp may be there.
                    (FlvStage::Tag, VIDEO) => REACH,
                    (FlvStage::Tag, SCRIPT) => self.payload().min(MAX_METADATA),
                    _ => 0,
                };
                keep_front(&mut self.front, &input[..taken], most);
                input = &input[taken..];
                self.advance_skip(taken, event);
                continue;
            }
            // A tag's header is read together with the first two bytes of its payload, if it has
            // them.
            let wanted = match self.stage {
                FlvStage::File => 9,
                FlvStage::BackLink => 4,
                FlvStage::Tag if self.len < 4 => 4,
                FlvStage::Tag => 11 + self.payload().min(2),
            };
            let taken = (wanted - self.len).min(input.len());
            self.head[self.len..self.len + taken].copy_from_slice(&input[..taken]);
            self.len += taken;
            self.at += taken as u64;
            input = &input[taken..];
            if self.len == wanted {
                self.header(event)?;
            }
        }
        Ok(())
    }

    fn payload(&self) -> usize {
        let [_, a, b, c, ..] = self.head;
        u32::from_be_bytes([0, a, b, c]) as usize
    }

    fn header(&mut self, event: &mut impl FnMut(FlvEvent)) -> Result<(), Error> {
        let garbage = |what: &'static str| {
            Error::new(crate::Kind::Garbage, what).at(format!("byte {}", self.at))
        };
        match self.stage {
            FlvStage::File => {
                let [f, l, v, _, _, a, b, c, d, ..] = self.head;
                let length = u32::from_be_bytes([a, b, c, d]);
                if [f, l, v] != *b"FLV" || !(9..=1024).contains(&length) {
                    return Err(garbage("not an FLV header"));
                }
                self.skip = u64::from(length - 9);
                self.next(FlvStage::BackLink);
            }
            FlvStage::BackLink => self.next(FlvStage::Tag),
            FlvStage::Tag if self.len == 4 => {
                if !matches!(self.head[0], 8 | VIDEO | SCRIPT) {
                    return Err(garbage("not an FLV tag"));
                }
            }
            FlvStage::Tag => {
                let start = self.len - 11;
                self.skip = (self.payload() - start) as u64;
                if self.skip == 0 {
                    self.end_tag(event);
                }
            }
        }
        Ok(())
    }

    fn next(&mut self, stage: FlvStage) {
        self.stage = stage;
        self.len = 0;
    }

    fn advance_skip(&mut self, taken: usize, event: &mut impl FnMut(FlvEvent)) {
        self.skip -= taken as u64;
        self.at += taken as u64;
        if self.skip == 0 && self.stage == FlvStage::Tag {
            self.end_tag(event);
        }
    }

    fn end_tag(&mut self, event: &mut impl FnMut(FlvEvent)) {
        let [kind, _, _, _, t2, t1, t0, t3, _, _, _, a, b] = self.head;
        let payload = self.payload();
        let start = [if payload > 0 { a } else { 0 }, if payload > 1 { b } else { 0 }];
        self.next(FlvStage::BackLink);
        if kind == SCRIPT {
            let payload = [&[a, b], &std::mem::take(&mut self.front)[..]].concat();
            // Damaged metadata do not harm a player.
            if let Ok(Some(metadata)) = Metadata::parse(&payload) {
                event(FlvEvent::Metadata(metadata));
            }
            return;
        }
        let track = if kind == VIDEO { Track::Video } else { Track::Audio };
        let timestamp = u32::from_be_bytes([t3, t2, t1, t0]);
        let stamps = Stamps::of_one(&self.front);
        self.front.clear();
        if payload > 0 {
            event(FlvEvent::Tag(FlvTag { track, timestamp, start, stamps }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first two bytes of a payload: a sequence header, a keyframe and another frame.
    const AVC: [[u8; 2]; 3] = [[0x17, 0], [0x17, 1], [0x27, 1]];
    /// The same in Enhanced RTMP.
    const HEVC: [[u8; 2]; 3] = [[0x90, b'h'], [0x91, b'h'], [0xA1, b'h']];

    #[test]
    fn video_begins_with_a_keyframe_and_audio_anywhere() {
        for [header, keyframe, other] in [AVC, HEVC] {
            let mut times = FlvTimes::default();
            for (at, start) in [(0, header), (0, other), (40, other)] {
                assert_eq!(times.unit(Track::Video, start, at), None);
            }
            assert_eq!(times.unit(Track::Audio, [0xAF, 0], 0), None);
            assert_eq!(times.unit(Track::Audio, [0xAF, 1], 30), Some((30_000, 30_000)));
            assert_eq!(times.unit(Track::Video, keyframe, 80), Some((80_000, 80_000)));
            assert_eq!(times.unit(Track::Video, other, 120), Some((80_000, 120_000)));
        }
    }
}
