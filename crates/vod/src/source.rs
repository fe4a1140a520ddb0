use std::fs::File;
use std::sync::Arc;

use payload::FileVersion;

/// An MP4 file of a title.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path below the root.
    pub(crate) name: String,
    pub(crate) file: Arc<File>,
    pub(crate) len: u64,
    pub(crate) stamp: FileVersion,
}
