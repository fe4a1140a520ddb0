//! DASH, live and on demand. One manifest is loaded again and again. Each track fetches the
//! segments that the manifest lists next ([`timeline`]), both tracks at the same time.

pub mod timeline;
mod track;

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Mutex;
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
    let listing = Listing::load(viewer, url).await?;
    let manifest = listing.manifest()?;
    let listed = |track: Track| {
        let mut all = manifest.periods.iter().flat_map(|period| &period.representations);
        all.any(|representation| representation.track == Some(track))
    };
    let tracks: Vec<Track> =
        [Track::Video, Track::Audio].into_iter().filter(|track| listed(*track)).collect();
    drop(manifest);
    if tracks.is_empty() {
        return Err(Error::manifest("no video or audio").at(&listing.url));
    }
    for track in &tracks {
        viewer.stats().playback.expect(*track);
    }
    let listing = Mutex::new(listing);
    let player = |track| tracks.contains(&track).then(|| Player::new(viewer, track));
    let (mut video, mut audio) = (player(Track::Video), player(Track::Audio));
    let follow = |player| follow(viewer, &listing, player);
    tokio::try_join!(follow(video.as_mut()), follow(audio.as_mut()))?;
    let now = viewer.now();
    viewer.stats().playback.complete(now);
    Ok(())
}

/// Plays one track until it ends. The other may be at a segment that is still being made.
async fn follow(
    viewer: &Viewer,
    listing: &Mutex<Listing<'_>>,
    player: Option<&mut Player<'_>>,
) -> Result<(), Error> {
    let Some(player) = player else { return Ok(()) };
    loop {
        let (step, update, loaded) = {
            let mut listing = listing.lock().await;
            // Held by nobody while segments are fetched.
            let manifest = listing.manifest()?;
            listing.locate(&manifest);
            if !manifest.dynamic {
                listing.share();
            }
            let now = viewer.lane.clock.unix(viewer.now());
            let update = manifest.minimum_update.filter(|_| manifest.dynamic);
            (player.step(&manifest, &listing.url, now)?, update, listing.loaded)
        };
        let progress = player.fetch(step).await?;
        let Some(update) = update else {
            if progress {
                continue;
            }
            return Ok(());
        };
        let pause = if progress { update } else { update.clamp(UPDATE.0, UPDATE.1) };
        let due = loaded + pause - viewer.now();
        if due > 0 && !progress {
            sleep(Duration::from_micros(due.unsigned_abs())).await;
        }
        if due <= 0 || !progress {
            Box::pin(listing.lock().await.renew(loaded)).await?;
        }
    }
}

/// The manifest as it was answered last.
struct Listing<'a> {
    viewer: &'a Viewer,
    client: Client<'a>,
    /// Where it came from.
    url: Url,
    /// Where to ask next, if it tells.
    next: Option<Url>,
    text: Text,
    /// When it was answered.
    loaded: Micros,
}

enum Text {
    Own(Vec<u8>),
    Shared(Rc<[u8]>),
}

impl<'a> Listing<'a> {
    async fn load(viewer: &'a Viewer, url: &Url) -> Result<Self, Error> {
        let text = Text::Own(Vec::new());
        let client = Client::new(viewer);
        let mut listing = Self { viewer, client, url: url.clone(), next: None, text, loaded: 0 };
        Box::pin(listing.ask()).await?;
        Ok(listing)
    }

    /// Asks for it again, unless another track has since it was answered at `seen`.
    async fn renew(&mut self, seen: Micros) -> Result<(), Error> {
        let mut tries = Tries::default();
        while self.loaded == seen {
            if let Err(error) = self.ask().await {
                // Where the manifest came from, there may still be one.
                self.next = None;
                tries.failed(self.viewer, error).await?;
            }
        }
        Ok(())
    }

    async fn ask(&mut self) -> Result<(), Error> {
        let mut text = Vec::new();
        if let Text::Own(old) = &mut self.text {
            self.viewer.lane.give_back(std::mem::take(old));
        }
        let request = Request::new(self.next.as_ref().unwrap_or(&self.url), Asks::Playlist);
        let answer = self.client.send(request, Body::Text(&mut text, mpd::MAX_SIZE)).await?;
        let came_from = answer.moved.map(|moved| *moved).or(self.next.take());
        if let Some(url) = came_from {
            self.url = url;
        }
        self.viewer.stats().verified.manifests += 1;
        self.text = Text::Own(text);
        self.loaded = self.viewer.now();
        Ok(())
    }

    /// Takes from the manifest where to ask for it next. An address that cannot be used counts as none.
    fn locate(&mut self, manifest: &Manifest) {
        let next = manifest.location.as_deref();
        self.next = next.and_then(|location| self.url.resolve(location).ok());
    }

    /// It is finished, and the same for all viewers.
    fn share(&mut self) {
        if let Text::Own(text) = &mut self.text {
            self.text = Text::Shared(self.viewer.lane.share(std::mem::take(text)));
        }
    }

    fn manifest(&self) -> Result<Manifest, Error> {
        match &self.text {
            Text::Own(text) => parse(text, &self.url),
            Text::Shared(text) => parse(text, &self.url),
        }
    }
}

fn parse(text: &[u8], url: &Url) -> Result<Manifest, Error> {
    let text = std::str::from_utf8(text)
        .map_err(|_| Error::new(Kind::Manifest, "manifest that is not UTF-8").at(url))?;
    mpd::parse(text).map_err(|error| error.at(url))
}
