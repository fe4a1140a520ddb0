//! A link with a limited rate between a server and its load. It consists of two network namespaces,
//! a pair of virtual Ethernet devices, and a token bucket on the server's side (tc-tbf(8)). It
//! needs root.

use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::units;

/// Prefix of the names of namespaces. The id of the process that made them and a side follow.
const PREFIX: &str = "streamgauge";
/// The server's address on the link. Each link has its own namespaces, so all links can use it.
pub const SERVER: &str = "10.87.0.1";
/// The load's address on the link.
const CLIENT: &str = "10.87.0.2";

/// A link. Dropping it removes it.
#[derive(Debug)]
pub struct Link {
    server: String,
    client: String,
}

impl Link {
    /// Makes a link that carries `rate` from the server to the load, written as for tc: `700mbit`.
    ///
    /// # Errors
    /// The process is not root, ip(8) or tc(8) is missing, or tc does not know the rate.
    pub fn new(rate: &str) -> anyhow::Result<Self> {
        remove_stale();
        let pid = std::process::id();
        let link =
            Self { server: format!("{PREFIX}-{pid}-s"), client: format!("{PREFIX}-{pid}-c") };
        link.make(rate)?;
        Ok(link)
    }

    fn make(&self, rate: &str) -> anyhow::Result<()> {
        let Self { server, client } = self;
        for words in [
            format!("ip netns add {server}"),
            format!("ip netns add {client}"),
            format!("ip -n {server} link add sg0 type veth peer name sg1 netns {client}"),
            format!("ip -n {server} addr add {SERVER}/24 dev sg0"),
            format!("ip -n {client} addr add {CLIENT}/24 dev sg1"),
            format!("ip -n {server} link set lo up"),
            format!("ip -n {client} link set lo up"),
            format!("ip -n {server} link set sg0 up"),
            format!("ip -n {client} link set sg1 up"),
        ] {
            run(&words.split(' ').collect::<Vec<_>>())?;
        }
        self.queue("add", rate)
    }

    /// Changes the rate. What waits in the queue stays there.
    ///
    /// # Errors
    /// tc does not know the rate.
    pub fn change(&self, rate: &str) -> anyhow::Result<()> {
        self.queue("change", rate)
    }

    fn queue(&self, verb: &str, rate: &str) -> anyhow::Result<()> {
        // A queue of 50 ms, like that of the switch between two machines.
        run(&[
            "tc",
            "-n",
            &self.server,
            "qdisc",
            verb,
            "dev",
            "sg0",
            "root",
            "tbf",
            "rate",
            rate,
            "burst",
            burst(rate),
            "latency",
            "50ms",
        ])
    }

    /// The namespace for the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The namespace for the load.
    pub fn client(&self) -> &str {
        &self.client
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            // It may not exist, if making the link failed.
            let _ = run(&["ip", "netns", "del", name]);
        }
    }
}

/// How many bytes go out at once. With the burst that a fast link needs, a slow link would at first be as fast
/// as any.
fn burst(rate: &str) -> &'static str {
    const SLOW: f64 = 100.0;
    if mbit(rate).is_some_and(|rate| rate < SLOW) { "16kb" } else { "512kb" }
}

/// A rate in Mbit/s; `None` if it is not written in bits, `700mbit`.
pub(crate) fn mbit(rate: &str) -> Option<f64> {
    units::bit_rate(rate.strip_suffix("bit")?).ok().map(|rate| rate as f64 / 1e6)
}

/// Removes namespaces of processes that are gone.
fn remove_stale() {
    let Ok(names) = std::fs::read_dir("/run/netns") else { return };
    for name in names.flatten() {
        let name = name.file_name().to_string_lossy().into_owned();
        let mut parts = name.split('-');
        let pid = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(PREFIX), Some(pid), Some("s" | "c"), None) => pid.parse::<u32>().ok(),
            _ => None,
        };
        if pid.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = run(&["ip", "netns", "del", &name]);
        }
    }
}

fn run(words: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output()
        .with_context(|| words[0].to_owned())?;
    if !output.status.success() {
        bail!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
