//! HLS, live and on demand. One multivariant playlist is loaded, then one loop follows each media
//! playlist that is played. [`follow`] says what to fetch next.

mod follow;
mod rendition;

use self::rendition::{Ladder, Player};
use crate::hls::{self, Multivariant, Playlist};
use crate::http::{Body, Client, Request};
use crate::playback::Track;
use crate::url::Url;
use crate::{Asks, Error, Rendition, Viewer};

/// Plays the stream of the playlist at a URL until it ends.
pub(super) async fn play(viewer: &Viewer, url: &Url) -> Result<(), Error> {
    let begun = Box::pin(begin(viewer, url)).await?;
    let Begun { mut main, audio, text } = begun;
    match audio {
        // Boxed: only a viewer of two playlists needs room for two.
        None => Box::pin(main.run(text)).await?,
        Some(mut audio) => {
            tokio::try_join!(Box::pin(main.run(text)), Box::pin(audio.run(None)))?;
        }
    }
    let now = viewer.now();
    viewer.stats().playback.complete(now);
    Ok(())
}

/// Players of the chosen playlists.
struct Begun<'a> {
    /// Boxed: a value that is moved within a future takes its room twice.
    main: Box<Player<'a>>,
    /// The player of separate audio, if there is any.
    audio: Option<Box<Player<'a>>>,
    /// Text of the main player's playlist, if it has already come.
    text: Option<Vec<u8>>,
}

/// Loads the playlist and chooses renditions.
async fn begin<'a>(viewer: &'a Viewer, url: &Url) -> Result<Begun<'a>, Error> {
    let mut client = Client::new(viewer);
    let (text, moved) = load(&mut client, Request::new(url, Asks::Playlist)).await?;
    let url = moved.as_deref().unwrap_or(url);
    let playlist = as_text(&text).and_then(hls::parse).map_err(|error| error.at(url))?;
    viewer.stats().verified.manifests += 1;
    let choice = match playlist {
        Playlist::Media(_) => {
            let main = Player::new(viewer, client, Track::Video, Ladder::single(url.clone()));
            return Ok(Begun { main: Box::new(main), audio: None, text: Some(text) });
        }
        Playlist::Multivariant(playlist) => choose(viewer, &playlist, url)?,
    };
    viewer.lane.give_back(text);
    let main = Player::new(viewer, client, choice.track, choice.ladder);
    let audio = choice.audio.map(|audio| {
        expect(viewer, [Track::Video, Track::Audio].into_iter());
        let ladder = Ladder::single(audio);
        Box::new(Player::new(viewer, Client::new(viewer), Track::Audio, ladder))
    });
    Ok(Begun { main: Box::new(main), audio, text: None })
}

fn expect(viewer: &Viewer, tracks: impl Iterator<Item = Track>) {
    let mut stats = viewer.stats();
    tracks.for_each(|track| stats.playback.expect(track));
}

/// Loads a playlist; returns its text, and its URL if redirected.
async fn load(
    client: &mut Client<'_>,
    request: Request<'_>,
) -> Result<(Vec<u8>, Option<Box<Url>>), Error> {
    let mut text = Vec::new();
    let body = Body::Text(&mut text, hls::MAX_SIZE);
    let answer = client.send(request, body).await?;
    Ok((text, answer.moved))
}

fn as_text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::manifest("playlist that is not UTF-8"))
}

struct Choice {
    ladder: Ladder,
    track: Track,
    audio: Option<Url>,
}

/// Picks the variant to begin with, and its audio.
fn choose(viewer: &Viewer, playlist: &Multivariant<'_>, url: &Url) -> Result<Choice, Error> {
    let mut variants: Vec<_> = playlist.variants.iter().collect();
    variants.sort_by_key(|variant| variant.bandwidth);
    let last = variants.len().saturating_sub(1);
    let chosen = match viewer.lane.options.rendition {
        Rendition::Highest => last,
        // The speed of the connection is not known yet.
        Rendition::Auto | Rendition::Lowest => 0,
        Rendition::Index(index) => index.min(last),
    };
    let Some(variant) = variants.get(chosen) else {
        return Err(Error::manifest("no variants").at(url));
    };
    let ladder = if viewer.lane.options.rendition == Rendition::Auto {
        // Only variants with the same audio group: another group would need another audio player.
        let alike = variants.iter().filter(|other| other.audio == variant.audio);
        let steps: Result<_, Error> =
            alike.map(|variant| Ok((variant.bandwidth, url.resolve(variant.uri)?))).collect();
        Ladder::new(steps?)
    } else {
        Ladder::single(url.resolve(variant.uri)?)
    };
    let group = variant.audio.unwrap_or_default();
    let of_group = || playlist.audio.iter().filter(|audio| audio.group == group);
    let audio = of_group().find(|audio| audio.default).or_else(|| of_group().next());
    let audio = audio.and_then(|audio| audio.uri);
    let audio_only = variant.codecs.is_some_and(|codecs| {
        let audio = ["mp4a", "ac-3", "ec-3", "opus", "flac"];
        codecs.split(',').all(|codec| {
            let codec = codec.trim().to_ascii_lowercase();
            audio.iter().any(|prefix| codec.starts_with(prefix))
        })
    });
    let same = audio.is_some_and(|uri| uri == variant.uri);
    let track = if audio_only { Track::Audio } else { Track::Video };
    let audio = audio.filter(|_| !same && !audio_only).map(|uri| url.resolve(uri)).transpose()?;
    Ok(Choice { ladder, track, audio })
}

/// Size of playing one playlist; a viewer with separate audio plays two.
#[cfg(test)]
pub(super) fn size_of_playing(viewer: &Viewer) -> usize {
    let ladder = Ladder::single(Url::nowhere());
    let mut player = Player::new(viewer, Client::new(viewer), Track::Video, ladder);
    size_of::<Player<'_>>() + size_of_val(&player.run(None))
}
