//! Finds the resource that a path names.

use live::Delivery;

/// The name of the resource to which players tell of themselves.
pub(super) const BEACON: &str = "cmcd";

/// A resource of a live stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource<'a> {
    /// `index.m3u8`
    Multivariant,
    /// `TRACK/media.m3u8`
    MediaPlaylist { track: &'a str },
    /// `manifest.mpd`
    Manifest,
    /// `TRACK/init.mp4`, the newest, or `TRACK/init.MSN.mp4`, the one that segment MSN began with
    Header { track: &'a str, msn: Option<u64> },
    /// `TRACK/MSN.m4s`
    Segment { track: &'a str, msn: u64 },
    /// `TRACK/tTIME.m4s`: the segment that starts at TIME, in the track's timescale
    SegmentAt { track: &'a str, time: i64 },
    /// `TRACK/MSN.PART.m4s`
    Part { track: &'a str, msn: u64, part: usize },
    /// `live.mp4`
    Mp4,
    /// `live.flv`
    Flv,
    /// `push`
    Push,
    /// `cmcd`
    Beacon,
}

impl Resource<'_> {
    /// The delivery that it belongs to, if the query says nothing else. A beacon belongs to none.
    pub(super) fn delivery(self) -> Option<Delivery> {
        Some(match self {
            Self::Multivariant
            | Self::MediaPlaylist { .. }
            | Self::Header { .. }
            | Self::Segment { .. } => Delivery::Hls,
            Self::Part { .. } => Delivery::LlHls,
            Self::Manifest | Self::SegmentAt { .. } => Delivery::Dash,
            Self::Mp4 => Delivery::Mp4,
            Self::Flv => Delivery::Flv,
            Self::Push => Delivery::Push,
            Self::Beacon => return None,
        })
    }

    /// Whether its answer lasts as long as the stream, and is a session of its own.
    pub(super) fn is_endless(self) -> bool {
        matches!(self, Self::Mp4 | Self::Flv | Self::Push)
    }
}

/// Splits the path after `/live/` into a stream's name and a resource.
pub(super) fn live(path: &str) -> Option<(&str, Resource<'_>)> {
    let (stream, file) = path.rsplit_once('/')?;
    let resource = match file {
        "index.m3u8" => Resource::Multivariant,
        "manifest.mpd" => Resource::Manifest,
        "live.mp4" => Resource::Mp4,
        "live.flv" => Resource::Flv,
        "push" => Resource::Push,
        BEACON => Resource::Beacon,
        _ => {
            let (stream, track) = stream.rsplit_once('/')?;
            return Some((stream, of_track(track, file)?));
        }
    };
    Some((stream, resource))
}

fn of_track<'a>(track: &'a str, file: &str) -> Option<Resource<'a>> {
    if file == "media.m3u8" {
        return Some(Resource::MediaPlaylist { track });
    }
    if let Some(name) = file.strip_suffix(".mp4") {
        let msn = match name {
            "init" => None,
            _ => Some(number(name.strip_prefix("init.")?)?),
        };
        return Some(Resource::Header { track, msn });
    }
    let name = file.strip_suffix(".m4s")?;
    if let Some(time) = name.strip_prefix('t') {
        return Some(Resource::SegmentAt { track, time: number(time)?.try_into().ok()? });
    }
    match name.split_once('.') {
        Some((msn, part)) => Some(Resource::Part {
            track,
            msn: number(msn)?,
            part: usize::try_from(number(part)?).ok()?,
        }),
        None => Some(Resource::Segment { track, msn: number(name)? }),
    }
}

/// A resource of a title, that is, of files packaged on the fly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packaged<'a> {
    /// `index.m3u8`
    Multivariant,
    /// `manifest.mpd`
    Manifest,
    /// `TRACK/media.m3u8`
    MediaPlaylist { track: &'a str },
    /// `TRACK/iframes.m3u8`
    IFramePlaylist { track: &'a str },
    /// `TRACK/init.mp4`
    Header { track: &'a str },
    /// `TRACK/NUMBER.m4s`
    Segment { track: &'a str, number: u32 },
    /// `TRACK/i.NUMBER.m4s`
    IFrame { track: &'a str, number: u32 },
    /// `TRACK/NUMBER.vtt`
    Text { track: &'a str, number: u32 },
    /// `TRACK/all.vtt`
    WholeText { track: &'a str },
    /// `push`
    Push,
    /// `cmcd`
    Beacon,
}

/// Splits the path after `/vod/` into a title's path and a resource, if its last part is the name
/// of one. A file may have the same name.
pub(super) fn vod(path: &str) -> Option<(&str, Packaged<'_>)> {
    let (parent, file) = path.rsplit_once('/')?;
    let (title, resource) = match file {
        "index.m3u8" => (parent, Packaged::Multivariant),
        "manifest.mpd" => (parent, Packaged::Manifest),
        "push" => (parent, Packaged::Push),
        BEACON => (parent, Packaged::Beacon),
        _ => {
            let (title, track) = parent.rsplit_once('/')?;
            (title, of_packaged(track, file)?)
        }
    };
    (!title.is_empty()).then_some((title, resource))
}

fn of_packaged<'a>(track: &'a str, file: &str) -> Option<Packaged<'a>> {
    let number = |text| u32::try_from(number(text)?).ok();
    Some(match file {
        "media.m3u8" => Packaged::MediaPlaylist { track },
        "iframes.m3u8" => Packaged::IFramePlaylist { track },
        "init.mp4" => Packaged::Header { track },
        "all.vtt" => Packaged::WholeText { track },
        _ => {
            if let Some(name) = file.strip_suffix(".vtt") {
                Packaged::Text { track, number: number(name)? }
            } else {
                let name = file.strip_suffix(".m4s")?;
                match name.strip_prefix("i.") {
                    Some(name) => Packaged::IFrame { track, number: number(name)? },
                    None => Packaged::Segment { track, number: number(name)? },
                }
            }
        }
    })
}

fn number(text: &str) -> Option<u64> {
    // Each resource has one name only, so signs and leading zeros are refused.
    let plain = text == "0" || !text.starts_with('0');
    (plain && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let track = "v0";
        for (path, expected) in [
            ("demo/index.m3u8", Some(("demo", Resource::Multivariant))),
            ("a/b/manifest.mpd", Some(("a/b", Resource::Manifest))),
            ("demo/live.mp4", Some(("demo", Resource::Mp4))),
            ("demo/live.flv", Some(("demo", Resource::Flv))),
            ("demo/push", Some(("demo", Resource::Push))),
            ("a/b/cmcd", Some(("a/b", Resource::Beacon))),
            ("demo/v0/media.m3u8", Some(("demo", Resource::MediaPlaylist { track }))),
            ("demo/v0/init.mp4", Some(("demo", Resource::Header { track, msn: None }))),
            ("demo/v0/init.12.mp4", Some(("demo", Resource::Header { track, msn: Some(12) }))),
            ("a/b/v0/7.m4s", Some(("a/b", Resource::Segment { track, msn: 7 }))),
            ("demo/v0/t90000.m4s", Some(("demo", Resource::SegmentAt { track, time: 90_000 }))),
            ("demo/v0/7.0.m4s", Some(("demo", Resource::Part { track, msn: 7, part: 0 }))),
            ("demo", None),
            ("demo/v0/", None),
            ("demo/v0/x.m4s", None),
            ("demo/v0/-1.m4s", None),
            ("demo/v0/t.m4s", None),
            ("demo/v0/t9.1.m4s", None),
            ("demo/v0/t18446744073709551615.m4s", None),
            ("demo/v0/+1.m4s", None),
            ("demo/v0/01.m4s", None),
            ("demo/v0/1.2.3.m4s", None),
            ("demo/v0/99999999999999999999.m4s", None),
            ("demo/v0/init.x.mp4", None),
            ("demo/v0/initmp4", None),
        ] {
            assert_eq!(live(path), expected, "{path}");
            // A stream may have a name that ends as those of WHIP and WHEP.
            let Some((stream, _)) = expected else { continue };
            for name in ["a/whip", "a/whep"] {
                let path = path.replacen(stream, name, 1);
                assert!(live(&path).is_some() && !crate::webrtc::is_signal(&path), "{path}");
            }
        }
    }

    #[test]
    fn names_of_titles() {
        let (file, track) = ("a/m.mp4", "v0");
        for (path, expected) in [
            ("a/m.mp4/index.m3u8", Some((file, Packaged::Multivariant))),
            ("a/m.mp4/manifest.mpd", Some((file, Packaged::Manifest))),
            ("a/m.mp4/v0/media.m3u8", Some((file, Packaged::MediaPlaylist { track }))),
            ("a/m.mp4/v0/iframes.m3u8", Some((file, Packaged::IFramePlaylist { track }))),
            ("a/m.mp4/v0/init.mp4", Some((file, Packaged::Header { track }))),
            ("a/m.mp4/v0/0.m4s", Some((file, Packaged::Segment { track, number: 0 }))),
            ("a/m.mp4/v0/i.12.m4s", Some((file, Packaged::IFrame { track, number: 12 }))),
            ("a/m.mp4/t0/7.vtt", Some((file, Packaged::Text { track: "t0", number: 7 }))),
            ("a/m.mp4/t0/all.vtt", Some((file, Packaged::WholeText { track: "t0" }))),
            ("folder/index.m3u8", Some(("folder", Packaged::Multivariant))),
            ("a/m.mp4/push", Some((file, Packaged::Push))),
            ("push", None),
            // The root is not a title, and other names are not resources of a title.
            ("index.m3u8", None),
            ("v0/init.mp4", None),
            ("a/m.mp4", None),
            ("a/m.mp4/", None),
            ("a/m.mp4/v0/init.1.mp4", None),
            ("a/m.mp4/v0/1.0.m4s", None),
            ("a/m.mp4/v0/i.m4s", None),
            ("a/m.mp4/v0/i.01.m4s", None),
            ("a/m.mp4/v0/-1.m4s", None),
            ("a/m.mp4/v0/01.m4s", None),
            ("a/m.mp4/v0/99999999999999999999.m4s", None),
            ("a/m.mp4/t0/x.vtt", None),
            ("a/movie.en.vtt", None),
        ] {
            assert_eq!(vod(path), expected, "{path}");
        }
    }
}
