//! MP4 files, progressive and fragmented: an index of every track's samples.
