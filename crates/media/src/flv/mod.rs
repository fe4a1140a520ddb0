//! FLV files and the tag payloads that RTMP shares with them.
