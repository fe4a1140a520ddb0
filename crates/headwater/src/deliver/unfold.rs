//! Makes a response body of an async function.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{BodyStream, Piece};

type Step<P, S> = Pin<Box<dyn Future<Output = io::Result<Option<(Vec<P>, S)>>>>>;

/// Makes a body by calling `next` repeatedly with the state that it returned. `None` ends the body.
/// `endless` bodies end when the server drains.
pub(super) fn unfold<P, S, F, Fut>(state: S, endless: bool, mut next: F) -> impl BodyStream
where
    P: Into<Piece> + 'static,
    S: 'static,
    F: FnMut(S) -> Fut + 'static,
    Fut: Future<Output = io::Result<Option<(Vec<P>, S)>>> + 'static,
{
    let step: Step<P, S> = Box::pin(next(state));
    Unfold { step: Some(step), next: move |state| -> Step<P, S> { Box::pin(next(state)) }, endless }
}

struct Unfold<P, S, F> {
    step: Option<Step<P, S>>,
    next: F,
    endless: bool,
}

impl<P: Into<Piece>, S, F: FnMut(S) -> Step<P, S>> BodyStream for Unfold<P, S, F> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<Piece>>>> {
        let Some(step) = &mut self.step else { return Poll::Ready(None) };
        let done = std::task::ready!(step.as_mut().poll(cx));
        self.step = None;
        Poll::Ready(match done {
            Ok(Some((pieces, state))) => {
                self.step = Some((self.next)(state));
                Some(Ok(pieces.into_iter().map(Into::into).collect()))
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
