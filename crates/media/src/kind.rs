/// What a track carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Video frames.
    Video,
    /// Audio.
    Audio,
    /// Text, metadata or time codes: listed, not delivered.
    Other,
}
