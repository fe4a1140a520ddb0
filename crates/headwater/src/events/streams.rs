//! Finds out which streams began, were lost or ended since the last look.
//!
//! A stream stays in the registry for a while after its end, so a look each second misses none.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use live::{Status, Stream};

use super::Event;
use crate::path::StreamPath;

/// What was seen at the last look, by path.
#[derive(Debug, Default)]
pub(crate) struct Seen(HashMap<String, Known>);

#[derive(Debug)]
struct Known {
    stream: Weak<Stream>,
    status: Status,
    /// Whether it is this node's, and no copy of another's.
    is_own: bool,
}

impl Seen {
    /// Compares the streams with those of the last look. Copies of other nodes' streams do not count: their nodes tell.
    /// A stream that another node goes on with has not ended. The node that goes on with it tells that it is published:
    /// the first may have told that its publisher was lost.
    pub(crate) fn look(&mut self, streams: &[Arc<Stream>]) -> Vec<Event> {
        let (mut events, mut now) = (Vec::new(), HashMap::new());
        for stream in streams {
            let path = StreamPath::Live(stream.name()).to_string();
            let (status, is_own) = (stream.state().status, !stream.is_mirrored());
            let before = self.0.remove(&path);
            let same = before.as_ref().filter(|known| known.stream.as_ptr() == Arc::as_ptr(stream));
            if let Some(before) = same {
                let taken = is_own && !before.is_own && status == Status::Live;
                let then = if taken { Status::Offline } else { before.status };
                events.extend(change(&path, then, status).filter(|_| is_own));
            } else {
                // Another stream may have had the name.
                events.extend(before.and_then(|before| over(&path, &before)));
                events.extend(begun(&path, status).into_iter().filter(|_| is_own));
            }
            now.insert(path, Known { stream: Arc::downgrade(stream), status, is_own });
        }
        for (path, before) in std::mem::replace(&mut self.0, now) {
            events.extend(over(&path, &before));
        }
        events
    }
}

/// A stream that was not there before.
fn begun(path: &str, status: Status) -> Vec<Event> {
    let started = Event::StreamStarted { stream: path.to_owned() };
    let rest = change(path, Status::Live, status);
    std::iter::once(started).chain(rest).collect()
}

/// A stream that is gone. The node that went on with it tells of its end.
fn over(path: &str, known: &Known) -> Option<Event> {
    change(path, known.status, Status::Ended).filter(|_| known.is_own)
}

fn change(path: &str, before: Status, now: Status) -> Option<Event> {
    let stream = path.to_owned();
    match (before, now) {
        (Status::Offline, Status::Live) => Some(Event::StreamStarted { stream }),
        (Status::Live, Status::Offline) => Some(Event::StreamLost { stream }),
        (Status::Live | Status::Offline, Status::Ended) => Some(Event::StreamEnded { stream }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use live::{PublisherInfo, Registry, Settings, UnixMicros};

    use super::*;

    #[test]
    fn each_stream_begins_is_lost_comes_back_and_ends_once() {
        let registry = Registry::new(Settings::default());
        let mut seen = Seen::default();
        let mut now = UnixMicros(1_700_000_000_000_000);
        let mut look = |now: UnixMicros| {
            registry.sweep(now);
            let events = seen.look(&registry.streams()).into_iter();
            events.map(|event| event.name()).collect::<Vec<_>>()
        };
        let publish = |now| {
            let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
            let mut publisher = registry.publish("x", info, now).unwrap();
            // A stream without media ends with its publisher.
            let video = media::codec::avc::Config::parse(testkit::avc_record(31).into()).unwrap();
            publisher.track(0, media::Codec::Avc(video), 1000, *b"und", now).unwrap();
            for frame in 0..90 {
                let data = bytes::Bytes::from_static(&[0; 64]);
                let sync = frame % 30 == 0;
                let sample = media::Sample { dts: frame * 40, cts: 0, duration: 0, sync, data };
                publisher.sample(0, sample, now).unwrap();
            }
            publisher
        };
        assert_eq!(look(now), [""; 0]);
        let publisher = publish(now);
        assert_eq!(look(now), ["stream_started"]);
        assert_eq!(look(now), [""; 0]);
        drop(publisher);
        assert_eq!(look(now), ["stream_lost"]);
        let publisher = publish(now);
        assert_eq!(look(now), ["stream_started"]);
        drop(publisher);
        assert_eq!(look(now), ["stream_lost"]);
        now = now.after(Duration::from_secs(31));
        assert_eq!(look(now), ["stream_ended"]);
        // Another node goes on with it for a while.
        drop(publish(now));
        assert_eq!(look(now), ["stream_started", "stream_lost"]);
        assert!(registry.stream("x").unwrap().become_copy());
        assert_eq!(look(now), [""; 0]);
        assert!(registry.adopt("x", now));
        assert_eq!(look(now), [""; 0]);
        // A look at the copy, and then at the stream that is published here again.
        assert!(registry.stream("x").unwrap().become_copy());
        assert_eq!(look(now), [""; 0]);
        assert!(registry.adopt("x", now));
        let publisher = publish(now);
        assert_eq!(look(now), ["stream_started"]);
        drop(publisher);
        assert_eq!(look(now), ["stream_lost"]);
        now = now.after(Duration::from_secs(3600));
        assert_eq!(look(now), ["stream_ended"]);
        // One that comes and goes between two looks.
        drop(publish(now));
        let events = look(now);
        assert_eq!(events, ["stream_started", "stream_lost"]);
        now = now.after(Duration::from_secs(3600));
        assert_eq!(look(now), ["stream_ended"]);
        now = now.after(Duration::from_secs(3600));
        assert_eq!(look(now), [""; 0]);
    }
}
