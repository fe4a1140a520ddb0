//! An encoder that publishes, and comes back to any node when it is not let in or loses its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use live::PublisherInfo;
use live::backup::{Role, Seat};
use media::codec::{aac, avc};
use media::{Codec, Sample};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::frame::Frame;
use super::node::Node;

/// Time between two frames.
const FRAME: i64 = 100;
/// Frames between two keyframes.
const KEYFRAMES: u32 = 10;

/// An encoder.
pub(super) struct Encoder {
    pub(super) stream: String,
    pub(super) role: Role,
    /// The node, by its place, at which it publishes or tries to.
    pub(super) at: usize,
    /// Whether its sessions that begin have audio.
    pub(super) has_audio: bool,
    publisher: Option<Seat>,
    /// What the node does before it lets the encoder in.
    fetching: Option<JoinHandle<()>>,
    frame: Frame,
    /// When its session began.
    began: Instant,
    /// When it tries again.
    again: Instant,
    /// Until when it hangs: it sends nothing, and keeps its connection.
    hangs: Instant,
}

impl Encoder {
    pub(super) fn new((stream, role): (&str, Role), at: usize, number: u32) -> Self {
        Self {
            stream: stream.to_owned(),
            role,
            at,
            has_audio: true,
            publisher: None,
            fetching: None,
            frame: Frame { session: number << 20, number: 0 },
            began: Instant::now(),
            again: Instant::now(),
            hangs: Instant::now(),
        }
    }

    pub(super) fn is_publishing(&self) -> bool {
        self.publisher.is_some()
    }

    /// Leaves its node, and comes to another after a while.
    pub(super) fn leave(&mut self, to: usize, after: Duration) {
        drop(self.desert(to, after));
    }

    /// Leaves its node, which does not notice that yet, and comes to another after a while. Returns what the node still
    /// has of it.
    pub(super) fn desert(&mut self, to: usize, after: Duration) -> Option<Seat> {
        self.fetching = None;
        (self.at, self.again) = (to, Instant::now() + after);
        self.publisher.take()
    }

    /// Hangs for a while.
    pub(super) fn hang(&mut self, lasts: Duration) {
        self.hangs = Instant::now() + lasts;
    }

    /// Sends the frames that are due. Returns whether it has lost its publisher, or was not let in.
    pub(super) fn step(&mut self, node: &Node) -> bool {
        if Instant::now() < self.hangs {
            return false;
        }
        if self.publisher.is_none() {
            if Instant::now() < self.again {
                return false;
            }
            let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
            // What other nodes have is fetched first. Meanwhile time goes on for all.
            let Some(fetching) = self.fetching.take() else {
                let (origin, stream) = (Arc::clone(&node.origin), self.stream.clone());
                let role = self.role;
                self.fetching =
                    Some(tokio::spawn(async move { origin.fetch(&stream, role).await }));
                return false;
            };
            if !fetching.is_finished() {
                self.fetching = Some(fetching);
                return false;
            }
            let now = node.origin.now();
            let Ok(mut publisher) = node.origin.publish(&self.stream, self.role, info) else {
                return true;
            };
            let video = Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap());
            let audio = aac::Config::parse(Bytes::from_static(&[0x11, 0x90])).unwrap();
            let mut announced = publisher.track(0, video, 1000, *b"und", now);
            if announced.is_ok() && self.has_audio {
                announced = publisher.track(1, Codec::Aac(audio), 1000, *b"und", now);
            }
            if announced.is_err() {
                return true;
            }
            self.frame = Frame { session: self.frame.session + 1, number: 0 };
            (self.publisher, self.began) = (Some(publisher), Instant::now());
        }
        let Some(publisher) = &mut self.publisher else { return false };
        let now = node.origin.now();
        while self.began.elapsed().as_millis() >= u128::from(self.frame.number) * FRAME as u128 {
            let dts = i64::from(self.frame.number) * FRAME;
            let sync = self.frame.number.is_multiple_of(KEYFRAMES);
            let data = self.frame.write();
            let video = Sample { dts, cts: 0, duration: 0, sync, data: data.clone() };
            let audio = Sample { dts, cts: 0, duration: 0, sync: true, data };
            let mut sent = publisher.sample(0, video, now);
            if sent.is_ok() && self.has_audio {
                sent = publisher.sample(1, audio, now);
            }
            if sent.is_err() {
                self.publisher = None;
                return true;
            }
            self.frame.number += 1;
        }
        false
    }
}
