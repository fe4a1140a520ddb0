//! Measures answers: how long they take, and how many bytes they carry.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Body, BodyStream, Method, Piece, Request, Response, length};

use super::route::{Packaged, Resource};
use crate::counts::{Carrier, Loop, Wanted};
use crate::sessions::{Asking, Over};
use crate::traces::Trace;

/// What an answer is. Those of deliveries with connections of their own have a [`crate::sessions::Meter`] instead.
pub(super) type Kind = (Wanted, Carrier);

/// What the answer for a resource of a live stream is.
pub(super) fn live(resource: Resource<'_>, request: &Request) -> Option<Kind> {
    let is_blocking = || request.query().is_some_and(|query| query.contains("_HLS_msn="));
    Some(match resource {
        Resource::MediaPlaylist { .. } if is_blocking() => (Wanted::Reload, Carrier::LlHls),
        Resource::Multivariant | Resource::MediaPlaylist { .. } => (Wanted::Playlist, Carrier::Hls),
        Resource::Manifest => (Wanted::Playlist, Carrier::Dash),
        Resource::Header { .. } | Resource::Segment { .. } => (Wanted::Media, Carrier::Hls),
        Resource::SegmentAt { .. } => (Wanted::Media, Carrier::Dash),
        Resource::Part { .. } => (Wanted::Part, Carrier::LlHls),
        Resource::Mp4 | Resource::Flv | Resource::Push | Resource::Beacon => return None,
    })
}

/// What the answer for a resource of a title, or for a file, is.
pub(super) fn title(resource: Option<Packaged<'_>>) -> Option<Kind> {
    Some(match resource {
        None => (Wanted::Media, Carrier::File),
        Some(Packaged::Push | Packaged::Beacon) => return None,
        Some(
            Packaged::Multivariant
            | Packaged::Manifest
            | Packaged::MediaPlaylist { .. }
            | Packaged::IFramePlaylist { .. },
        ) => (Wanted::Playlist, Carrier::Title),
        Some(_) => (Wanted::Media, Carrier::Title),
    })
}

/// Makes an answer. Tells whether it had to wait for something.
pub(super) async fn watch(
    mut answer: Pin<&mut impl Future<Output = Response>>,
) -> (Response, bool) {
    let mut has_waited = false;
    let answer = poll_fn(|cx| {
        let polled = answer.as_mut().poll(cx);
        has_waited |= polled.is_pending();
        polled
    });
    (answer.await, has_waited)
}

/// Counts an answer, also to the session of the player that asks.
pub(super) fn count(
    own: &Arc<Loop>,
    kind: Option<Kind>,
    request: &Request,
    (answer, has_waited): (Response, bool),
    asking: Option<Asking>,
) -> Response {
    let Some((wanted, carrier)) = kind else { return answer };
    // What did not wait was made right after its request was read: the clock would tell nothing.
    own.answered(wanted, has_waited.then(|| request.received().elapsed()));
    if request.method() != Method::Get {
        return answer;
    }
    answer.map_body(|body| match body {
        Body::Stream(stream) => Body::Stream(Counted::of(stream, carrier, own, asking)),
        Body::Sized(size, stream) => Body::Sized(size, Counted::of(stream, carrier, own, asking)),
        whole => {
            let size = whole.size().unwrap_or(0);
            own.sends(carrier, size);
            if let Some(asking) = asking {
                asking.meter().add(size);
            }
            whole
        }
    })
}

/// Notes that an answer is there, and when the connection gets its first bytes.
pub(super) fn traced(mut trace: Trace, request: &Request, answer: Response) -> Response {
    if !trace.is_open() {
        return answer;
    }
    trace.text("url.path", request.path());
    trace.number("http.response.status_code", answer.status().into());
    if answer.status() >= 400 {
        trace.failed(&format_args!("the answer has the status {}", answer.status()));
        return answer;
    }
    trace.has_media();
    if request.method() != Method::Get {
        trace.done();
        return answer;
    }
    answer.map_body(|body| match body {
        Body::Stream(stream) => Body::Stream(Box::new(Traced { stream, trace })),
        Body::Sized(size, stream) => Body::Sized(size, Box::new(Traced { stream, trace })),
        whole => {
            trace.sent();
            whole
        }
    })
}

/// A payload whose first bytes are waited for.
struct Traced {
    stream: Box<dyn BodyStream>,
    trace: Trace,
}

impl BodyStream for Traced {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<Piece>>>> {
        let next = self.stream.poll_next(cx);
        match &next {
            Poll::Ready(Some(Ok(pieces))) if !pieces.is_empty() => self.trace.sent(),
            Poll::Ready(Some(Err(error))) => self.trace.failed(error),
            Poll::Ready(None) => self.trace.done(),
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        next
    }

    fn drain(&mut self) {
        self.stream.drain();
    }

    fn stalled(&mut self) {
        self.stream.stalled();
    }
}

/// A payload whose bytes are counted as it is sent: the viewer may leave before its end.
struct Counted {
    stream: Box<dyn BodyStream>,
    carrier: Carrier,
    own: Arc<Loop>,
    asking: Option<Asking>,
}

impl Counted {
    fn of(
        stream: Box<dyn BodyStream>,
        carrier: Carrier,
        own: &Arc<Loop>,
        asking: Option<Asking>,
    ) -> Box<dyn BodyStream> {
        Box::new(Self { stream, carrier, own: Arc::clone(own), asking })
    }
}

impl BodyStream for Counted {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<Piece>>>> {
        if self.asking.as_ref().is_some_and(Asking::is_ended) {
            return Poll::Ready(Some(Err(io::Error::other(Over::Ended.to_string()))));
        }
        let next = self.stream.poll_next(cx);
        if let Poll::Ready(Some(Ok(pieces))) = &next {
            let bytes = length(pieces);
            self.own.sends(self.carrier, bytes);
            if let Some(asking) = &self.asking {
                asking.meter().add(bytes);
            }
        }
        next
    }

    fn drain(&mut self) {
        self.stream.drain();
    }

    fn stalled(&mut self) {
        self.stream.stalled();
    }
}
