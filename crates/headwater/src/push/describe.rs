//! Describes a live stream to viewers.

use std::cmp::Reverse;
use std::sync::Arc;

use live::{State, Track};
use media::Kind;
use protocol::push::message::{Audio, Hello, Rendition};

/// The present renditions, by falling bit rate.
pub(super) fn renditions(state: &State) -> Vec<Arc<Track>> {
    let usable = |track: &&Arc<Track>| {
        track.kind == Kind::Video && track.is_present() && track.part_limit().is_some()
    };
    let mut renditions: Vec<_> = state.tracks.iter().filter(usable).cloned().collect();
    renditions.sort_by_key(|track| Reverse(bitrate(track)));
    renditions
}

/// Mean bit rate in bits per second.
pub(super) fn bitrate(track: &Track) -> u64 {
    track.bitrate().map_or(0, |(mean, _)| mean)
}

/// Describes the stream to a viewer that follows these tracks.
pub(super) fn hello<'a>(state: &State, followed: impl Iterator<Item = &'a Arc<Track>>) -> Hello {
    let followed: Vec<_> = followed.collect();
    let of_kind = |kind| followed.iter().find(|track| track.kind == kind);
    let video = of_kind(Kind::Video);
    Hello {
        renditions: renditions(state).iter().map(|track| rendition(track)).collect(),
        rendition: video.map(|track| track.name.clone()),
        audio: of_kind(Kind::Audio).map(|track| Audio {
            name: track.name.clone(),
            bitrate: bitrate(track),
            codecs: codecs(track),
        }),
        timescale: followed.first().map_or(0, |track| track.header().track.timescale),
        behind: None,
        duration: None,
    }
}

fn rendition(track: &Track) -> Rendition {
    let resolution = track.header().track.codec.resolution();
    Rendition {
        name: track.name.clone(),
        bitrate: bitrate(track),
        resolution: resolution.map(|(width, height)| format!("{width}x{height}")),
        codecs: codecs(track),
    }
}

fn codecs(track: &Track) -> String {
    track.header().track.codec.rfc6381().into_owned()
}
