//! Media types by file name.

/// Whether a browser that opens this type as a document only displays or plays it. HTML, SVG and
/// all other XML can contain scripts.
pub(super) fn is_passive(media_type: &str) -> bool {
    let passive = ["video/", "audio/", "image/", "font/"];
    passive.iter().any(|kind| media_type.starts_with(kind)) && !media_type.contains("xml")
}

/// The media type of a file with this name. Players and browsers depend on it. So it is the
/// container's registered type, even if the container could hold only audio.
pub(super) fn of(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension.to_ascii_lowercase().as_str() {
        // Containers and elementary streams.
        "mp4" | "m4v" | "cmfv" | "f4v" => "video/mp4",
        "m4a" | "m4b" | "cmfa" => "audio/mp4",
        "m4s" => "video/iso.segment",
        "cmft" => "application/mp4",
        "mov" | "qt" => "video/quicktime",
        "3gp" | "3gpp" => "video/3gpp",
        "3g2" => "video/3gpp2",
        "ts" | "m2ts" | "mts" => "video/mp2t",
        "mpg" | "mpeg" | "vob" => "video/mpeg",
        "flv" => "video/x-flv",
        "webm" => "video/webm",
        "mkv" => "video/x-matroska",
        "mka" => "audio/x-matroska",
        "avi" => "video/x-msvideo",
        "wmv" => "video/x-ms-wmv",
        "asf" => "video/x-ms-asf",
        "ogv" => "video/ogg",
        "ogg" | "oga" | "opus" => "audio/ogg",
        "mp3" => "audio/mpeg",
        "aac" => "audio/aac",
        "ac3" => "audio/ac3",
        "ec3" | "eac3" => "audio/eac3",
        "flac" => "audio/flac",
        "wav" => "audio/wav",
        "mid" | "midi" => "audio/midi",
        // Playlists, manifests, subtitles, keys.
        "m3u8" | "m3u" => "application/vnd.apple.mpegurl",
        "mpd" => "application/dash+xml",
        "vtt" => "text/vtt; charset=utf-8",
        "srt" => "application/x-subrip",
        "ttml" | "dfxp" => "application/ttml+xml",
        "key" => "application/octet-stream",
        // Pages.
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "wasm" => "application/wasm",
        "json" | "map" => "application/json",
        "xml" => "application/xml",
        "txt" | "log" | "md" => "text/plain; charset=utf-8",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        // Images.
        "jpg" | "jpeg" => "image/jpeg",
        "png" => "image/png",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "svg" => "image/svg+xml",
        "ico" => "image/vnd.microsoft.icon",
        "bmp" => "image/bmp",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn by_the_end_of_the_name() {
        for (path, expected) in [
            ("a/b.mp4", "video/mp4"),
            ("A.MP4", "video/mp4"),
            ("a.b.webp", "image/webp"),
            ("x/seg-1.m4s", "video/iso.segment"),
            ("x.key", "application/octet-stream"),
            ("folder.mp4/file", "application/octet-stream"),
            ("mp4", "application/octet-stream"),
            (".mp4", "video/mp4"),
            ("a.", "application/octet-stream"),
            ("", "application/octet-stream"),
        ] {
            assert_eq!(super::of(path), expected, "{path}");
        }
    }
}
