use media::Kind;
use media::mp4::TrackIndex;

/// What there is to know of a track's samples before it can be cut, found in one pass.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// What all samples are coded with, as an index into the track's descriptions; `None` where
    /// it changes.
    pub(crate) description: Option<u16>,
    /// Number and presentation time of the keyframes, both rising; of video only.
    pub(crate) keyframes: Vec<(u32, i64)>,
    /// The duration most samples have, where more than half agree.
    pub(crate) usual: u32,
    /// Bytes of all samples.
    pub(crate) bytes: u64,
}

impl Scan {
    pub(crate) fn of(track: &TrackIndex) -> Self {
        let video = track.track.kind() == Kind::Video;
        let mut scan = Self::default();
        let mut mixed = false;
        // Boyer and Moore's vote.
        let mut votes = 0u32;
        for (number, sample) in track.samples.iter().enumerate() {
            let description = *scan.description.get_or_insert(sample.description);
            mixed |= description != sample.description;
            scan.bytes = scan.bytes.saturating_add(sample.size.into());
            if votes == 0 {
                scan.usual = sample.duration;
            }
            votes = if scan.usual == sample.duration { votes + 1 } else { votes - 1 };
            let rises = scan.keyframes.last().is_none_or(|(_, last)| *last < sample.pts());
            if video && sample.sync && rises {
                // A table numbers its samples in 32 bits.
                scan.keyframes.push((number as u32, sample.pts()));
            }
        }
        if mixed {
            scan.description = None;
        }
        scan
    }
}
