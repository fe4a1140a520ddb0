//! NATS, by which the nodes of a cluster speak.

use tokio::time::timeout;

use super::{Check, PATIENCE};
use crate::cluster::probe;
use crate::config::Config;

pub(super) async fn check(config: &Config) -> Vec<Check> {
    const NAME: &str = "cluster.nats";
    if config.cluster.nats.is_empty() {
        return Vec::new();
    }
    let servers = u32::try_from(config.cluster.nats.len()).unwrap_or(u32::MAX);
    let limit = PATIENCE.saturating_mul(servers.saturating_add(1));
    let answer = match timeout(limit, probe(&config.cluster, PATIENCE)).await {
        Ok(answer) => answer.map_err(|error| format!("{error:#}")),
        Err(_) => Err(format!("no server answers within {limit:?}")),
    };
    vec![match answer {
        Ok(version) => Check::ok(NAME, format!("NATS {version} answers, with JetStream")),
        Err(error) => {
            let why = "This node serves its own publishers only, and other nodes do not see them";
            let remedy = "nats-server with `jetstream: enabled` at an address of cluster.nats, and its credentials \
                          (docs/cluster.md)";
            Check::problem(NAME, error, why, remedy)
        }
    }]
}
