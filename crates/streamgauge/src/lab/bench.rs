//! The data that all trials of a run share.

use std::collections::BTreeMap;
use std::path::Path;

use super::folders::{Folders, Names};
use super::media::Made;
use super::peer::Peer;
use super::scenario::Scenario;
use super::signals::Stop;

/// The place where trials run.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    /// Names that replace folders in records.
    pub(super) names: &'a Names,
    pub(super) scenario: &'a Scenario,
    pub(super) folders: &'a Folders,
    pub(super) peers: &'a BTreeMap<String, Peer>,
    pub(super) made: &'a Made,
    /// The run's folder.
    pub(super) out: &'a Path,
    /// A folder for files of servers, on the file system of the media.
    pub(super) scratch: &'a Path,
    pub(super) server_cpus: Option<&'a str>,
    pub(super) load_cpus: Option<&'a str>,
    pub(super) stop: &'a Stop,
    /// Factor on the times before and after the load.
    pub(super) scale: f64,
}
