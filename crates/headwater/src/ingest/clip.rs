//! The bundled clip, which the origin itself publishes in a loop.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use live::PublisherInfo;
use live::backup::Role;
use media::mp4::{Index, Reader};
use tokio::time::Instant;

use crate::Origin;

/// The demo clip.
pub static DEMO: &[u8] = include_bytes!("../../assets/demo.mp4");

/// Publishes an MP4 held in memory as live stream `name` in real time, for ever. Timestamps go on
/// from one turn to the next.
///
/// # Errors
/// The clip cannot be read or has nothing to publish, or the name is taken.
pub async fn publish(origin: Arc<Origin>, name: &str, clip: Bytes) -> anyhow::Result<()> {
    let index = Index::read(&clip)?;
    let info = PublisherInfo { peer: None, protocol: "file", rendition: None };
    let mut publisher = origin.publish(name, Role::Primary, info)?;
    let playable: Vec<usize> = (0..index.tracks.len())
        .filter(|&at| {
            let track = &index.tracks[at];
            track.problem.is_none() && track.track.kind() != media::Kind::Other
        })
        .collect();
    anyhow::ensure!(!playable.is_empty(), "nothing in the clip can be published");
    for &at in &playable {
        let track = &index.tracks[at].track;
        let source = u32::try_from(at)?;
        let codec = track.codec.clone();
        publisher.track(source, codec, track.timescale, track.language, origin.now())?;
    }
    // A turn lasts as long as its longest track, so no track overlaps with its own next turn.
    let turn = index.duration();
    let mut started = None;
    let mut base = Duration::ZERO;
    loop {
        for read in Reader::new(index.merge(playable.iter().copied()), &clip) {
            let mut read = read?;
            let timescale = index.tracks[read.track].track.timescale;
            let at = Duration::from_micros(
                live::rescale(read.sample.dts.max(0), timescale, 1_000_000).unsigned_abs(),
            );
            match started {
                Some(started) => tokio::time::sleep_until(started + base + at).await,
                // The stream's dates count from the arrival of this sample. A timer may be late on a busy
                // machine, and all samples after it would then seem to come too early.
                None => started = Instant::now().checked_sub(at),
            }
            let micros = i64::try_from(base.as_micros())?;
            read.sample.dts += live::rescale(micros, 1_000_000, timescale);
            publisher.sample(u32::try_from(read.track)?, read.sample, origin.now())?;
        }
        base += turn;
    }
}
