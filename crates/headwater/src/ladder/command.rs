//! Makes ffmpeg's arguments, and chooses the renditions for a source of a given size.

use std::fmt;
use std::os::fd::RawFd;

use crate::config::{Ladder, Rung};

/// Most pixels that a frame of the source may have: 8K.
const MOST_PIXELS: u32 = 8192 * 4352;

/// A rendition with the size in which it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) rung: Rung,
    /// Pixels, both even.
    pub(super) width: u32,
    pub(super) height: u32,
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rung, width, height } = self;
        write!(f, "{} {width}x{height} {}", rung.name, rung.bitrate)
    }
}

/// The source's frame rate: `frames` frames in `ticks` ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    /// Number of frames.
    pub(super) frames: u64,
    /// Duration of these frames, in ticks.
    pub(super) ticks: u64,
    /// Ticks in a second.
    pub(super) timescale: u32,
}

impl Rate {
    /// Duration of a frame in nanoseconds.
    pub(super) fn frame(self) -> u64 {
        self.ticks * 1_000_000_000 / (u64::from(self.timescale) * self.frames).max(1)
    }
}

/// Chooses the rungs for a source of this size. Frames are scaled down to fit, never up. Rungs
/// larger than the source are left out. If all are larger, the smallest rung is made in the
/// source's size.
pub(super) fn fitting(rungs: &[Rung], (width, height): (u32, u32)) -> Vec<Made> {
    let (width, height) = (width.max(1), height.max(1));
    let upright = height > width;
    let within = |rung: &Rung| {
        let (long, short) = (rung.width.max(rung.height), rung.width.min(rung.height));
        if upright == (rung.height > rung.width) {
            (rung.width, rung.height)
        } else if upright {
            (short, long)
        } else {
            (long, short)
        }
    };
    let made: Vec<Made> = rungs
        .iter()
        .filter_map(|rung| {
            let (most_wide, most_high) = within(rung);
            if most_wide > width && most_high > height {
                return None;
            }
            let product = |a: u32, b: u32| u64::from(a) * u64::from(b);
            // The dimension that reaches its limit first decides.
            let (wide, high) = if product(most_wide, height) <= product(most_high, width) {
                (even(most_wide.into(), 1), even(product(height, most_wide), width))
            } else {
                (even(product(width, most_high), height), even(most_high.into(), 1))
            };
            Some(Made { rung: rung.clone(), width: wide, height: high })
        })
        .collect();
    if !made.is_empty() {
        return made;
    }
    let smallest = rungs.iter().min_by_key(|rung| (rung.bitrate, rung.width));
    let same = |rung: &Rung| Made {
        rung: rung.clone(),
        width: (width & !1).max(2),
        height: (height & !1).max(2),
    };
    smallest.map(same).into_iter().collect()
}

/// The even number nearest to a fraction, at least 2.
fn even(numerator: u64, denominator: u32) -> u32 {
    let denominator = u64::from(denominator);
    let half = (numerator + denominator) / (2 * denominator);
    u32::try_from(half * 2).unwrap_or(u32::MAX).max(2)
}

/// Arguments that ffmpeg gets one by one.
struct Arguments(Vec<String>);

impl Arguments {
    /// Arguments for reading Matroska from standard input. Timestamps stay the same.
    fn reading() -> Self {
        let mut arguments = Self(Vec::new());
        arguments.add("-nostdin -hide_banner -nostats -loglevel level+warning");
        // The header describes the stream, so ffmpeg need not read ahead to probe it. Decoders with a
        // thread for each frame would delay each frame by as many frames.
        arguments.add("-copyts -probesize 32 -analyzeduration 0 -thread_type slice");
        // A publisher could announce huge frames, and they must not take all memory.
        arguments.add(&format!("-max_pixels {MOST_PIXELS} -f matroska -i pipe:0"));
        arguments
    }

    /// Adds the words of a text.
    fn add(&mut self, text: &str) {
        self.0.extend(text.split_ascii_whitespace().map(str::to_owned));
    }

    /// Encodes H.264 without looking ahead. Keyframes are where the source has them.
    fn encode(&mut self, ladder: &Ladder) {
        let Ladder { preset, threads, .. } = ladder;
        self.add("-fps_mode passthrough -enc_time_base 1:90000");
        self.add(&format!("-c:v libx264 -preset {preset} -tune zerolatency -threads {threads}"));
        self.add("-force_key_frames source -forced-idr 1 -sc_threshold 0");
    }

    /// Writes video as FLV.
    fn write_video(&mut self, pipe: RawFd) {
        self.add(&format!("-f flv -flvflags no_duration_filesize -flush_packets 1 pipe:{pipe}"));
    }
}

/// Makes ffmpeg's arguments for renditions. ffmpeg writes each as FLV into its pipe.
pub(super) fn renditions(
    ladder: &Ladder,
    made: &[Made],
    pipes: &[RawFd],
    rate: Rate,
) -> Vec<String> {
    let mut arguments = Arguments::reading();
    let mut graph = format!("[0:v:0]split={}", made.len());
    for at in 0..made.len() {
        graph += &format!("[s{at}]");
    }
    for (at, Made { width, height, .. }) in made.iter().enumerate() {
        graph += &format!(";[s{at}]scale={width}:{height}:flags=bicubic,format=yuv420p[r{at}]");
    }
    arguments.add("-filter_complex");
    arguments.add(&graph);

    let keyframes = keyframe_interval(ladder, rate);
    for (at, (Made { rung, .. }, pipe)) in made.iter().zip(pipes).enumerate() {
        let bits = rung.bitrate.0;
        arguments.add(&format!("-map [r{at}]"));
        // All renditions can be cut at the same places.
        arguments.encode(ladder);
        // The buffer holds one second, so frames with much motion can borrow bits from others.
        arguments.add(&format!("-b:v {bits} -maxrate {bits} -bufsize {bits} -g {keyframes}"));
        arguments.write_video(*pipe);
    }
    arguments.0
}

/// Video of a companion.
#[derive(Debug, Clone, Copy)]
pub(super) struct Video {
    /// Frames before this presentation time, in milliseconds, are only decoded.
    pub(super) from: i64,
    /// The most bits in a second.
    pub(super) most: u64,
}

/// Makes ffmpeg's arguments for a companion: Opus in Ogg, which gives its times to the sample, and H.264
/// in FLV, each into the next of `pipes`.
///
/// Nothing waits: x264 and Opus look ahead as little as they can, and each packet is written at once.
/// `-fflags nobuffer` would drop the packets by which ffmpeg begins, and so the keyframe.
pub(super) fn companion(
    ladder: &Ladder,
    has_audio: bool,
    video: Option<Video>,
    pipes: &[RawFd],
) -> Vec<String> {
    let mut arguments = Arguments::reading();
    let mut pipes = pipes.iter();
    if has_audio && let Some(pipe) = pipes.next() {
        arguments.add("-map 0:a:0 -c:a libopus -application lowdelay -frame_duration 20");
        // WebRTC has two channels at 48 kHz (RFC 7587 4.2 and 7).
        arguments.add("-ac 2 -ar 48000 -b:a 96k");
        arguments.add(&format!("-f ogg -page_duration 1 -flush_packets 1 pipe:{pipe}"));
    }
    if let (Some(Video { from, most }), Some(pipe)) = (video, pipes.next()) {
        arguments.add("-map 0:v:0 -vf");
        // The encoder begins with a keyframe, wherever that is. It wants even sizes.
        arguments
            .add(&format!("trim=start={from}ms,scale=trunc(iw/2)*2:trunc(ih/2)*2,format=yuv420p"));
        arguments.encode(ladder);
        // As good as the source looks at its own bitrate, and no more than that.
        arguments.add(&format!("-crf 23 -maxrate {most} -bufsize {most}"));
        arguments.write_video(*pipe);
    }
    arguments.0
}

/// The longest distance between keyframes, in frames.
fn keyframe_interval(ladder: &Ladder, rate: Rate) -> u64 {
    let interval = u64::try_from(ladder.keyframe_interval.0.as_nanos()).unwrap_or(u64::MAX);
    // The duration of a frame was rounded down. An interval of a whole number of frames must keep
    // this number.
    interval.saturating_sub(interval / 1_000_000).div_ceil(rate.frame().max(1)).clamp(1, 100_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Time;

    const NTSC: Rate = Rate { frames: 6, ticks: 18_018, timescale: 90_000 };
    const THIRTY: Rate = Rate { frames: 6, ticks: 18_000, timescale: 90_000 };

    fn sizes(source: (u32, u32)) -> Vec<(String, u32, u32)> {
        let made = fitting(&Ladder::default().rungs, source);
        made.into_iter().map(|made| (made.rung.name, made.width, made.height)).collect()
    }

    fn called(sizes: &[(&str, u32, u32)]) -> Vec<(String, u32, u32)> {
        sizes.iter().map(|&(name, width, height)| (name.to_owned(), width, height)).collect()
    }

    #[test]
    fn frames_are_scaled_to_fit_and_never_up() {
        for (source, expected) in [
            ((1920, 1080), &[("240p", 320, 180), ("720p", 1280, 720), ("1080p", 1920, 1080)][..]),
            ((3840, 2160), &[("240p", 320, 180), ("720p", 1280, 720), ("1080p", 1920, 1080)]),
            ((1280, 720), &[("240p", 320, 180), ("720p", 1280, 720)]),
            ((640, 480), &[("240p", 320, 240)]),
            // As wide as the rung or as high as the rung, but not larger.
            ((1920, 800), &[("240p", 320, 134), ("720p", 1280, 534), ("1080p", 1920, 800)]),
            ((1440, 1080), &[("240p", 320, 240), ("720p", 960, 720), ("1080p", 1440, 1080)]),
            // Upright video.
            ((1080, 1920), &[("240p", 180, 320), ("720p", 720, 1280), ("1080p", 1080, 1920)]),
            // Smaller than all rungs.
            ((161, 121), &[("240p", 160, 120)]),
            ((1, 1), &[("240p", 2, 2)]),
            ((0, 0), &[("240p", 2, 2)]),
            ((100_000, 1), &[("240p", 320, 2), ("720p", 1280, 2), ("1080p", 1920, 2)]),
        ] {
            assert_eq!(sizes(source), called(expected), "{source:?}");
        }
    }

    #[test]
    fn every_rendition_has_its_size_bitrate_and_pipe() {
        let ladder = Ladder { threads: 2, ..Ladder::default() };
        let made = fitting(&ladder.rungs, (1920, 1080));
        let arguments = renditions(&ladder, &made, &[7, 9, 11], THIRTY).join(" ");
        let graph = "[0:v:0]split=3[s0][s1][s2];\
                     [s0]scale=320:180:flags=bicubic,format=yuv420p[r0];\
                     [s1]scale=1280:720:flags=bicubic,format=yuv420p[r1];\
                     [s2]scale=1920:1080:flags=bicubic,format=yuv420p[r2]";
        assert!(arguments.contains(&format!("-filter_complex {graph} -map [r0]")), "{arguments}");
        for (rung, bits, pipe) in [("r0", 100_000, 7), ("r1", 1_200_000, 9), ("r2", 5_000_000, 11)]
        {
            let of = arguments.split(&format!("-map [{rung}]")).nth(1).unwrap();
            let of = of.split("-map").next().unwrap();
            assert!(of.contains(&format!("-b:v {bits} -maxrate {bits} -bufsize {bits}")), "{of}");
            assert!(of.contains("-force_key_frames source") && of.contains("-g 120 "), "{of}");
            assert!(of.contains("-preset veryfast") && of.contains("-threads 2 "), "{of}");
            assert!(of.trim_end().ends_with(&format!("pipe:{pipe}")), "{of}");
        }
        assert!(arguments.contains("-copyts") && !arguments.contains("-c:a"), "{arguments}");
    }

    #[test]
    fn a_companion_has_what_its_stream_lacks() {
        let video = Video { from: 1234, most: 800_000 };
        let of = |has_audio, video, pipes: &[RawFd]| {
            companion(&Ladder::default(), has_audio, video, pipes).join(" ")
        };
        let (audio, both) = (of(true, None, &[7]), of(true, Some(video), &[7, 9]));
        assert!(audio.contains("libopus") && audio.ends_with(" pipe:7"), "{audio}");
        assert!(!audio.contains("libx264"), "{audio}");
        assert!(both.contains("-flush_packets 1 pipe:7 -map 0:v:0 "), "{both}");
        assert!(both.contains("trim=start=1234ms") && both.ends_with(" pipe:9"), "{both}");
        let video = of(false, Some(video), &[7]);
        assert!(!video.contains("libopus") && video.ends_with(" pipe:7"), "{video}");
    }

    #[test]
    fn keyframes_are_counted_in_frames() {
        let of = |interval: Time| Ladder { keyframe_interval: interval, ..Ladder::default() };
        for (interval, rate, frames) in [
            (Time::from_secs(4), THIRTY, 120),
            (Time::from_secs(4), NTSC, 120),
            (Time::from_secs(2), NTSC, 60),
            (Time::from_millis(100), THIRTY, 3),
            (Time::from_millis(100), Rate { frames: 1, ticks: 90_000, timescale: 90_000 }, 1),
            (Time::from_secs(4), Rate { frames: 0, ticks: 0, timescale: 90_000 }, 100_000),
        ] {
            assert_eq!(keyframe_interval(&of(interval), rate), frames, "{interval} {rate:?}");
        }
    }
}
