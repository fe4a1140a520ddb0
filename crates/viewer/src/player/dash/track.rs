//! One track of a presentation, which fetches its segments one after the other.

use std::time::Duration;

use tokio::time::sleep;

use super::timeline::{Cursor, Segment, Step, step};
use crate::http::{Body, Client, Request};
use crate::mpd::Manifest;
use crate::playback::{CaptureClock, Stamps, Track};
use crate::player::{Link, Tries};
use crate::skim::{self, Mp4Event, Search, SegmentStamps, micros};
use crate::url::Url;
use crate::verify::Feed;
use crate::{Asks, Error, Kind, Micros, Viewer};

/// Longest header, in bytes.
const MAX_HEADER: usize = 8 << 20;

/// A track's player.
pub(super) struct Player<'a> {
    viewer: &'a Viewer,
    client: Client<'a>,
    cursor: Cursor,
    /// The header that was fetched last, with its URL.
    header: Option<(Url, media::cmaf::Header)>,
    feed: Option<Box<Feed>>,
    search: Search,
    link: Link,
    period: Option<Micros>,
    bandwidth: Option<u64>,
}

impl<'a> Player<'a> {
    pub(super) fn new(viewer: &'a Viewer, track: Track) -> Self {
        let options = &viewer.lane.options;
        Self {
            viewer,
            client: Client::new(viewer),
            cursor: Cursor {
                track,
                rendition: options.rendition,
                low_latency: options.low_latency,
                rate: None,
                next: None,
                fetched: None,
            },
            header: None,
            feed: viewer.verify.then(|| Box::new(Feed::new(viewer.reference.clone()))),
            search: Search::default(),
            link: Link::default(),
            period: None,
            bandwidth: None,
        }
    }

    pub(super) fn step(
        &mut self,
        manifest: &Manifest,
        url: &Url,
        now: Micros,
    ) -> Result<Step, Error> {
        step(manifest, url, &mut self.cursor, now)
    }

    /// Fetches the listed segments; returns whether there were any.
    pub(super) async fn fetch(&mut self, step: Step) -> Result<bool, Error> {
        let progress = !step.segments.is_empty();
        for segment in &step.segments {
            if step.finished {
                self.viewer.wait_for_room().await;
            }
            if let Some(available) = segment.available {
                let now = self.viewer.lane.clock.unix(self.viewer.now());
                sleep(Duration::from_micros((available - now).max(0).unsigned_abs())).await;
            }
            self.segment(segment, &step).await?;
            (self.cursor.next, self.cursor.fetched) = (Some(segment.start), Some(segment.start));
        }
        Ok(progress)
    }

    async fn segment(&mut self, segment: &Segment, step: &Step) -> Result<(), Error> {
        if self.bandwidth.replace(segment.bandwidth).is_some_and(|known| known != segment.bandwidth)
        {
            self.viewer.stats().switches += 1;
        }
        if self.period.replace(segment.period).is_some_and(|known| known != segment.period)
            && let Some(feed) = &mut self.feed
        {
            feed.verifier().restart();
        }
        if let Some(url) = &segment.header
            && self.header.as_ref().is_none_or(|(known, _)| known != url)
        {
            Box::pin(self.fetch_header(url)).await?;
        }
        let mut tries = Tries::default();
        loop {
            let Err(error) = self.media(segment, step).await else { return Ok(()) };
            if error.kind == Kind::Status && tries.are_spent() {
                // The segment cannot be had. A player goes on with the next.
                self.viewer.trouble(error.kind);
                if let Some(feed) = &mut self.feed {
                    feed.verifier().restart();
                }
                return Ok(());
            }
            tries.failed(self.viewer, error).await?;
            if let Some(feed) = &mut self.feed {
                // The bytes that came of it will come again.
                feed.discard();
            }
        }
    }

    async fn fetch_header(&mut self, url: &Url) -> Result<(), Error> {
        let mut data = Vec::new();
        let mut tries = Tries::default();
        loop {
            data.clear();
            match self
                .client
                .send(Request::new(url, Asks::Init), Body::Text(&mut data, MAX_HEADER))
                .await
            {
                Ok(_) => break,
                Err(error) => tries.failed(self.viewer, error).await?,
            }
        }
        if let Some(feed) = &mut self.feed {
            let counts = &mut self.viewer.stats().verified;
            feed.verifier().header(&data, counts).map_err(|error| error.at(url))?;
        }
        let header = media::cmaf::read_header(&data).map_err(|error| Error::from(error).at(url))?;
        self.viewer.lane.give_back(data);
        self.header = Some((url.clone(), header));
        Ok(())
    }

    /// Fetches a segment. Its media count as they come if they are verified or still being made.
    /// Otherwise they count once the segment is complete.
    async fn media(&mut self, segment: &Segment, step: &Step) -> Result<(), Error> {
        let viewer = self.viewer;
        let asked = viewer.lane.clock.unix(viewer.now());
        let asks = if segment.is_file { Asks::Stream } else { Asks::Segment };
        let request = Request { paced: step.finished, ..Request::new(&segment.url, asks) };
        let track = self.cursor.track;
        let played = |captured: Option<(Micros, Micros)>,
                      stamps: Option<Stamps>,
                      from: Micros,
                      to: Micros| {
            let dated = step.epoch.map(|epoch| (epoch, 0, CaptureClock::DateTime));
            let captured = captured.map(|(unix, at)| (unix, at, CaptureClock::Prft));
            if let Some((unix, at, clock)) = captured.or(dated) {
                viewer.stats().playback.set_captured(at, unix, clock);
            }
            if let Some(stamps) = stamps {
                viewer.stats().playback.set_stamps(from, stamps);
            }
            viewer.media(viewer.now(), track, from, to);
        };
        let origin = segment.origin;
        let answer = if let Some(feed) = &mut self.feed {
            let mut take = |data: &[u8]| {
                let mut counts = viewer.stats().verified;
                let result = feed.read(data, &mut counts, &mut |media| {
                    let captured = media.captured.map(|(unix, at)| (unix, origin + at));
                    played(captured, media.stamps, origin + media.from, origin + media.to);
                });
                viewer.stats().verified = counts;
                result
            };
            let answer = self.client.send(request, Body::Media(&mut take)).await?;
            feed.finish().map_err(|error| error.at(&segment.url))?;
            answer
        } else if segment.streamed {
            let mut header =
                self.header.as_ref().map(|(_, header)| header.clone()).unwrap_or_default();
            let mut skimmer = skim::Mp4::with_header(&header);
            let mut take = |data: &[u8]| {
                skimmer.read(data, &mut |event| match event {
                    Mp4Event::Header(inside) => header = inside,
                    Mp4Event::Fragment(fragment) => {
                        let of = header.tracks.iter().find(|track| track.id == fragment.track_id);
                        let Some(of) = of else { return };
                        let at = |ticks: u64| {
                            let ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
                            origin.saturating_add(micros(ticks, of.timescale))
                        };
                        let captured = fragment.captured.map(|(unix, media)| (unix, at(media)));
                        let end = fragment.decode_time.saturating_add(fragment.duration);
                        played(captured, fragment.stamps, at(fragment.decode_time), at(end));
                    }
                })
            };
            self.client.send(request, Body::Media(&mut take)).await?
        } else {
            let mut stamps = None;
            let answer = if track == Track::Video && self.search.is_on() {
                // Boxed: it is large, and not always needed.
                let mut inside = Box::new(SegmentStamps::default());
                let mut take = |data: &[u8]| {
                    inside.read(data);
                    Ok(())
                };
                let answer = self.client.send(request, Body::Media(&mut take)).await?;
                stamps = inside.stamps();
                self.search.took(stamps);
                answer
            } else {
                self.client.send(request, Body::Discard).await?
            };
            played(None, stamps, segment.start, segment.start + segment.duration);
            answer
        };
        let end = segment.start.saturating_add(segment.duration);
        // A segment that was still being made came as fast as it was made, whatever the connection carries.
        let is_made = || step.epoch.is_none_or(|epoch| asked >= epoch.saturating_add(end));
        if !segment.streamed || is_made() {
            self.link.measure(answer.bytes, answer.took);
            self.cursor.rate = self.link.rate();
        }
        Ok(())
    }
}
