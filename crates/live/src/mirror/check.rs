//! What another machine says is checked before anything is made of it: sums and differences of its numbers must not
//! overflow, and what it describes must be something that this machine could have made.

use std::time::Duration;

use media::Kind;

use crate::change::{Description, NewPart, NewUnit, WindowState};
use crate::error::{MOST_TRACKS, Refused};
use crate::window::Header;
use crate::{Settings, UnixMicros};

/// Numbers, versions and times in microseconds or ticks are below this. The year 2255 is.
const MOST: u64 = 1 << 53;
/// The longest duration of a setting.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// The highest rate, in bits per second.
const FASTEST: u64 = 1 << 40;
/// The highest timescale of a track. Video has 90,000 ticks a second, and audio its sampling rate.
const HIGHEST_TIMESCALE: u32 = 1_000_000;

fn invalid(what: &str) -> Refused {
    Refused::Io(std::io::Error::new(
        std::io::ErrorKind::InvalidData,
        format!("{what} is out of range"),
    ))
}

fn is_time(ticks: i64) -> bool {
    ticks.unsigned_abs() < MOST
}

fn is_date(time: UnixMicros) -> bool {
    time.0 < MOST
}

/// Checks what a stream is.
pub(crate) fn description(of: &Description) -> Result<(), Refused> {
    if of.tracks.len() > MOST_TRACKS {
        return Err(Refused::TooManyTracks);
    }
    let Settings {
        part_target,
        segment_target,
        target_duration,
        keyframe_distance,
        window,
        reconnect,
        silence,
        foreign_renditions: _,
    } = of.settings;
    let durations = [
        part_target,
        segment_target,
        target_duration,
        keyframe_distance,
        window,
        reconnect,
        silence,
    ];
    let durations = durations.iter().chain(&of.target_duration);
    if !durations.into_iter().all(|duration| *duration <= LONGEST) {
        return Err(invalid("a setting"));
    }
    if !is_date(of.since) || !is_date(of.epoch) || of.version >= MOST {
        return Err(invalid("the age of a stream"));
    }
    if of.adoptions.iter().any(|adoption| adoption.places.len() > MOST_TRACKS) {
        return Err(Refused::TooManyTracks);
    }
    if of.adoptions.len() > Description::MOST_ADOPTIONS {
        return Err(invalid("the number of adoptions"));
    }
    if of.named.iter().any(|&count| count > 1 << 24) {
        return Err(invalid("the number of tracks"));
    }
    of.tracks.iter().try_for_each(|track| header(&track.header))
}

/// Checks what a track is.
fn header(header: &Header) -> Result<(), Refused> {
    let track = &header.track;
    if !(1..=HIGHEST_TIMESCALE).contains(&track.timescale) || header.msn >= MOST {
        return Err(invalid("a timescale"));
    }
    if track.kind() == Kind::Other {
        return Err(Refused::Codec(track.codec.rfc6381().into_owned()));
    }
    Ok(())
}

/// Checks a part of a track.
pub(crate) fn part(part: &NewPart) -> Result<(), Refused> {
    let (msn, at) = part.place;
    if msn >= MOST || at as u64 >= MOST || !is_date(part.published) {
        return Err(invalid("a part's place"));
    }
    let due = part.samples.iter().map(|sample| sample.dts);
    if !due.chain([part.start]).all(is_time) {
        return Err(invalid("a time"));
    }
    let Some(begins) = &part.begins else { return Ok(()) };
    let times = [begins.start, begins.presents, begins.period_start];
    let are_times = times.iter().chain(&begins.expected_end).all(|&time| is_time(time));
    if !are_times || begins.period >= MOST || !is_date(begins.captured) {
        return Err(invalid("a time"));
    }
    if begins.discontinuity && begins.period == 0 {
        return Err(invalid("a discontinuity before any period"));
    }
    if begins.header.track.id != part.track {
        return Err(invalid("a header's track"));
    }
    header(&begins.header)
}

/// Checks an access unit.
pub(crate) fn unit(unit: &NewUnit) -> Result<(), Refused> {
    let (period, dts) = unit.place;
    if period >= MOST || !is_time(dts) {
        return Err(invalid("a time"));
    }
    Ok(())
}

/// Checks a window.
pub(crate) fn window(window: &WindowState) -> Result<(), Refused> {
    let (mean, peak) = window.rate.unwrap_or_default();
    if window.version >= MOST || mean >= FASTEST || peak >= FASTEST {
        return Err(invalid("a window"));
    }
    Ok(())
}
