//! The result of a comparison.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::ledger::{Behind, Counts, Difference};
use crate::Exit;
use crate::summary::Distribution;

/// What `compare-nodes` prints with `--json`. Times are in seconds.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document {
    /// `compare-nodes`.
    pub verb: String,
    /// `hls`, `dash` or `file`.
    pub protocol: String,
    /// For how long a live stream was to be followed.
    pub duration: f64,
    /// How long it all took.
    pub elapsed: f64,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Whether something was compared, and nothing differed.
    pub passed: bool,
    /// How much was compared.
    pub counts: Counts,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// The nodes, in the order of the arguments.
    pub nodes: Vec<Node>,
}

/// A node.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Node {
    /// Its URL.
    pub url: String,
    /// How much later than the first of all nodes it had objects. Absent if none came to be meanwhile.
    pub behind: Option<Behind>,
    /// How often a request failed.
    pub troubles: u64,
    /// The first failure.
    pub trouble: Option<String>,
}

impl Document {
    /// Returns how the program ends.
    pub fn exit(&self) -> Exit {
        if self.passed { Exit::Success } else { Exit::Failed }
    }
}

/// Writes a document as text for people.
///
/// # Errors
/// The text cannot be written.
pub fn write(document: &Document, to: &mut dyn Write) -> io::Result<()> {
    let Document { protocol, elapsed, counts, .. } = document;
    writeln!(to, "{} nodes over {protocol}, {elapsed:.1} s", document.nodes.len())?;
    writeln!(
        to,
        "compared     {} objects on all nodes, of {} bytes; {} of them states of playlists",
        counts.objects, counts.bytes, counts.states
    )?;
    if counts.states_of_some > 0 {
        writeln!(
            to,
            "missed       {} states that some nodes were not seen in",
            counts.states_of_some
        )?;
    }
    if counts.other_reports > 0 {
        writeln!(
            to,
            "reports      {} states with other EXT-X-RENDITION-REPORT, {} of them with the same ETag",
            counts.other_reports, counts.other_reports_same_etag
        )?;
    }
    if counts.never_in_one_state > 0 {
        writeln!(
            to,
            "not compared {} playlists, for no state of them was seen on all nodes",
            counts.never_in_one_state
        )?;
    }
    if counts.given_up > 0 {
        writeln!(
            to,
            "given up     {} objects, for too many waited for other nodes",
            counts.given_up
        )?;
    }
    for Node { url, behind, troubles, trouble } in &document.nodes {
        write!(to, "{url}")?;
        if let Some(Behind { times, worst }) = behind {
            let Distribution { p50, p99, max, count, .. } = *times;
            let [p50, p99, max] = [p50, p99, max].map(|seconds| seconds * 1e3);
            write!(
                to,
                "  behind {p50:.1} ms (median), {p99:.1} (99 %), {max:.1} (worst of {count}"
            )?;
            write!(to, "{})", worst.as_ref().map_or(String::new(), |worst| format!(": {worst}")))?;
        }
        if let Some(trouble) = trouble {
            write!(to, "  {troubles} failures, the first: {trouble}")?;
        }
        writeln!(to)?;
    }
    for difference in &document.differences {
        let Difference { object, node, from, what, offset, lengths, values } = difference;
        write!(to, "DIFFERENT    {object}: {what} of {node}")?;
        if let (Some(offset), Some([ours, first])) = (offset, lengths) {
            write!(to, ": from byte {offset} on; {ours} bytes, and {first}")?;
        }
        if let Some([ours, first]) = values {
            write!(to, ": {ours:?}, and {first:?}")?;
        }
        writeln!(to, " of {from}")?;
    }
    let more = counts.differences - document.differences.len() as u64;
    if more > 0 {
        writeln!(to, "             and {more} more differences")?;
    }
    let verdict = match (document.passed, counts.objects, document.interrupted) {
        (true, _, false) => "the same on all nodes",
        (true, _, true) => "the same on all nodes, as far as it was compared",
        (false, 0, _) if counts.differences == 0 => "FAILED: nothing could be compared",
        (false, ..) if counts.differences == 0 => "FAILED: not all could be compared",
        (false, ..) => "FAILED: the nodes differ",
    };
    writeln!(to, "{verdict}")
}
