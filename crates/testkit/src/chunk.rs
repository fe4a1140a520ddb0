//! Track and decode time of a CMAF chunk, read without a parser.

/// ID of a chunk's track (ISO/IEC 14496-12, 8.8.7).
///
/// # Panics
/// It is no chunk.
#[track_caller]
pub fn track_of(chunk: &[u8]) -> u32 {
    let header = payload(chunk, b"tfhd");
    u32::from_be_bytes(*header[4..].first_chunk().expect("a track ID"))
}

/// Decode time of a chunk's first sample, in its track's timescale (ISO/IEC 14496-12, 8.8.12).
///
/// # Panics
/// It is no chunk.
#[track_caller]
pub fn time_of(chunk: &[u8]) -> u64 {
    let time = payload(chunk, b"tfdt");
    match time[0] {
        0 => u32::from_be_bytes(*time[4..].first_chunk().expect("32 bits")).into(),
        _ => u64::from_be_bytes(*time[4..].first_chunk().expect("64 bits")),
    }
}

/// The bytes after the first box name like this.
#[track_caller]
fn payload<'a>(chunk: &'a [u8], name: &[u8; 4]) -> &'a [u8] {
    let at = chunk.windows(4).position(|four| four == name).expect("a chunk");
    &chunk[at + 4..]
}
