//! Movie fragments, ISO/IEC 14496-12 8.8.

use super::boxes::Body;
use super::movie::TrackState;
use super::table::SampleEntry;
use crate::{Codec, Error, Kind};

/// `tfhd` flags, 8.8.7.1.
mod tfhd {
    pub(super) const BASE_DATA_OFFSET: u32 = 0x1;
    pub(super) const DESCRIPTION: u32 = 0x2;
    pub(super) const DURATION: u32 = 0x8;
    pub(super) const SIZE: u32 = 0x10;
    pub(super) const FLAGS: u32 = 0x20;
    pub(super) const BASE_IS_MOOF: u32 = 0x2_0000;
}

/// `trun` flags, 8.8.8.1.
mod trun {
    pub(super) const DATA_OFFSET: u32 = 0x1;
    pub(super) const FIRST_FLAGS: u32 = 0x4;
    pub(super) const DURATION: u32 = 0x100;
    pub(super) const SIZE: u32 = 0x200;
    pub(super) const FLAGS: u32 = 0x400;
    pub(super) const CTS: u32 = 0x800;
}

/// User type of the PIFF sample encryption box, the predecessor of `senc` (ISO/IEC 23001-7 7.2).
const PIFF: [u8; 16] = 0xa239_4f52_5a9b_4f14_a244_6c42_7c64_8df4_u128.to_be_bytes();

/// sample_is_non_sync_sample, one of the sample flags, 8.8.3.1.
const NON_SYNC: u32 = 0x1_0000;

/// Whether the sample flags are those of a sync sample. Some encoders only say with
/// sample_depends_on that a frame needs others.
fn is_sync(flags: u32) -> bool {
    let depends_on = (flags >> 24) & 3;
    flags & NON_SYNC == 0 && depends_on != 1
}

/// Adds the samples of one `moof` to its tracks. A broken track fragment is a problem of its track
/// only, and the samples read before that stay.
///
/// # Errors
/// The `moof` itself is broken, or it has a fragment of a track that is not in `moov`. The other
/// fragments have been read.
pub(super) fn read(moof: Body, tracks: &mut [TrackState]) -> Result<(), Error> {
    // 8.8.7.1: by default the data of the first track fragment count from the start of the moof,
    // and those of each further one from the end of the data before.
    let mut implicit_base = moof.start;
    let mut unknown = None;
    for child in moof.children() {
        let traf = child?;
        if traf.kind != *b"traf" {
            continue;
        }
        let mut header = traf.required(b"tfhd")?;
        let (_, flags) = header.version_flags()?;
        let id = header.u32()?;
        let Some(track) = tracks.iter_mut().find(|track| track.index.track.id == id) else {
            let what = format!("tfhd: track_ID {id} is not in moov");
            unknown = Some(Error::malformed(what, header.start));
            continue;
        };
        let base = if flags & tfhd::BASE_DATA_OFFSET != 0 {
            header.u64()?
        } else if flags & tfhd::BASE_IS_MOOF != 0 {
            moof.start
        } else {
            implicit_base
        };
        match fragment(traf, header, flags, base, track) {
            Ok(end) => implicit_base = end,
            Err(problem) => track.trouble(problem),
        }
    }
    unknown.map_or(Ok(()), Err)
}

/// Values that hold for all runs of a track fragment.
struct Context {
    /// Position from which data offsets count.
    base: u64,
    /// End of the data of the previous run.
    end: u64,
    description: u16,
    duration: u32,
    size: u32,
    flags: u32,
}

/// Reads one `traf`. `header` is the rest of its `tfhd`. Returns where the data of the `traf` end.
fn fragment(
    traf: Body,
    mut header: Body,
    flags: u32,
    base: u64,
    track: &mut TrackState,
) -> Result<u64, Error> {
    let mut field = |flag, default| if flags & flag == 0 { Ok(default) } else { header.u32() };
    let description = field(tfhd::DESCRIPTION, track.defaults.description)?;
    let mut context = Context {
        base,
        end: base,
        description: 0,
        duration: field(tfhd::DURATION, track.defaults.duration)?,
        size: field(tfhd::SIZE, track.defaults.size)?,
        flags: field(tfhd::FLAGS, track.defaults.flags)?,
    };
    let known = track.index.descriptions.len();
    context.description = u16::try_from(description.wrapping_sub(1))
        .ok()
        .filter(|index| usize::from(*index) < known)
        .ok_or_else(|| {
            header.malformed(format_args!("sample description {description} of {known}"))
        })?;

    // Looks for encrypted samples whose description does not name an encrypted codec.
    let description = track.index.descriptions.get(usize::from(context.description));
    let says_so = description.is_some_and(|each| match &each.codec {
        // encv, enca, enct: ISO/IEC 14496-12 8.12.
        Codec::Other(other) => other.fourcc.starts_with(b"enc"),
        _ => false,
    });
    for child in traf.children().filter(|_| !says_so) {
        let child = child?;
        if child.kind == *b"senc" || traf.user_type(&child) == Some(PIFF) {
            let what = format!("encryption of {}", track.index);
            return Err(Error::unsupported(what, child.start));
        }
    }

    let mut dts = track.builder.end_dts();
    if let Some(mut tfdt) = traf.child(b"tfdt")? {
        let (version, _) = tfdt.version_flags()?;
        dts = i64::try_from(tfdt.u32_or_u64(version)?)
            .map_err(|_| tfdt.malformed("time overflows 63 bits"))?;
    }
    for child in traf.children() {
        let run = child?;
        if run.kind == *b"trun" {
            dts = read_run(run, &mut context, dts, track)?;
        }
    }
    Ok(context.end)
}

/// Reads one `trun` whose first sample has decode time `dts`. Returns the end of its last sample.
fn read_run(
    mut run: Body,
    context: &mut Context,
    mut dts: i64,
    track: &mut TrackState,
) -> Result<i64, Error> {
    let at = ("trun", run.start);
    let (_, flags) = run.version_flags()?;
    let count = run.u32()?;
    let mut offset = context.end;
    if flags & trun::DATA_OFFSET != 0 {
        let relative = i64::from(run.u32()?.cast_signed());
        offset = context
            .base
            .checked_add_signed(relative)
            .ok_or_else(|| run.malformed(format_args!("data offset {relative} leaves the file")))?;
    }
    let first_flags = if flags & trun::FIRST_FLAGS != 0 { Some(run.u32()?) } else { None };
    let columns = flags & (trun::DURATION | trun::SIZE | trun::FLAGS | trun::CTS);
    let row = columns.count_ones() as usize * 4;
    let announced = u64::from(count) * row as u64;
    if announced > run.data.len() as u64 {
        let present = run.data.len() / row.max(1);
        return Err(run.malformed(format_args!("{count} samples announced, {present} present")));
    }
    let audio = track.kind == Kind::Audio;
    let sample = |dts, offset, duration, size, sample_flags, cts| SampleEntry {
        dts,
        cts,
        duration,
        // For audio, writers set different flags here. All audio frames are sync samples.
        sync: audio || is_sync(sample_flags),
        offset,
        size,
        description: context.description,
    };
    let mut number = 0;
    while number < count {
        let mut column = |flag, default| if flags & flag == 0 { Ok(default) } else { run.u32() };
        let duration = column(trun::DURATION, context.duration)?;
        let size = column(trun::SIZE, context.size)?;
        let own_flags = column(trun::FLAGS, context.flags)?;
        let cts = column(trun::CTS, 0)?.cast_signed();
        let sample_flags = first_flags.filter(|_| number == 0).unwrap_or(own_flags);
        // Without per-sample columns all samples are equal, except possibly the first.
        let alike =
            if columns != 0 || (number == 0 && first_flags.is_some()) { 1 } else { count - number };
        let entry = sample(dts, offset, duration, size, sample_flags, cts);
        track.builder.push(entry, alike, at)?;
        dts = track.builder.end_dts();
        // The builder has checked that neither overflows.
        offset += u64::from(alike) * u64::from(size);
        number += alike;
    }
    context.end = offset;
    Ok(dts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_need_others_are_no_sync_samples() {
        // As ffmpeg writes them, and as encoders do that set only sample_depends_on; 0 and 3 tell nothing.
        for (flags, sync) in [
            (0x0200_0000, true),
            (0x0101_0000, false),
            (0x0100_0000, false),
            (0, true),
            (0x0300_0000, true),
            (0x0001_0000, false),
        ] {
            assert_eq!(is_sync(flags), sync, "{flags:#x}");
        }
    }
}
