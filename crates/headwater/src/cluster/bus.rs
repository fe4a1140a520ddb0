//! What nodes need of the message system. [`nats`](super::nats) is the real one; the simulation has its own.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use live::UnixMicros;
use tokio::time::timeout;

/// How long somebody who is asked may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// A message to a subject.
#[derive(Debug, Clone)]
pub(super) struct Incoming {
    pub(super) payload: Bytes,
    /// Where its sender waits for an answer.
    pub(super) reply: Option<String>,
    /// Whether this is the message system's own word that nobody listens to a subject.
    pub(super) is_unheard: bool,
}

/// Messages to a subject, in the order in which each sender sent them. Some may be missing.
pub(super) type Subscription = BoxStream<'static, Incoming>;

/// The message system did not do what it was asked for, or did not answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the message system: {0}")]
pub(super) struct Failed(pub(super) String);

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Answer {
    Payload(Bytes),
    /// Nobody listens to the subject.
    Unheard,
}

/// The newest value of a key.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Its number; each change of the key has a higher one.
    pub(super) revision: u64,
    /// The value; empty if the key was deleted, or has ended.
    pub(super) value: Bytes,
}

/// Why a key was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unwritten {
    /// Its newest revision is another one.
    #[error("the key changed meanwhile")]
    Conflict,
    /// The key may have been written or not.
    #[error(transparent)]
    Failed(#[from] Failed),
}

/// Subjects, and a bucket of keys that end when they are not written again.
pub(super) trait Bus: Debug + Send + Sync {
    /// Whether there is a connection, as far as this side knows.
    fn is_connected(&self) -> bool;

    /// When the last connection began.
    fn connected(&self) -> UnixMicros;

    /// A new subject for answers.
    fn inbox(&self) -> String;

    /// What is sent to a subject from now on.
    fn subscribe(&self, subject: String) -> BoxFuture<'_, Result<Subscription, Failed>>;

    /// Sends a message, which may be lost on its way.
    fn publish(
        &self,
        subject: String,
        reply: Option<String>,
        payload: Bytes,
    ) -> BoxFuture<'_, Result<(), Failed>>;

    /// Reads a key. `None` if it was never written.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, Failed>>;

    /// Writes a key if its newest revision is `expected`, 0 for one that was never written. Returns the new revision.
    fn put<'a>(
        &'a self,
        key: &'a str,
        expected: u64,
        value: String,
    ) -> BoxFuture<'a, Result<u64, Unwritten>>;

    /// Sends a request and waits for its answer.
    fn request(&self, subject: String, payload: Bytes) -> BoxFuture<'_, Result<Answer, Failed>> {
        let asked = async move {
            let inbox = self.inbox();
            let mut answers = self.subscribe(inbox.clone()).await?;
            self.publish(subject, Some(inbox), payload).await?;
            match answers.next().await {
                Some(answer) if answer.is_unheard => Ok(Answer::Unheard),
                Some(answer) => Ok(Answer::Payload(answer.payload)),
                None => Err(Failed("the connection has ended".to_owned())),
            }
        };
        // Without a connection, the request may wait, too.
        let answered = timeout(ANSWER, asked);
        let in_time = |answered: Result<_, _>| {
            answered.unwrap_or_else(|_| Err(Failed("nobody answered in time".to_owned())))
        };
        answered.map(in_time).boxed()
    }
}
