/// A file or track that a title leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Path of the file below the root.
    pub file: String,
    /// track_ID in the file; `None` for the whole file.
    pub track: Option<u32>,
    /// RFC 6381 string of the codec, or its four-character code; empty for a whole file.
    pub codec: String,
    /// The reason, as a clause.
    pub reason: String,
}
