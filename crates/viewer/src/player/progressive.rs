//! MP4 and FLV over plain HTTP: files, and streams that do not end.

use bytes::Bytes;
use media::flv::{Metadata, TagKind};

use super::rtmp::expect;
use crate::http::{Body, Client, Request};
use crate::playback::{CaptureClock, Stamps, Track};
use crate::skim::{self, FlvEvent, FlvTimes, Mp4Event, micros, track_of};
use crate::url::Url;
use crate::{Asks, Error, Kind, Micros, Viewer, verify};

/// Plays an MP4. Fragments count as they come. A file with its index in front counts by how much of
/// its data has come.
pub(super) async fn mp4(viewer: &Viewer, url: &Url) -> Result<(), Error> {
    let request = Request { paced: true, ..Request::new(url, Asks::Stream) };
    let mut client = Client::new(viewer);
    let mut player = Mp4::new(viewer);
    let mut take = |data: &[u8]| player.read(data);
    client.send(request, Body::Media(&mut take)).await?;
    player.finish().map_err(|error| error.at(url))?;
    let now = viewer.now();
    viewer.stats().playback.complete(now);
    Ok(())
}

/// A reader of an MP4 as its bytes come, over HTTP or WebSocket.
pub(super) struct Mp4<'a> {
    viewer: &'a Viewer,
    skimmer: skim::Mp4,
    header: Option<media::cmaf::Header>,
    verifier: Option<Verifier>,
    /// How much of a file that is not fragmented has counted as played.
    counted: Micros,
}

enum Verifier {
    /// The header has not come yet. It shows which of the others is needed.
    Waiting(Vec<u8>),
    Fragments(Box<verify::Feed>),
    File(Box<verify::Progressive>),
}

impl<'a> Mp4<'a> {
    pub(super) fn new(viewer: &'a Viewer) -> Self {
        Self {
            viewer,
            skimmer: skim::Mp4::default(),
            header: None,
            verifier: viewer.verify.then(|| Verifier::Waiting(Vec::new())),
            counted: 0,
        }
    }

    /// Takes the next bytes.
    pub(super) fn read(&mut self, data: &[u8]) -> Result<(), Error> {
        let mut fragments = Vec::new();
        let header = &mut self.header;
        self.skimmer.read(data, &mut |event| match event {
            Mp4Event::Header(found) => *header = Some(found),
            Mp4Event::Fragment(fragment) => fragments.push(fragment),
        })?;
        self.verify(data)?;
        let Some(header) = &self.header else { return Ok(()) };
        let kinds: Vec<Track> =
            header.tracks.iter().filter_map(|track| track_of(track.kind())).collect();
        for track in &kinds {
            self.viewer.stats().playback.expect(*track);
        }
        for fragment in fragments {
            let of = header.tracks.iter().find(|track| track.id == fragment.track_id);
            let Some((of, track)) = of.and_then(|of| Some((of, track_of(of.kind())?))) else {
                continue;
            };
            let at = |ticks: u64| micros(i64::try_from(ticks).unwrap_or(i64::MAX), of.timescale);
            if let Some((unix, media)) = fragment.captured {
                self.viewer.stats().playback.set_captured(at(media), unix, CaptureClock::Prft);
            }
            if let Some(stamps) = fragment.stamps {
                let from = at(fragment.decode_time);
                self.viewer.stats().playback.set_stamps(from, stamps);
            }
            let end = fragment.decode_time.saturating_add(fragment.duration);
            self.viewer.media(self.viewer.now(), track, at(fragment.decode_time), at(end));
        }
        self.count_file(&kinds);
        Ok(())
    }

    /// Counts media of a file that is not fragmented: as much of its duration as of its data has
    /// come.
    fn count_file(&mut self, kinds: &[Track]) {
        let fragmented = self.header.as_ref().is_some_and(|header| !header.defaults.is_empty());
        let (Some(duration), Some((got, all))) = (self.skimmer.duration(), self.skimmer.data())
        else {
            return;
        };
        if fragmented || all == 0 {
            return;
        }
        let played = u128::from(duration) * 1000 * u128::from(got.min(all)) / u128::from(all);
        let played = Micros::try_from(played).unwrap_or(Micros::MAX);
        if played > self.counted {
            for track in kinds {
                self.viewer.media(self.viewer.now(), *track, self.counted, played);
            }
            self.counted = played;
        }
    }

    fn verify(&mut self, data: &[u8]) -> Result<(), Error> {
        let Some(verifier) = &mut self.verifier else { return Ok(()) };
        let mut counts = self.viewer.stats().verified;
        let mut pending = Vec::new();
        let mut data = data;
        if let Verifier::Waiting(kept) = verifier {
            kept.extend_from_slice(data);
            let Some(header) = &self.header else {
                return if kept.len() > MAX_INDEX {
                    Err(Error::new(Kind::Unsupported, "MP4 with its index behind the media"))
                } else {
                    Ok(())
                };
            };
            pending = std::mem::take(kept);
            data = &pending;
            let reference = self.viewer.reference.clone();
            *verifier = if header.defaults.is_empty() {
                Verifier::File(Box::new(verify::Progressive::new(reference)))
            } else {
                Verifier::Fragments(Box::new(verify::Feed::new(reference)))
            };
        }
        let result = match verifier {
            Verifier::Waiting(_) => Ok(()),
            Verifier::Fragments(feed) => feed.read(data, &mut counts, &mut |_| {}),
            Verifier::File(file) => file.read(data, &mut counts),
        };
        drop(pending);
        self.viewer.stats().verified = counts;
        result
    }

    /// Allows the next media to start anew, without continuing those before.
    pub(super) fn restart(&mut self) {
        if let Some(Verifier::Fragments(feed)) = &mut self.verifier {
            feed.verifier().restart();
        }
    }

    /// Checks the end of a message: a header came before media, and, if all is verified, no box is
    /// cut off.
    pub(super) fn end_message(&self) -> Result<(), Error> {
        if self.header.is_none() && self.skimmer.data().is_some() {
            return Err(Error::new(Kind::Corrupt, "media without a header"));
        }
        if self.verifier.is_some() && !self.skimmer.is_between_boxes() {
            return Err(Error::new(Kind::Corrupt, "message that ends within a box"));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        if self.header.is_none() {
            return Err(Error::new(Kind::Garbage, "MP4 without a moov"));
        }
        match &mut self.verifier {
            Some(Verifier::Fragments(feed)) => feed.finish(),
            Some(Verifier::File(file)) => file.finish(),
            Some(Verifier::Waiting(_)) | None => Ok(()),
        }
    }
}

/// Longest index in front of the media that a verifier waits for, in bytes.
const MAX_INDEX: usize = 64 << 20;

/// Plays an FLV.
pub(super) async fn flv(viewer: &Viewer, url: &Url) -> Result<(), Error> {
    let request = Request { paced: true, ..Request::new(url, Asks::Stream) };
    let mut client = Client::new(viewer);
    let mut times = FlvTimes::default();
    if viewer.verify {
        let mut reader = media::flv::Reader::new();
        let mut verifier = verify::Flv::new(viewer.reference.clone());
        let mut take = |data: &[u8]| {
            reader.handle_bytes(data);
            while let Some(tag) = reader.poll_tag()? {
                let mut counts = viewer.stats().verified;
                let result =
                    verifier.tag(tag.kind, tag.timestamp, &tag.payload, &mut counts, &mut |_| {});
                viewer.stats().verified = counts;
                result.map_err(|error| error.at(format!("byte {}", tag.position)))?;
                played(viewer, &mut times, tag.kind, tag.timestamp, &tag.payload);
            }
            Ok(())
        };
        client.send(request, Body::Media(&mut take)).await?;
        reader.finish().map_err(|error| Error::from(error).at(url))?;
    } else {
        let mut skimmer = skim::Flv::default();
        let mut take = |data: &[u8]| {
            skimmer.read(data, &mut |event| {
                let tag = match event {
                    FlvEvent::Metadata(metadata) => return expect(viewer, &metadata),
                    FlvEvent::Tag(tag) => tag,
                };
                if let Some((from, to)) = times.unit(tag.track, tag.start, tag.timestamp) {
                    if let Some(stamps) = tag.stamps {
                        viewer.stats().playback.set_stamps(to, stamps);
                    }
                    viewer.media(viewer.now(), tag.track, from, to);
                }
            })
        };
        client.send(request, Body::Media(&mut take)).await?;
    }
    let now = viewer.now();
    viewer.stats().playback.complete(now);
    Ok(())
}

/// Counts a tag whose payload has come.
fn played(viewer: &Viewer, times: &mut FlvTimes, kind: TagKind, timestamp: u32, payload: &Bytes) {
    let track = match kind {
        TagKind::Video => Track::Video,
        TagKind::Audio => Track::Audio,
        TagKind::Script => {
            if let Ok(Some(metadata)) = Metadata::parse(payload) {
                expect(viewer, &metadata);
            }
            return;
        }
    };
    let start = [0, 1].map(|at| payload.get(at).copied().unwrap_or_default());
    if let Some((from, to)) = times.unit(track, start, timestamp) {
        if track == Track::Video
            && let Some(stamps) = Stamps::of_one(payload)
        {
            viewer.stats().playback.set_stamps(to, stamps);
        }
        viewer.media(viewer.now(), track, from, to);
    }
}
