//! A response body from an async function.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::http::BodyStream;

type Step<S> = Pin<Box<dyn Future<Output = io::Result<Option<(Vec<Bytes>, S)>>>>>;

/// A body made by calling `next` again and again with the state it returned; `None` ends it.
/// `endless` bodies end when the server drains.
pub(super) fn unfold<S, F, Fut>(state: S, endless: bool, mut next: F) -> impl BodyStream
where
    S: 'static,
    F: FnMut(S) -> Fut + 'static,
    Fut: Future<Output = io::Result<Option<(Vec<Bytes>, S)>>> + 'static,
{
    let step: Step<S> = Box::pin(next(state));
    Unfold { step: Some(step), next: move |state| -> Step<S> { Box::pin(next(state)) }, endless }
}

struct Unfold<S, F> {
    step: Option<Step<S>>,
    next: F,
    endless: bool,
}

impl<S, F: FnMut(S) -> Step<S>> BodyStream for Unfold<S, F> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<Bytes>>>> {
        let Some(step) = &mut self.step else { return Poll::Ready(None) };
        let done = std::task::ready!(step.as_mut().poll(cx));
        self.step = None;
        Poll::Ready(match done {
            Ok(Some((bytes, state))) => {
                self.step = Some((self.next)(state));
                Some(Ok(bytes))
            }
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        })
    }

    fn drain(&mut self) {
        if self.endless {
            self.step = None;
        }
    }
}
