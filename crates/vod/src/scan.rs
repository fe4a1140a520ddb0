use media::Kind;
use media::mp4::TrackIndex;

/// Facts about a track's samples that are needed before it is cut, collected in one pass.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Sample description of all samples, as an index into the track's descriptions; `None` where
    /// it changes within the track.
    pub(crate) description: Option<u16>,
    /// Numbers and presentation times of the keyframes, both rising; for video only.
    pub(crate) keyframes: Vec<(u32, i64)>,
    /// The duration that more than half of the samples have, if there is one.
    pub(crate) usual: u32,
    /// Bytes of all samples.
    pub(crate) bytes: u64,
}

impl Scan {
    pub(crate) fn of(track: &TrackIndex) -> Self {
        let video = track.track.kind() == Kind::Video;
        let mut scan = Self::default();
        let mut mixed = false;
        // The majority vote of Boyer and Moore.
        let mut votes = 0u32;
        for (number, sample) in track.samples.iter().enumerate() {
            let description = *scan.description.get_or_insert(sample.description);
            // Some writers describe the same samples several times.
            let described = |at: u16| track.descriptions.get(usize::from(at)).map(|d| &d.codec);
            mixed |= description != sample.description
                && described(description) != described(sample.description);
            scan.bytes = scan.bytes.saturating_add(sample.size.into());
            if votes == 0 {
                scan.usual = sample.duration;
            }
            votes = if scan.usual == sample.duration { votes + 1 } else { votes - 1 };
            let rises = scan.keyframes.last().is_none_or(|(_, last)| *last < sample.pts());
            if video && sample.sync && rises {
                // A sample table has 32-bit numbers.
                scan.keyframes.push((number as u32, sample.pts()));
            }
        }
        if mixed {
            scan.description = None;
        }
        scan.keyframes.shrink_to_fit();
        scan
    }

    pub(crate) fn memory(&self) -> usize {
        self.keyframes.capacity() * size_of::<(u32, i64)>()
    }
}
