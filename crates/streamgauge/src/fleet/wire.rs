//! The form in which one process sends a plan to another.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use viewer::tls::Trust;
use viewer::{Options, Rendition};

#[derive(Serialize, Deserialize)]
#[serde(remote = "Options")]
pub(super) struct OptionsOnWire {
    patience: Duration,
    buffer: Duration,
    announce_buffer: Duration,
    ahead: Option<Duration>,
    #[serde(with = "RenditionOnWire")]
    rendition: Rendition,
    low_latency: bool,
    hints: bool,
    reconnect: bool,
    trust: Trust,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Rendition")]
enum RenditionOnWire {
    Auto,
    Highest,
    Lowest,
    Index(usize),
}

/// Sends a target as its URL.
pub(super) mod target {
    use serde::{Deserialize, Deserializer, Serializer};
    use viewer::player::Target;

    pub(in crate::fleet) fn serialize<S: Serializer>(
        target: &Target,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(target)
    }

    pub(in crate::fleet) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Target, D::Error> {
        let url = String::deserialize(deserializer)?;
        url.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use crate::fleet::{Plan, Verify};

    use super::*;

    #[test]
    fn a_plan_is_the_same_on_the_other_side() {
        for url in [
            "rtmp://127.0.0.1:1936/live/x/deep?token=a%20b",
            "http://h:8080/live/demo/index.m3u8?a=b#c",
            "http://[::1]:80/x.mpd",
            "http://h/x.flv",
            "http://h/x.mp4",
        ] {
            let plan = Plan {
                target: url.parse().unwrap(),
                options: Options {
                    rendition: Rendition::Index(3),
                    ahead: None,
                    patience: Duration::from_nanos(1_500_000_001),
                    announce_buffer: Duration::from_millis(100),
                    reconnect: true,
                    ..Options::default()
                },
                batches: 3,
                batch_size: 50,
                interval: Duration::from_millis(1),
                duration: Duration::from_secs(315_360_000),
                together: true,
                verify: Verify::Sample(7),
                reference: None,
                loops: 5,
                processes: Some(2),
            };
            let text = serde_json::to_string(&plan).unwrap();
            let read: Plan = serde_json::from_str(&text).unwrap();
            assert_eq!(format!("{read:?}"), format!("{plan:?}"), "{text}");
        }
    }
}
