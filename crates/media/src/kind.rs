/// What a track carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Frames.
    Video,
    /// Audio.
    Audio,
    /// Text, metadata, time codes: listed, not delivered.
    Other,
}
