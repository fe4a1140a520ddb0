//! The arguments of the verb.

use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use viewer::tls::client_config;

use super::compare::{self, Plan};
use super::document;
use crate::certificates::Certificates;
use crate::{Exit, text, units};

/// Most nodes.
const MOST: usize = 64;

/// Compares what several nodes answer: is every object of a stream or file the same on all
#[derive(Debug, Args)]
pub struct Arguments {
    /// The same stream on each node: ….m3u8, ….mpd, or a file; HTTP, also over TLS
    #[arg(value_name = "URL", required = true, num_args = 2..)]
    urls: Vec<String>,
    /// For how long a live stream is followed
    #[arg(long, short, value_name = "T", default_value = "10s", value_parser = units::time)]
    duration: Duration,
    /// Longest wait for an answer; one that waits for media on purpose may take longer
    #[arg(long, value_name = "T", default_value = "10s", value_parser = units::time)]
    timeout: Duration,
    #[command(flatten)]
    certificates: Certificates,
    /// One document on standard output, docs/schema/compare-nodes.schema.json
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Does what the arguments ask for. Prints the document, or a text for people, to standard
    /// output.
    ///
    /// # Errors
    /// Arguments are unusable.
    pub fn run(self) -> anyhow::Result<Exit> {
        ensure!(self.urls.len() <= MOST, "more than {MOST} nodes");
        let mut tls = client_config(&self.certificates.trust())?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let plan = Plan::new(&self.urls, self.duration, self.timeout, tls)?;
        let document = compare::run(&plan)?;
        if self.json {
            text::json(&document)?;
        } else {
            document::write(&document, &mut std::io::stdout().lock())?;
        }
        Ok(document.exit())
    }
}
