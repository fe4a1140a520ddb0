//! Reads playlists of HLS.

/// The lines that are addresses: in a media playlist, its complete segments.
pub fn listed(playlist: &str) -> impl Iterator<Item = &str> {
    playlist.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The numbers of the complete segments in a media playlist of the origin.
pub fn numbers(playlist: &str) -> Vec<u64> {
    listed(playlist).filter_map(|name| name.strip_suffix(".m4s")?.parse().ok()).collect()
}

/// A date such as `2026-01-02T03:04:05.678Z`, in seconds since 1970.
///
/// # Panics
/// The text is no such date.
#[track_caller]
pub fn date(text: &str) -> f64 {
    let date: jiff::Timestamp = text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"));
    date.as_microsecond() as f64 / 1e6
}

/// The attribute URI of each line that begins with `tag`. All tags begin with `#`.
pub fn uris<'a>(playlist: &'a str, tag: &'a str) -> impl Iterator<Item = &'a str> {
    let tags = playlist.lines().filter(move |line| line.starts_with(tag));
    tags.filter_map(|line| Some(line.split_once("URI=\"")?.1.split_once('"')?.0))
}

/// The part that comes next in a live playlist of the origin: its segment's number and its own.
///
/// # Panics
/// The playlist has no hint of it.
#[track_caller]
pub fn hint(playlist: &str) -> (u64, usize) {
    let name = uris(playlist, "#EXT-X-PRELOAD-HINT").next().and_then(|name| {
        let (segment, part) = name.strip_suffix(".m4s")?.split_once('.')?;
        Some((segment.parse().ok()?, part.parse().ok()?))
    });
    name.unwrap_or_else(|| panic!("no hint of a part: {playlist}"))
}
