//! Follows HLS on one node: all renditions, with parts and blocking reloads where there are any.

use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use viewer::hls::{self, Location, Media, Playlist};
use viewer::url::Url;

use super::fetch::Answer;
use super::node::{Node, Wanted, text_object};

/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// Pause between two requests for a playlist that does not wait for news.
const POLL: Duration = Duration::from_millis(250);
/// How many target durations a blocking reload may take (RFC 8216bis 6.2.5.2).
const BLOCKING: u32 = 3;

/// Follows a stream until it ends.
pub(super) async fn follow(node: Rc<Node>) {
    let mut playlists = JoinSet::new();
    let renditions = loop {
        let found = tokio::select! {
            biased;
            () = node.stopped() => return,
            found = renditions(&node) => found,
        };
        match found {
            Ok(renditions) => break renditions,
            Err(why) => node.fails(&node.name_of(&node.url), &why),
        }
        sleep(PAUSE).await;
    };
    for url in renditions {
        playlists.spawn_local(follow_media(Rc::clone(&node), url));
    }
    while playlists.join_next().await.is_some() {}
}

/// The media playlists of the stream.
///
/// # Errors
/// The node does not answer, or with no playlist.
async fn renditions(node: &Node) -> Result<Vec<Url>, String> {
    let answer = node.client.get(&node.url, None, Duration::ZERO).await;
    let answer = answer.map_err(|failure| failure.to_string())?;
    let text = text(&answer)?;
    let Playlist::Multivariant(playlist) = hls::parse(text).map_err(|e| e.to_string())? else {
        return Ok(vec![node.url.clone()]);
    };
    let variants = playlist.variants.iter().map(|variant| variant.uri);
    let audio = playlist.audio.iter().filter_map(|audio| audio.uri);
    let mut urls: Vec<Url> = Vec::new();
    for uri in variants.chain(audio) {
        let url = node.url.resolve(uri).map_err(|error| error.to_string())?;
        if !urls.contains(&url) {
            urls.push(url);
        }
    }
    // It says how many bits the renditions take, which changes with the stream. So it is compared at
    // the end, when all nodes are asked at once.
    Ok(urls)
}

fn text(answer: &Answer) -> Result<&str, String> {
    std::str::from_utf8(&answer.body).map_err(|_| "a playlist that is no text".to_owned())
}

/// Follows a media playlist until it ends.
async fn follow_media(node: Rc<Node>, url: Url) {
    let name = node.name_of(&url);
    // The first state that the last answer did not have.
    let mut next: Option<(u64, Option<u64>)> = None;
    let mut longer = Duration::ZERO;
    let mut is_new = false;
    let mut last = None;
    loop {
        let query = next.map(|(msn, part)| match part {
            Some(part) => format!("_HLS_msn={msn}&_HLS_part={part}"),
            None => format!("_HLS_msn={msn}"),
        });
        let asked = query.as_ref().map_or_else(|| url.clone(), |query| url.with_query(query));
        let answer = tokio::select! {
            biased;
            () = node.stopped() => return,
            answer = node.client.get(&asked, None, longer) => answer,
        };
        let took = match answer {
            Ok(answer) => take(&node, (&url, &name), answer, (query.is_some(), is_new), &mut last),
            Err(failure) => Err(failure.to_string()),
        };
        match took {
            Ok(Reload { ended: true, .. }) => return,
            Ok(reload) => {
                is_new = true;
                (next, longer) = (reload.next, reload.longer);
                if next.is_none() {
                    sleep(POLL).await;
                }
            }
            Err(why) => {
                node.fails(&name, &why);
                next = None;
                sleep(PAUSE).await;
            }
        }
    }
}

/// When and how a playlist is asked for again.
struct Reload {
    ended: bool,
    next: Option<(u64, Option<u64>)>,
    longer: Duration,
}

/// Takes an answer: compares it, and fetches what it lists.
fn take(
    node: &Rc<Node>,
    (url, name): (&Url, &str),
    answer: Answer,
    (waited, is_new): (bool, bool),
    last: &mut Option<String>,
) -> Result<Reload, String> {
    let at = answer.at;
    let (own, aside) = split_reports(text(&answer)?);
    let parsed = hls::parse(&own).map_err(|error| error.to_string())?;
    let Playlist::Media(media) = parsed else {
        return Err("a multivariant playlist within another".to_owned());
    };
    let longer = Duration::from_micros(media.target_duration.max(0).unsigned_abs()) * BLOCKING;
    let reload = Reload { ended: media.ended, next: next_state(&media), longer };
    list(node, url, &media, is_new, longer);
    let state = state(&media, waited);
    drop(media);
    // A playlist that is asked for again and again has news later than the node.
    let had = (is_new && waited).then_some(at);
    node.record_state((name, state), text_object(answer, own, aside), had, last);
    Ok(reload)
}

/// The state of a playlist. Two answers of the same state are the same. What caches are told differs
/// between an answer that was waited for and another. A server that knows that a segment has ended may hint at the
/// next one before it shows so.
fn state(media: &Media<'_>, waited: bool) -> String {
    let (first, open, parts) = (media.first(), media.open_number(), media.open.parts.len());
    let ended = if media.ended { ", ended" } else { "" };
    let waited = if waited { "" } else { ", at once" };
    let hint = media.hint.as_ref().map(|hint| format!(", then {}", hint.uri)).unwrap_or_default();
    format!("{first} to {open}.{parts}{hint}{ended}{waited}")
}

fn next_state(media: &Media<'_>) -> Option<(u64, Option<u64>)> {
    let part = media.part_target.map(|_| media.open.parts.len() as u64);
    media.can_block_reload.then(|| (media.open_number(), part))
}

/// Fetches what a playlist lists and hints at.
fn list(node: &Rc<Node>, url: &Url, media: &Media<'_>, is_new: bool, longer: Duration) {
    let place = |location: &Location<'_>| {
        let url =
            url.resolve(location.uri).inspect_err(|why| node.fails(location.uri, why)).ok()?;
        let range = match location.range {
            None => None,
            Some((first, Some(length))) => Some((first, (first + length).saturating_sub(1))),
            // A hint without a length ends where the part will end, which nobody knows.
            Some((_, None)) => return None,
        };
        Some(Wanted { url, range, is_new })
    };
    let segments = media.segments.iter().chain([&media.open]).filter(|segment| !segment.gap);
    let whole = segments.flat_map(|segment| {
        let own = Some(&segment.place).filter(|place| !place.uri.is_empty());
        segment.map.iter().chain(own)
    });
    let parts = media.parts.iter().filter(|part| !part.gap).map(|part| &part.place);
    whole.chain(parts).filter_map(place).for_each(|wanted| node.want(wanted));
    if let Some(wanted) = media.hint.as_ref().and_then(place) {
        node.await_hinted(wanted, longer);
    }
}

/// Parts a playlist from the lines that tell of other playlists.
fn split_reports(text: &str) -> (String, String) {
    let is_report = |line: &&str| line.starts_with("#EXT-X-RENDITION-REPORT:");
    let (reports, own): (Vec<_>, Vec<_>) = text.split_inclusive('\n').partition(is_report);
    (own.concat(), reports.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_state_has_the_same_name() {
        let text = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:7\n\
                    #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES\n#EXT-X-PART-INF:PART-TARGET=0.5\n\
                    #EXTINF:2,\n7.m4s\n#EXT-X-PART:DURATION=0.5,URI=\"8.0.m4s\"\n\
                    #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"8.1.m4s\"\n\
                    #EXT-X-RENDITION-REPORT:URI=\"../a0/media.m3u8\",LAST-MSN=7,LAST-PART=3\n";
        let (own, reports) = split_reports(text);
        assert!(reports.starts_with("#EXT-X-RENDITION") && !own.contains("REPORT"), "{own}");
        let Playlist::Media(media) = hls::parse(&own).unwrap() else { panic!() };
        assert_eq!(state(&media, true), "7 to 8.1, then 8.1.m4s");
        assert_eq!(next_state(&media), Some((8, Some(1))));
    }
}
