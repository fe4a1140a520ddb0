//! DASH, live and on demand. One manifest is loaded again and again. Each track fetches the
//! segments that the manifest lists next ([`timeline`]), both tracks at the same time.

mod timeline;
mod track;

use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use self::track::Player;
use super::Tries;
use crate::http::{Body, Client, Request};
use crate::mpd::{self, Manifest};
use crate::playback::Track;
use crate::url::Url;
use crate::{Asks, Error, Kind, Micros, Viewer};

/// Bounds of the pause before the manifest is loaded again when it had nothing new.
const UPDATE: (Micros, Micros) = (100_000, 5_000_000);

/// Plays the presentation of the manifest at a URL until it ends.
pub(super) async fn play(viewer: &Viewer, url: &Url) -> Result<(), Error> {
    let mut client = Client::new(viewer);
    let mut url = url.clone();
    let (mut text, mut loaded) = load(viewer, &mut client, &mut url).await?;
    let mut manifest = parse(&text, &url)?;
    let tracks: Vec<Track> = [Track::Video, Track::Audio]
        .into_iter()
        .filter(|track| {
            let mut all = manifest.periods.iter().flat_map(|period| &period.representations);
            all.any(|representation| representation.track == Some(*track))
        })
        .collect();
    for track in &tracks {
        viewer.stats().playback.expect(*track);
    }
    let player = |track| tracks.contains(&track).then(|| Player::new(viewer, track));
    let (mut video, mut audio) = (player(Track::Video), player(Track::Audio));
    if tracks.is_empty() {
        return Err(Error::manifest("no video or audio").at(&url));
    }
    let mut tries = Tries::default();
    loop {
        let now = viewer.lane.clock.unix(viewer.now());
        let steps = (
            video.as_mut().map(|player| player.step(&manifest, &url, now)).transpose()?,
            audio.as_mut().map(|player| player.step(&manifest, &url, now)).transpose()?,
        );
        let (dynamic, update) = (manifest.dynamic, manifest.minimum_update);
        // Nobody holds the manifest while segments are fetched. All viewers share the text of a
        // finished one.
        drop(manifest);
        let shared: Option<Rc<[u8]>> =
            (!dynamic).then(|| viewer.lane.share(std::mem::take(&mut text)));
        let fetched =
            tokio::try_join!(fetch(video.as_mut(), steps.0), fetch(audio.as_mut(), steps.1))?;
        let progress = fetched.0 || fetched.1;
        if let Some(shared) = shared {
            if !progress {
                let now = viewer.now();
                viewer.stats().playback.complete(now);
                return Ok(());
            }
            text = shared.to_vec();
            manifest = parse(&text, &url)?;
            continue;
        }
        let Some(update) = update else {
            if !progress {
                let now = viewer.now();
                viewer.stats().playback.complete(now);
                return Ok(());
            }
            manifest = parse(&text, &url)?;
            continue;
        };
        let pause = if progress { update } else { update.clamp(UPDATE.0, UPDATE.1) };
        let due = loaded + pause - viewer.now();
        if due > 0 && !progress {
            sleep(Duration::from_micros(due.unsigned_abs())).await;
        }
        if due <= 0 || !progress {
            viewer.lane.give_back(std::mem::take(&mut text));
            (text, loaded) = loop {
                match load(viewer, &mut client, &mut url).await {
                    Ok(found) => break found,
                    Err(error) => tries.failed(viewer, error).await?,
                }
            };
            tries.reset();
        }
        manifest = parse(&text, &url)?;
    }
}

async fn fetch(
    player: Option<&mut Player<'_>>,
    step: Option<timeline::Step>,
) -> Result<bool, Error> {
    match (player, step) {
        (Some(player), Some(step)) => player.fetch(step).await,
        _ => Ok(false),
    }
}

async fn load(
    viewer: &Viewer,
    client: &mut Client<'_>,
    url: &mut Url,
) -> Result<(Vec<u8>, Micros), Error> {
    let mut text = Vec::new();
    let answer =
        client.get(Request::new(url, Asks::Playlist), Body::Text(&mut text, mpd::MAX_SIZE)).await?;
    if let Some(moved) = answer.moved {
        *url = *moved;
    }
    viewer.stats().verified.manifests += 1;
    Ok((text, viewer.now()))
}

fn parse(text: &[u8], url: &Url) -> Result<Manifest, Error> {
    let text = std::str::from_utf8(text)
        .map_err(|_| Error::new(Kind::Manifest, "manifest that is not UTF-8").at(url))?;
    mpd::parse(text).map_err(|error| error.at(url))
}
