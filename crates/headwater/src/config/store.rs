//! `[vod.store]`: files in an object store.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Size, Time, Vod};

/// `[vod.store]`: files in an object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// Address of the store's server; empty means the store's own, or that of the environment.
    pub endpoint: String,
    /// Whether the server may be asked by plain HTTP.
    pub allow_http: bool,
    /// Folder for what was fetched.
    pub cache: PathBuf,
    /// Disk space for what was fetched, in bytes.
    pub cache_size: Size,
    /// How long a file is assumed not to change.
    pub revalidate: Time,
    /// The store must answer within this time.
    pub timeout: Time,
    /// Requests to the store at once.
    pub requests: usize,
    /// Bytes that are fetched ahead of a viewer.
    pub read_ahead: Size,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            allow_http: false,
            cache: PathBuf::from("./cache"),
            cache_size: Size::from_mib(10 << 10),
            revalidate: Time::from_secs(5),
            timeout: Time::from_secs(10),
            requests: 64,
            read_ahead: Size::from_mib(4),
        }
    }
}

/// The scheme of an address of a folder of this machine.
const FOLDER: &str = "file://";

impl Vod {
    /// The folder with the files, if they are on this machine.
    pub fn folder(&self) -> &Path {
        let address = self.root.to_str().and_then(|root| root.strip_prefix(FOLDER));
        address.map_or(&self.root, Path::new)
    }

    /// The store with the files, if they are in one.
    pub fn store(&self) -> Option<store::Settings> {
        let url = self.root.to_str().filter(|root| store::is_address(root))?.to_owned();
        let Store { endpoint, cache, .. } = self.store.clone();
        Some(store::Settings {
            url,
            endpoint,
            allow_http: self.store.allow_http,
            cache,
            cache_size: self.store.cache_size.into(),
            revalidate: self.store.revalidate.into(),
            timeout: self.store.timeout.into(),
            requests: self.store.requests,
            read_ahead: self.store.read_ahead.into(),
        })
    }

    /// The scheme of the root, if it is the address of neither a folder nor a store.
    pub(super) fn unknown_scheme(&self) -> Option<&str> {
        let root = self.root.to_str().filter(|root| !store::is_address(root))?;
        let (scheme, _) = root.split_once("://")?;
        (!root.starts_with(FOLDER)).then_some(scheme)
    }
}
