use std::collections::BTreeMap;
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::playback::{CaptureClock, Gauge, Playback, Track};
use crate::requests::{Gauges, RequestTime};
use crate::{Error, Kind, Micros, seconds};

/// How a viewer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It watched for as long as it was told to.
    Time,
    /// The stream or file ended before that time.
    Ended,
    /// It could not go on.
    Error,
}

/// What the verifier has checked and found, for a viewer that verifies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    /// Headers, chunks, tags and messages whose structure was checked.
    pub units: u64,
    /// Access units whose framing and times were checked.
    pub samples: u64,
    /// Access units found in the reference, each right after the one before.
    pub matched: u64,
    /// Access units of the reference that should have come and did not come.
    pub missing: u64,
    /// How often decode times left a hole.
    pub holes: u64,
    /// Playlists and manifests read.
    pub manifests: u64,
}

/// Packets of media by RTP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rtp {
    /// Packets that came in time.
    pub packets: u64,
    /// Packets that did not come in time.
    pub lost: u64,
    /// Packets that came in time, but after later ones: most of them were lost and sent again.
    pub recovered: u64,
    /// How often the player asked for a keyframe, because a picture could not be decoded.
    pub keyframe_requests: u64,
}

impl Rtp {
    /// Adds the packets of another viewer.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.lost += other.lost;
        self.recovered += other.recovered;
        self.keyframe_requests += other.keyframe_requests;
    }
}

/// What only viewers by WebRTC have. Apart, so that other viewers take no memory for it.
#[derive(Debug, Default)]
pub struct WebRtc {
    /// The packets.
    pub rtp: Rtp,
    /// When the first packet came. The times of all sessions of the viewer count from then.
    pub begun: Option<Instant>,
    /// When the first frame was whole.
    pub first_frame: Option<Micros>,
    /// When it stopped watching. It ends its session after that.
    pub left: Option<Micros>,
}

/// Counters of one viewer.
#[derive(Debug)]
pub struct Stats {
    /// Number of the viewer, from 0.
    pub id: u32,
    /// Number of its batch, from 0.
    pub batch: u32,
    /// When the viewer began, since the start of the run.
    pub joined: Micros,
    /// When the viewer ended.
    pub left: Micros,
    /// When the first byte of media came.
    pub first_media: Option<Micros>,
    /// What is counted of WebRTC, if media come by it.
    pub webrtc: Option<Box<WebRtc>>,
    /// The player's clock.
    pub playback: Playback,
    /// Bytes of media, as they came in bodies and messages.
    pub media_bytes: u64,
    /// All other bytes: playlists, headers, handshakes, chunk headers.
    pub overhead_bytes: u64,
    /// Bytes sent: requests, handshakes, messages.
    pub sent_bytes: u64,
    /// Requests sent.
    pub requests: u32,
    /// How long the answered requests took.
    pub(crate) times: Gauges,
    /// Connections made beyond the first ones.
    pub reconnects: u32,
    /// How often the player changed to another rendition.
    pub switches: u32,
    /// Troubles by [`Kind`], including those that the viewer got over.
    pub troubles: [u32; Kind::ALL.len()],
    /// What was verified.
    pub verified: Verified,
    /// Whether the viewer verifies.
    pub is_verified: bool,
    /// How the viewer ended; [`End::Time`] until then.
    pub end: End,
    /// Why the viewer could not go on.
    pub error: Option<Box<Error>>,
}

impl Stats {
    pub(crate) fn new(id: u32, batch: u32, joined: Micros, threshold: Micros) -> Self {
        Self {
            id,
            batch,
            joined,
            left: joined,
            first_media: None,
            webrtc: None,
            playback: Playback::new(threshold),
            media_bytes: 0,
            overhead_bytes: 0,
            sent_bytes: 0,
            requests: 0,
            times: Gauges::default(),
            reconnects: 0,
            switches: 0,
            troubles: [0; Kind::ALL.len()],
            verified: Verified::default(),
            is_verified: false,
            end: End::Time,
            error: None,
        }
    }

    /// Returns the result of the viewer, once it has left.
    pub fn report(&self) -> Report {
        let (playback, latencies) = (&self.playback, self.playback.latencies());
        let first_frame = self.webrtc.as_deref().and_then(|webrtc| webrtc.first_frame);
        let (stalls, stalled) = playback.stalls();
        let (holes, missing) = playback.holes();
        let watched = self.left - self.joined;
        let of = |track| {
            playback.span(track).map(|span| TrackReport {
                from: seconds(span.from),
                to: seconds(span.to),
                received: seconds(span.received),
            })
        };
        Report {
            id: self.id,
            batch: self.batch,
            joined: seconds(self.joined),
            watched: seconds(watched),
            end: self.end,
            error: self.error.as_deref().map(|error| Failure {
                kind: error.kind,
                what: error.what.to_string(),
                place: error.place.clone(),
            }),
            first_media: self.first_media.map(|at| seconds(at - self.joined)),
            first_picture: first_frame.map(|at| seconds(at - self.joined)),
            startup: playback.started().map(|at| seconds(at - self.joined)),
            received: seconds(playback.received()),
            video: of(Track::Video),
            audio: of(Track::Audio),
            stalls,
            stalled: seconds(stalled),
            holes,
            missing: seconds(missing),
            longest_hole: seconds(playback.longest_hole()),
            delivery: Latency::of(latencies.delivery()),
            delivery_p50: latencies.delivered(0.5).map(seconds),
            delivery_p99: latencies.delivered(0.99).map(seconds),
            behind_live: Latency::of(latencies.behind()),
            clock: latencies.clock(),
            late: Latency::of(latencies.late()),
            audio_video: Latency::of(playback.skew()),
            switches: self.switches,
            media_bytes: self.media_bytes,
            overhead_bytes: self.overhead_bytes,
            sent_bytes: self.sent_bytes,
            requests: self.requests,
            requests_by_kind: self.times.report(),
            reconnects: self.reconnects,
            troubles: Kind::ALL
                .into_iter()
                .zip(self.troubles)
                .filter(|(_, count)| *count > 0)
                .map(|(kind, count)| (kind.name().to_owned(), count))
                .collect(),
            verified: self.is_verified.then_some(self.verified),
            rtp: self.webrtc.as_deref().map(|webrtc| webrtc.rtp),
        }
    }
}

/// One viewer's result. Times are in seconds.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Number of the viewer, from 0.
    pub id: u32,
    /// Number of its batch, from 0.
    pub batch: u32,
    /// When the viewer began, after the start of the run.
    pub joined: f64,
    /// For how long it watched.
    pub watched: f64,
    /// How it ended.
    pub end: End,
    /// Why the viewer could not go on, if that is how it ended.
    pub error: Option<Failure>,
    /// Time from joining to the first byte of media.
    pub first_media: Option<f64>,
    /// Time from joining to the first whole picture; absent if media come in larger pieces.
    pub first_picture: Option<f64>,
    /// Time from joining to playing.
    pub startup: Option<f64>,
    /// Media received. Of video and audio, the track with less media counts.
    pub received: f64,
    /// Video received.
    pub video: Option<TrackReport>,
    /// Audio received.
    pub audio: Option<TrackReport>,
    /// How often the player stalled.
    pub stalls: u32,
    /// Duration of all stalls together.
    pub stalled: f64,
    /// How often media were missing between other media. Where video and audio are missing at the same time, that is one
    /// hole.
    pub holes: u32,
    /// Duration of all holes together: the time for which video or audio is missing.
    pub missing: f64,
    /// Duration of the longest of these holes.
    #[serde(default)]
    pub longest_hole: f64,
    /// Time from capture to arrival, if the stream says when it was captured. Media that the server had ready when the
    /// viewer came do not count here.
    pub delivery: Option<Latency>,
    /// The time from capture to arrival within which half of these media arrived, with one exact digit.
    #[serde(default)]
    pub delivery_p50: Option<f64>,
    /// The same for 99 % of them.
    #[serde(default)]
    pub delivery_p99: Option<f64>,
    /// Time from capture to the playhead, if the stream says when it was captured.
    pub behind_live: Option<Latency>,
    /// The clock that gave the capture time: the publisher's, in stamps of the video, or the
    /// server's, in `prft`, playlist or manifest.
    pub clock: Option<CaptureClock>,
    /// How much later media arrived than the earliest arrivals. Shows jitter, and whether the
    /// viewer falls behind.
    pub late: Option<Latency>,
    /// End of the received video minus end of the received audio.
    pub audio_video: Option<Latency>,
    /// How often the player changed to another rendition.
    pub switches: u32,
    /// Bytes of media.
    pub media_bytes: u64,
    /// All other bytes: playlists, headers, handshakes.
    pub overhead_bytes: u64,
    /// Bytes sent: requests, handshakes, messages.
    pub sent_bytes: u64,
    /// Requests sent.
    pub requests: u32,
    /// Answered requests by what they asked for: `playlist`, `reload` (blocking), `init`,
    /// `segment`, `part`, `hinted` (a part before the playlist listed it).
    pub requests_by_kind: BTreeMap<String, RequestTime>,
    /// Connections made beyond the first ones.
    pub reconnects: u32,
    /// Troubles by kind, including those that the viewer got over.
    pub troubles: BTreeMap<String, u32>,
    /// What was verified; absent if nothing was verified.
    pub verified: Option<Verified>,
    /// The packets, if media came by RTP.
    pub rtp: Option<Rtp>,
}

/// One track of a [`Report`], in seconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct TrackReport {
    /// Where the first media began, on the stream's timeline.
    pub from: f64,
    /// Where the last media ended.
    pub to: f64,
    /// Media between the two, without holes.
    pub received: f64,
}

/// Why a viewer could not go on.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The kind under which it is counted.
    pub kind: Kind,
    /// What was wrong.
    pub what: String,
    /// Where it was wrong.
    pub place: String,
}

/// Smallest, mean and largest value of a time, in seconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Largest.
    pub max: f64,
}

impl Latency {
    fn of(gauge: &Gauge) -> Option<Self> {
        let (min, mean, max) = gauge.read()?;
        Some(Self { min: seconds(min), mean: seconds(mean), max: seconds(max) })
    }
}
