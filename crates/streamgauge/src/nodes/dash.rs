//! Follows DASH on one node: all renditions, with segments that are sent while they are made.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use viewer::mpd::{self, Manifest};
use viewer::playback::Track;
use viewer::player::timeline::{Cursor, Segment, step};
use viewer::{Micros, Rendition};

use super::ledger::Kind;
use super::node::{Node, Wanted, text_object};

/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// Pause between two requests for a manifest.
const POLL: Duration = Duration::from_millis(500);
/// How often a segment is asked for, and the first pause. Each further pause is twice as long.
const TRIES: (u32, Duration) = (4, Duration::from_millis(250));

/// A manifest, and how many came before it.
type Listing = Option<(u64, Rc<Manifest>)>;

/// Follows a presentation until it ends.
pub(super) async fn follow(node: Rc<Node>) {
    let (told, listings) = watch::channel(None);
    let mut tasks = JoinSet::new();
    tasks.spawn_local(follow_manifest(Rc::clone(&node), told));
    let mut first = listings.clone();
    let listing = first.wait_for(Option::is_some).await.map(|listing| listing.clone());
    let Ok(Some((_, manifest))) = listing else { return };
    for track in [Track::Video, Track::Audio] {
        for index in 0..renditions(&manifest, track) {
            let rendition = Rendition::Index(index);
            let cursor = Cursor {
                track,
                rendition,
                low_latency: true,
                rate: None,
                next: None,
                fetched: None,
            };
            tasks.spawn_local(follow_track(Rc::clone(&node), listings.clone(), cursor));
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// How many renditions of a track a player can choose from.
fn renditions(manifest: &Manifest, track: Track) -> usize {
    let of = |period: &mpd::Period| {
        let all = period.representations.iter().filter(|of| of.track == Some(track));
        let first = all.clone().next().map(|first| first.set);
        all.filter(|of| Some(of.set) == first).count()
    };
    manifest.periods.iter().map(of).max().unwrap_or_default()
}

/// Asks for the manifest again and again, while it changes.
async fn follow_manifest(node: Rc<Node>, told: watch::Sender<Listing>) {
    let name = node.name_of(&node.url);
    let mut last = None;
    let mut number = 0;
    loop {
        let answer = tokio::select! {
            biased;
            () = node.stopped() => return,
            answer = node.client.get(&node.url, None, Duration::ZERO) => answer,
        };
        let read = answer.map_err(|failure| failure.to_string()).and_then(|answer| {
            let text = String::from_utf8(answer.body.to_vec());
            let text = text.map_err(|_| "a manifest that is no text".to_owned())?;
            let manifest = mpd::parse(&text).map_err(|error| error.to_string())?;
            let object = text_object(answer, text, String::new());
            match state(&manifest) {
                Some(state) => node.record_state((&name, state), object, None, &mut last),
                None => node.record(&name, Kind::Lasting, object, None),
            }
            Ok(manifest)
        });
        match read {
            Ok(manifest) => {
                let dynamic = manifest.dynamic;
                // Those who follow tracks may have ended.
                let _ = told.send(Some((number, Rc::new(manifest))));
                number += 1;
                if !dynamic {
                    return;
                }
                sleep(POLL).await;
            }
            Err(why) => {
                node.fails(&name, &why);
                sleep(PAUSE).await;
            }
        }
    }
}

/// The state of a manifest that changes. Two answers of the same state are the same.
fn state(manifest: &Manifest) -> Option<String> {
    if !manifest.dynamic {
        return None;
    }
    Some(match manifest.published {
        Some(published) => format!("published at {published} µs"),
        None => {
            let mut hasher = DefaultHasher::new();
            format!("{:?}", manifest.periods).hash(&mut hasher);
            format!("with segments {:x}", hasher.finish())
        }
    })
}

/// Fetches the segments of one rendition, one after the other.
async fn follow_track(node: Rc<Node>, mut listings: watch::Receiver<Listing>, mut cursor: Cursor) {
    let began = unix_now();
    loop {
        let Some((number, manifest)) = listings.borrow_and_update().clone() else { return };
        let step = match step(&manifest, &node.url, &mut cursor, unix_now()) {
            Ok(step) => step,
            Err(why) => return node.fails(&node.name_of(&node.url), &why),
        };
        for segment in &step.segments {
            // Of finished media, all is fetched.
            let fetched = fetch(&node, segment, (number > 0, began));
            if step.finished {
                fetched.await;
            } else {
                tokio::select! {
                    biased;
                    () = node.stopped() => return,
                    () = fetched => {}
                }
            }
            (cursor.next, cursor.fetched) = (Some(segment.start), Some(segment.start));
        }
        if !step.segments.is_empty() {
            continue;
        }
        if step.finished {
            return;
        }
        tokio::select! {
            biased;
            () = node.stopped() => return,
            // By the old manifest, there may be more after a while.
            changed = timeout(POLL, listings.changed()) => if let Ok(Err(_)) = changed { return },
        }
    }
}

async fn fetch(node: &Rc<Node>, segment: &Segment, (is_later, began): (bool, Micros)) {
    if let Some(url) = &segment.header {
        node.want(Wanted { url: url.clone(), range: None, is_new: false });
    }
    let wait = segment.available.map_or(0, |available| available - unix_now());
    sleep(Duration::from_micros(wait.max(0).unsigned_abs())).await;
    // A segment that could be asked for before the start is there, or nearly.
    let is_new = segment.available.map_or(is_later, |available| available > began);
    let wanted = Wanted { url: segment.url.clone(), range: None, is_new };
    let length = Duration::from_micros(segment.duration.max(0).unsigned_abs());
    if !is_new {
        node.wait_for_others().await;
    }
    let (tries, mut pause) = TRIES;
    for turn in 1..=tries {
        let Some(name) = node.learn(&wanted) else { return };
        match node.get(&name, &wanted, length).await {
            Ok(()) => return,
            Err(failure) if turn == tries => node.fails(&name, &failure),
            Err(_) => sleep(pause).await,
        }
        pause *= 2;
    }
}

fn unix_now() -> Micros {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros::try_from(now.as_micros()).unwrap_or(Micros::MAX)
}
