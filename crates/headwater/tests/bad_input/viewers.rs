//! Viewers of the deliveries that have no end, and the media that they are sent.

use std::io::Read;

use media::flv::TagKind;
use protocol::rtmp::ClientEvent;
use serde_json::Value;
use testkit::http::{Body, Client as Http};
use testkit::{push, rtmp, time_of, track_of};

/// What a viewer is sent at once: a message, or a chunk of one track.
pub(crate) struct Media {
    pub(crate) kind: TagKind,
    /// ID of the track of a chunk. Messages have none.
    pub(crate) track: Option<u32>,
    /// Seconds on the stream's timeline.
    pub(crate) time: f64,
    /// The access units, as they are in a file. RTMP and FLV have their own bytes before each.
    pub(crate) bytes: Vec<u8>,
}

impl Media {
    /// The media of a `moof` and its `mdat`, without their heads.
    #[track_caller]
    fn of_chunk(moof: &[u8], mdat: &[u8]) -> Self {
        let time = time_of(moof) as f64;
        let track = track_of(moof);
        let (kind, time) = match track {
            // Publishers of the clip have its audio as their second track.
            2 => (TagKind::Audio, time / 48_000.0),
            _ => (TagKind::Video, time / 90_000.0),
        };
        Self { kind, track: Some(track), time, bytes: mdat.to_vec() }
    }

    /// The media of a message. Configurations do not count as media.
    fn of_message(kind: TagKind, millis: u32, payload: &[u8]) -> Option<Self> {
        let time = f64::from(millis) / 1000.0;
        (payload[1] == 1).then(|| Self { kind, track: None, time, bytes: payload.to_vec() })
    }
}

/// Asks for a resource of `live/x`.
#[track_caller]
pub(crate) fn ask(origin: &testkit::Server, file: &str, limit: std::time::Duration) -> Http {
    let mut http = Http::connect(origin.http, limit).expect("the server listens");
    http.send("GET", &format!("/live/x/{file}"), &[], b"").expect("the server is there");
    http
}

/// The body of the answer, which must be a success.
#[track_caller]
pub(crate) fn body(http: &mut Http) -> Body<'_> {
    let (head, body) = http.begin().expect("the server answers");
    assert_eq!(head.status, 200, "{head:?}");
    body
}

/// Reads `size` bytes. `None` where the answer is over.
#[track_caller]
pub(crate) fn read(body: &mut impl Read, size: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    body.take(size as u64).read_to_end(&mut bytes).expect("it does not break off");
    assert!(bytes.is_empty() || bytes.len() == size, "it ends in the middle");
    (bytes.len() == size).then_some(bytes)
}

/// A box's name and content.
#[track_caller]
fn next_box(from: &mut impl Read) -> Option<([u8; 4], Vec<u8>)> {
    let head = read(from, 8)?;
    let (size, name) = head.split_at(4);
    let size = u32::from_be_bytes(*size.first_chunk()?) as usize;
    let content = if size == 8 { Vec::new() } else { read(from, size - 8).expect("its content") };
    Some((*name.first_chunk()?, content))
}

/// The next media of `live.mp4`.
#[track_caller]
pub(crate) fn next_of_mp4(body: &mut impl Read) -> Option<Media> {
    let mut moof = Vec::new();
    loop {
        match next_box(body)? {
            (name, content) if name == *b"moof" => moof = content,
            (name, content) if name == *b"mdat" => return Some(Media::of_chunk(&moof, &content)),
            _ => {}
        }
    }
}

/// The next media of `live.flv`, after the file's header, [`FLV_HEADER`].
#[track_caller]
pub(crate) fn next_of_flv(body: &mut impl Read) -> Option<Media> {
    loop {
        let head = read(body, 11)?;
        let size = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
        let time = u32::from_be_bytes([head[7], head[4], head[5], head[6]]);
        // The size of the tag follows it.
        let payload = read(body, size + 4).expect("the rest of the tag");
        let kind = match head[0] {
            8 => TagKind::Audio,
            9 => TagKind::Video,
            _ => continue,
        };
        let media = Media::of_message(kind, time, &payload[..size]);
        if media.is_some() {
            return media;
        }
    }
}

/// Bytes before the first tag of an FLV.
pub(crate) const FLV_HEADER: usize = 9 + 4;

/// The next media of an RTMP player.
#[track_caller]
pub(crate) fn next_of_rtmp(player: &mut rtmp::Client) -> Option<Media> {
    loop {
        let (kind, time, payload) = match player.next()? {
            ClientEvent::Audio { timestamp, payload } => (TagKind::Audio, timestamp, payload),
            ClientEvent::Video { timestamp, payload } => (TagKind::Video, timestamp, payload),
            _ => continue,
        };
        let media = Media::of_message(kind, time, &payload);
        if media.is_some() {
            return media;
        }
    }
}

/// The next media of a push viewer. `told` gets the events before.
#[track_caller]
pub(crate) fn next_of_push(
    viewer: &mut push::Client,
    mut told: impl FnMut(Value),
) -> Option<Media> {
    loop {
        let frame = viewer.next()?;
        match frame.opcode {
            1 => told(frame.event()),
            2 if frame.payload[4..8] != *b"ftyp" => return next_of_mp4(&mut &frame.payload[..]),
            _ => {}
        }
    }
}
