use std::io;
use std::sync::Arc;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address of the root is not one of a store.
    #[error("{url}: {reason}")]
    Address {
        /// The address.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The folder of the cache cannot be used.
    #[error("the cache {folder}: {source}")]
    Cache {
        /// Path of the folder.
        folder: String,
        /// Error of the system.
        source: io::Error,
    },
    /// Another process uses the folder of the cache.
    #[error("the cache {0} is in use by another process")]
    InUse(String),
    /// The system gives no thread.
    #[error("no thread for the store: {0}")]
    Thread(#[from] io::Error),
}

/// Why an object, or bytes of it, cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("not found")]
    NotFound,
    /// The object was replaced. Bytes of the version that was asked for cannot be had any more.
    #[error("the object was replaced")]
    Changed,
    /// The object ends before the bytes that were asked for.
    #[error("the object ends before that")]
    Beyond,
    /// The store did not answer in time, or refused to answer.
    #[error("the store: {0}")]
    Away(Arc<str>),
    #[error("the cache: {0}")]
    Disk(Arc<str>),
}

impl Fault {
    pub(crate) fn away(reason: impl std::fmt::Display) -> Self {
        Self::Away(reason.to_string().into())
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Disk(error.to_string().into())
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        let kind = match fault {
            Fault::NotFound => io::ErrorKind::NotFound,
            Fault::Beyond => io::ErrorKind::UnexpectedEof,
            Fault::Changed => io::ErrorKind::StaleNetworkFileHandle,
            Fault::Away(_) => io::ErrorKind::HostUnreachable,
            Fault::Disk(_) => io::ErrorKind::Other,
        };
        Self::new(kind, fault)
    }
}
