//! The player of one media playlist: it reloads the playlist, fetches headers, segments and parts,
//! and switches to another rendition.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use media::cmaf::read_header;
use tokio::time::sleep;

use super::follow::{Item, Next, Resource, Step, step};
use super::{as_text, load};
use crate::hls::{self, Playlist};
use crate::http::{Answer, Body, Client, Request};
use crate::playback::{CaptureClock, Stamps, Track};
use crate::player::{Link, Tries};
use crate::skim::{Search, SegmentStamps, track_of};
use crate::url::Url;
use crate::{Asks, Error, Kind, Micros, Viewer, verify};

/// Longest segment that is kept for verification, in bytes.
const MAX_SEGMENT: usize = 256 << 20;
/// Longest header, in bytes.
const MAX_HEADER: usize = 8 << 20;
/// A player stops using hints after this many failures in a row.
const HINTS: u32 = 3;
/// A player gives up where the server refuses more than so many items in a row.
const MOST_PASSED: u32 = 10;
/// A hinted part counts with this time at least, in microseconds, because most of it came before the first
/// read ended. hls.js takes 50 ms, too (`EwmaBandWidthEstimator`).
const LEAST: Micros = 50_000;

/// Renditions to switch between, in order of rising bit rate.
#[derive(Debug)]
pub(super) struct Ladder {
    steps: Vec<(u64, Url)>,
    at: usize,
    link: Link,
}

impl Ladder {
    pub(super) fn new(steps: Vec<(u64, Url)>) -> Self {
        Self { steps, at: 0, link: Link::default() }
    }

    pub(super) fn single(url: Url) -> Self {
        Self::new(vec![(0, url)])
    }

    /// Switches to the highest bit rate that leaves a fifth to spare; returns its URL if it is
    /// another one.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn switch(&mut self) -> Option<Url> {
        let rate = self.link.rate()?;
        let fits = |bandwidth: u64| bandwidth as f64 <= 0.8 * rate;
        let best = self.steps.iter().rposition(|(bandwidth, _)| fits(*bandwidth)).unwrap_or(0);
        if best == self.at {
            return None;
        }
        self.at = best;
        self.steps.get(best).map(|(_, url)| url.clone())
    }
}

/// A part that was asked for before it existed, and came.
struct Early {
    place: Resource,
    arrived: Micros,
    got: Got,
}

/// What is kept of a segment or part.
enum Got {
    /// All bytes, to be verified.
    Whole(Bytes),
    /// The stamps, if the player looked for them and found them.
    Stamps(Option<Stamps>),
}

/// The player of one playlist.
pub(super) struct Player<'a> {
    viewer: &'a Viewer,
    client: Client<'a>,
    track: Track,
    url: Url,
    ladder: Ladder,
    next: Option<Next>,
    /// Position of `next` on the media timeline; since 1970 if the playlist has dates.
    clock: Option<Micros>,
    /// The header that was fetched last.
    map: Option<Resource>,
    verifier: Option<Box<verify::Cmaf>>,
    search: Search,
    early: Option<Early>,
    failed_hints: u32,
    /// How many items in a row the server refused.
    passed: u32,
    tries: Tries,
    /// When a playlist was loaded most recently.
    loaded: Micros,
    began: bool,
}

impl<'a> Player<'a> {
    pub(super) fn new(
        viewer: &'a Viewer,
        client: Client<'a>,
        track: Track,
        ladder: Ladder,
    ) -> Self {
        let url = ladder.steps.first().map(|(_, url)| url.clone());
        let verifier = viewer.verify.then(|| Box::new(verify::Cmaf::new(viewer.reference.clone())));
        Self {
            viewer,
            client,
            track,
            // A ladder has at least one step. If it had none, requests to nowhere would fail as
            // they should.
            url: url.unwrap_or_else(Url::nowhere),
            ladder,
            next: None,
            clock: None,
            map: None,
            verifier,
            search: Search::default(),
            early: None,
            failed_hints: 0,
            passed: 0,
            tries: Tries::default(),
            loaded: 0,
            began: false,
        }
    }

    /// Plays until the playlist ends; `text` is the playlist if it has already come.
    pub(super) async fn run(&mut self, mut text: Option<Vec<u8>>) -> Result<(), Error> {
        let mut query = None;
        loop {
            let playlist = match text.take() {
                Some(text) => text,
                None => match self.reload(query.as_ref()).await? {
                    Some(text) => text,
                    None => continue,
                },
            };
            let mut step = self.step(&playlist)?;
            if step.needs_full {
                self.viewer.lane.give_back(playlist);
                query = None;
                continue;
            }
            if step.finished {
                // A finished playlist does not change and is the same for every viewer.
                let shared = self.viewer.lane.share(playlist);
                if Box::pin(self.finished(step, &shared)).await?.is_some() {
                    return Ok(());
                }
                query = None;
                continue;
            }
            self.viewer.lane.give_back(playlist);
            let progress = !step.items.is_empty();
            let switched = self.items(&step).await?;
            if switched || step.more {
                query = None;
                continue;
            }
            // The items have been fetched and are not needed during the long wait.
            step.items = Vec::new();
            query = self.wait(&step, progress).await?;
        }
    }

    /// Plays what a finished playlist lists; `None` if the player switched to another rendition.
    async fn finished(&mut self, mut step: Step, text: &Rc<[u8]>) -> Result<Option<()>, Error> {
        loop {
            if self.items(&step).await? {
                return Ok(None);
            }
            if step.ended {
                return Ok(Some(()));
            }
            step = self.step(text)?;
        }
    }

    fn step(&mut self, playlist: &[u8]) -> Result<Step, Error> {
        let parsed = as_text(playlist).and_then(hls::parse).map_err(|error| error.at(&self.url))?;
        let Playlist::Media(media) = parsed else {
            return Err(Error::manifest("not a media playlist").at(&self.url));
        };
        let low_latency = self.viewer.lane.options.low_latency;
        let (step, lost) = step(&media, &mut self.next, self.track, low_latency)?;
        if !self.began {
            self.began = true;
            let mut stats = self.viewer.stats();
            // With a shorter hold-back, nothing might be left when the threshold is reached.
            let most = step.hold_back - step.part_target.unwrap_or_default();
            let threshold = stats.playback.threshold().min(most.max(0));
            stats.playback.set_threshold(threshold);
        }
        if let Some(lost) = lost {
            self.early = None;
            self.clock = self.clock.map(|clock| clock.saturating_add(lost));
            if let Some(verifier) = &mut self.verifier {
                verifier.restart();
            }
        }
        Ok(step)
    }

    /// Loads the playlist; `None` if that failed and the player may try again.
    async fn reload(&mut self, query: Option<&Query>) -> Result<Option<Vec<u8>>, Error> {
        let asked = query.map(|query| self.url.with_query(&query.text));
        let url = asked.as_ref().unwrap_or(&self.url);
        let asks = if query.is_some() { Asks::Reload } else { Asks::Playlist };
        let wait = query.map_or(Duration::ZERO, |query| query.wait);
        let request = Request { wait, ..Request::new(url, asks) };
        match load(&mut self.client, request).await {
            Ok((text, moved)) => {
                if asked.is_none()
                    && let Some(moved) = moved
                {
                    self.url = *moved;
                }
                self.loaded = self.viewer.now();
                self.tries.reset();
                self.viewer.stats().verified.manifests += 1;
                Ok(Some(text))
            }
            Err(error) if !self.began => Err(error),
            Err(error) => {
                self.tries.failed(self.viewer, error).await?;
                Ok(None)
            }
        }
    }

    /// Fetches the items of a step; returns whether the player switched to another rendition.
    async fn items(&mut self, step: &Step) -> Result<bool, Error> {
        for item in &step.items {
            if item.starts
                && let Some(url) = self.ladder.switch()
            {
                self.url = url;
                // Another folder may have another header of the same name.
                self.map = None;
                self.early = None;
                self.viewer.stats().switches += 1;
                return Ok(true);
            }
            if step.finished {
                self.viewer.wait_for_room().await;
            }
            self.item(item).await?;
            self.next = Some(item.next);
        }
        self.next = Some(step.after);
        Ok(false)
    }

    async fn item(&mut self, item: &Item) -> Result<(), Error> {
        if item.discontinuity
            && let Some(verifier) = &mut self.verifier
        {
            verifier.restart();
        }
        if item.gap {
            self.clock = self.clock.map(|clock| clock + item.duration);
            return Ok(());
        }
        if let Some(map) = &item.map
            && !self.map.as_ref().is_some_and(|known| known.is(map))
        {
            Box::pin(self.header(map)).await?;
        }
        let early = self.early.take().filter(|early| early.place.is(&item.place));
        if let Some(early) = early {
            return self.deliver(item, early.arrived, &early.got);
        }
        let asks = if item.part { Asks::Part } else { Asks::Segment };
        loop {
            match self.fetch(&item.place, asks, Duration::ZERO).await {
                Ok((answer, got)) => {
                    self.tries.reset();
                    self.passed = 0;
                    self.ladder.link.measure(answer.bytes, answer.took);
                    return self.deliver(item, answer.last, &got);
                }
                Err(error) if error.kind == Kind::Status && self.tries.are_spent() => {
                    self.passed += 1;
                    if self.passed > MOST_PASSED {
                        return Err(error);
                    }
                    // The item is gone or cannot be had. A player goes on with the next.
                    self.viewer.trouble(error.kind);
                    self.tries.reset();
                    self.clock = self.clock.map(|clock| clock + item.duration);
                    if let Some(verifier) = &mut self.verifier {
                        verifier.restart();
                    }
                    return Ok(());
                }
                Err(error) => self.tries.failed(self.viewer, error).await?,
            }
        }
    }

    async fn header(&mut self, map: &Resource) -> Result<(), Error> {
        let url = self.url.resolve(&map.uri)?;
        let mut data = Vec::new();
        loop {
            data.clear();
            let request = Request { range: map.range, ..Request::new(&url, Asks::Init) };
            match self.client.send(request, Body::Text(&mut data, MAX_HEADER)).await {
                Ok(_) => break,
                Err(error) => self.tries.failed(self.viewer, error).await?,
            }
        }
        self.tries.reset();
        if let Some(verifier) = &mut self.verifier {
            let counts = &mut self.viewer.stats().verified;
            verifier.header(&data, counts).map_err(|error| error.at(&url))?;
        }
        self.expect(&data);
        self.viewer.lane.give_back(data);
        self.map = Some(map.clone());
        Ok(())
    }

    /// Takes the tracks from a header: playlists do not always tell them.
    fn expect(&mut self, header: &[u8]) {
        // The verifier reports what is wrong with a header.
        let Ok(header) = read_header(header) else { return };
        let mut tracks: Vec<Track> =
            header.tracks.iter().filter_map(|track| track_of(track.kind())).collect();
        if let Some(track) = [Track::Video, Track::Audio].into_iter().find(|t| tracks.contains(t)) {
            self.track = track;
        }
        if self.verifier.is_none() {
            // Segments count as a whole, for their main track.
            tracks.retain(|track| *track == self.track);
        }
        let mut stats = self.viewer.stats();
        tracks.into_iter().for_each(|track| stats.playback.expect(track));
    }

    /// Fetches a segment or part. Keeps it if it is to be verified; otherwise looks into it for
    /// stamps, if it may have any.
    async fn fetch(
        &mut self,
        place: &Resource,
        asks: Asks,
        wait: Duration,
    ) -> Result<(Answer, Got), Error> {
        let url = self.url.resolve(&place.uri)?;
        let request = Request { range: place.range, wait, ..Request::new(&url, asks) };
        if self.is_verified() {
            let mut data = Vec::new();
            let answer = self.client.send(request, Body::Collect(&mut data, MAX_SEGMENT)).await?;
            return Ok((answer, Got::Whole(data.into())));
        }
        if self.track != Track::Video || !self.search.is_on() {
            return Ok((self.client.send(request, Body::Discard).await?, Got::Stamps(None)));
        }
        // Boxed: it is large, and not always needed.
        let mut inside = Box::new(SegmentStamps::default());
        let mut take = |data: &[u8]| {
            inside.read(data);
            Ok(())
        };
        let answer = self.client.send(request, Body::Media(&mut take)).await?;
        self.search.took(inside.stamps());
        Ok((answer, Got::Stamps(inside.stamps())))
    }

    /// Whether media are verified: only fragmented MP4 is, which has a header.
    fn is_verified(&self) -> bool {
        self.verifier.as_ref().is_some_and(|verifier| verifier.has_header())
    }

    /// Counts a segment or part that has arrived.
    fn deliver(&mut self, item: &Item, arrived: Micros, got: &Got) -> Result<(), Error> {
        let from = match (self.clock, item.date) {
            (Some(clock), Some(date)) if !item.discontinuity => {
                // Dates are the encoder's clock, durations the media's: the two differ slightly.
                if (date - clock).abs() > 1_000_000 { date } else { clock }
            }
            (_, Some(date)) => date,
            (clock, None) => clock.unwrap_or_default(),
        };
        self.clock = Some(from + item.duration);
        let whole = match got {
            Got::Whole(data) => self.verifier.as_mut().map(|verifier| (verifier, data)),
            Got::Stamps(_) => None,
        };
        let Some((verifier, data)) = whole else {
            if let Some(date) = item.date {
                self.viewer.stats().playback.set_captured(from, date, CaptureClock::DateTime);
            }
            if let Got::Stamps(Some(stamps)) = got {
                self.viewer.stats().playback.set_stamps(from, *stamps);
            }
            self.viewer.media(arrived, self.track, from, from + item.duration);
            return Ok(());
        };
        let mut found = Vec::new();
        let mut counts = self.viewer.stats().verified;
        let result = verifier.media(data, &mut counts, &mut |media| found.push(media));
        self.viewer.stats().verified = counts;
        result.map_err(|error| error.at(&item.place.uri))?;
        let mut date = item.date;
        for media in found {
            // The date is that of the item's start, and so of its first fragment only.
            let dated = date.take_if(|_| media.track == self.track);
            let dated = dated.map(|date| (date, media.from, CaptureClock::DateTime));
            let captured = media.captured.map(|(unix, at)| (unix, at, CaptureClock::Prft));
            if let Some((unix, at, clock)) = captured.or(dated) {
                self.viewer.stats().playback.set_captured(at, unix, clock);
            }
            if let Some(stamps) = media.stamps {
                self.viewer.stats().playback.set_stamps(media.from, stamps);
            }
            self.viewer.media(arrived, media.track, media.from, media.to);
        }
        Ok(())
    }

    /// Waits until there may be more: for the hinted part, or for time to pass. Returns what to ask
    /// for then.
    async fn wait(&mut self, step: &Step, progress: bool) -> Result<Option<Query>, Error> {
        let patience = duration(3 * step.target_duration);
        if let Some(hint) = step.hint.as_ref().filter(|_| self.uses_hints()) {
            match self.fetch(hint, Asks::Hinted, patience).await {
                Ok((answer, got)) => {
                    self.failed_hints = 0;
                    self.passed = 0;
                    self.tries.reset();
                    // The server has waited for the part, so the time before its first byte does not count.
                    let took = (answer.last - answer.first).max(LEAST);
                    self.ladder.link.measure(answer.bytes, took);
                    self.early = Some(Early { place: hint.clone(), arrived: answer.last, got });
                }
                // The segment may have ended with the part before.
                Err(error) if error.kind == Kind::Status => self.failed_hints += 1,
                Err(error) => self.tries.failed(self.viewer, error).await?,
            }
        }
        let blocks = step.can_block && self.viewer.lane.options.low_latency;
        let hinted = self.early.is_some();
        if !hinted && (!blocks || !progress) {
            // 6.3.4: after a target duration, or half of one if nothing was new. This also limits
            // requests to a server that answers at once although it should have waited.
            let pause = match (step.with_parts, step.part_target) {
                (true, Some(part)) => part / 2,
                _ if progress => step.target_duration,
                _ => step.target_duration / 2,
            };
            let due = self.loaded + pause;
            sleep(duration(due - self.viewer.now())).await;
        }
        let Some(next) = self.next.filter(|_| blocks) else { return Ok(None) };
        let mut text = format!("_HLS_msn={}", next.msn);
        if step.with_parts {
            text += &format!("&_HLS_part={}", next.part);
        }
        // 6.2.5.1: only if the last playlist is younger than half the skip boundary.
        let age = self.viewer.now() - self.loaded;
        if step.can_skip_until.is_some_and(|until| age < until / 2) {
            text += "&_HLS_skip=YES";
        }
        Ok(Some(Query { text, wait: patience }))
    }

    fn uses_hints(&self) -> bool {
        self.viewer.lane.options.hints && self.failed_hints < HINTS
    }
}

/// Delivery directives, and how long the server may take to answer.
struct Query {
    text: String,
    wait: Duration,
}

fn duration(micros: Micros) -> Duration {
    Duration::from_micros(micros.max(0).unsigned_abs())
}
