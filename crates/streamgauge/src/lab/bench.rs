//! What a run's trials share.

use std::collections::BTreeMap;
use std::path::Path;

use super::folders::{Folders, Names};
use super::media::Made;
use super::peer::Peer;
use super::scenario::Scenario;
use super::signals::Stop;

/// Where trials take place.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    /// What stands for folders in records.
    pub(super) names: &'a Names,
    pub(super) scenario: &'a Scenario,
    pub(super) folders: &'a Folders,
    pub(super) peers: &'a BTreeMap<String, Peer>,
    pub(super) made: &'a Made,
    /// The run's folder.
    pub(super) out: &'a Path,
    /// A folder for what servers write, on the file system of the media.
    pub(super) scratch: &'a Path,
    pub(super) server_cpus: Option<&'a str>,
    pub(super) load_cpus: Option<&'a str>,
    pub(super) stop: &'a Stop,
    /// How much shorter the time after the load is.
    pub(super) scale: f64,
}
