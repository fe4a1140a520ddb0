//! The media plane: HTTP/1.1 for bytes and playlists.
