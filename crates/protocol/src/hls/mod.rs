//! HLS playlists, RFC 8216bis.
