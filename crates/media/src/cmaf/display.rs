use bytes::Bytes;

/// Transformation of video frames for display, as `a b u c d v x y w` in 16.16 and 2.30 fixed point
/// (ISO/IEC 14496-12 8.3.2).
pub type Matrix = [i32; 9];

/// Shows frames as they are coded.
pub const UPRIGHT: Matrix = [1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30];

/// How a player shows the frames of a video track, as far as the container says so. The codec's own
/// data may say the same or nothing: `ffmpeg -aspect -c copy` changes only the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Display {
    /// Transformation of the frames (`tkhd`).
    pub matrix: Matrix,
    /// Width and height before that transformation (`tkhd`), in 16.16 fixed point. Less than a pixel
    /// stands for the coded size: some writers leave the size out, or write plain integers.
    pub size: (u32, u32),
    /// Whole boxes of the visual sample entry that describe the frames, of the kinds that
    /// [`is_property`](Self::is_property) names.
    pub properties: Bytes,
}

impl Display {
    /// Frames are shown as they are coded.
    pub const AS_CODED: Self =
        Self { matrix: UPRIGHT, size: (0, 0), properties: Bytes::from_static(&[]) };

    /// Whether a box in a visual sample entry describes how frames are shown: the shape of a pixel
    /// (`pasp`) and the visible area (`clap`, ISO/IEC 14496-12 12.1.4), the colours (`colr`, 12.1.5),
    /// and the light of the mastering display, of the content and of the surroundings.
    pub fn is_property(kind: [u8; 4]) -> bool {
        matches!(&kind, b"pasp" | b"clap" | b"colr" | b"mdcv" | b"clli" | b"amve")
    }
}
