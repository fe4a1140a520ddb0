//! Text messages of server and client: each is one JSON object.

use serde::{Deserialize, Deserializer, Serialize};

use super::{CloseCode, Violation};

/// A message of the server. In JSON, `event` holds the variant's name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// The first message.
    Hello(Hello),
    /// The following media are of another rendition; its header comes first.
    Rendition {
        /// Name of the rendition, as in `hello`.
        rendition: String,
    },
    /// The following media do not continue the media before.
    Discontinuity {
        /// The reason.
        reason: Discontinuity,
    },
    /// The connection is there. Comes after `hello` and with each ping, for viewers of a live stream that asked for it.
    Alive {
        /// Seconds between pings.
        every: f64,
    },
    /// The stream has ended.
    End,
    /// The server cannot go on.
    Error {
        /// Error code for programs.
        code: &'static str,
        /// Description for humans.
        message: String,
    },
}

/// Description of the stream or title.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Hello {
    /// Video renditions, from the highest bitrate to the lowest.
    pub renditions: Vec<Rendition>,
    /// Name of the rendition that is sent first.
    pub rendition: Option<String>,
    /// The audio, which is sent with each rendition.
    pub audio: Option<Audio>,
    /// Timescale of the first rendition: its times count in units of 1/`timescale` seconds.
    pub timescale: u32,
    /// For a live stream: how many seconds of existing media are sent first, because video begins
    /// at a keyframe. A viewer that plays at once begins that far behind live.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<f64>,
    /// Duration of the media in seconds, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<f64>,
}

/// A video rendition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rendition {
    /// Its name in events and commands.
    pub name: String,
    /// Bits per second.
    pub bitrate: u64,
    /// Width and height in pixels, as `1280x720`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution: Option<String>,
    /// Codec string as in RFC 6381.
    pub codecs: String,
}

/// The audio.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Audio {
    /// Name of the track.
    pub name: String,
    /// Bits per second.
    pub bitrate: u64,
    /// Codec string as in RFC 6381.
    pub codecs: String,
}

/// Why the following media do not continue the media before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Discontinuity {
    /// The publisher's media were discontinuous.
    Publisher,
    /// The viewer read too slowly. It continues at the newest keyframe.
    Skipped,
    /// The viewer seeked.
    Seek,
    /// The viewer paused.
    Pause,
    /// The stream's tracks have changed.
    Tracks,
}

impl Event {
    /// The event as JSON, ready to be sent.
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A command of a client. Several members are applied in this order.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Command {
    /// Stay with this rendition; null lets the server choose again.
    #[serde(deserialize_with = "given")]
    pub rendition: Option<Option<String>>,
    /// Highest allowed bitrate of a rendition, in bits per second; null for no limit.
    #[serde(deserialize_with = "given")]
    pub max: Option<Option<u64>>,
    /// Seeks to this time, in seconds on the stream's timeline.
    pub seek: Option<f64>,
    /// Pauses or resumes sending.
    pub pause: Option<bool>,
}

/// Distinguishes null from a missing member.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Command {
    /// Reads a text message. Unknown members are ignored.
    ///
    /// # Errors
    /// The text is not a JSON object, or a member has an invalid value.
    pub fn parse(text: &str) -> Result<Self, Violation> {
        let wrong = |what| Violation::new(CloseCode::InvalidData, what);
        if !text.trim_ascii_start().starts_with('{') {
            return Err(wrong("text that is no JSON object"));
        }
        let command: Self =
            serde_json::from_str(text).map_err(|_| wrong("text that is no command"))?;
        if command.seek.is_some_and(|seconds| !(0.0..=1e12).contains(&seconds)) {
            return Err(wrong("seek to a time that cannot be"));
        }
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_as_text() {
        let hello = Event::Hello(Hello {
            renditions: vec![Rendition {
                name: "v0".to_owned(),
                bitrate: 800_000,
                resolution: Some("640x360".to_owned()),
                codecs: "avc1.64001f".to_owned(),
            }],
            rendition: Some("v0".to_owned()),
            audio: None,
            timescale: 90_000,
            behind: Some(1.966),
            duration: None,
        });
        assert_eq!(
            hello.to_json(),
            r#"{"event":"hello","renditions":[{"name":"v0","bitrate":800000,"resolution":"640x360","codecs":"avc1.64001f"}],"rendition":"v0","audio":null,"timescale":90000,"behind":1.966}"#
        );
        let skipped = Event::Discontinuity { reason: Discontinuity::Skipped };
        assert_eq!(skipped.to_json(), r#"{"event":"discontinuity","reason":"skipped"}"#);
        assert_eq!(Event::End.to_json(), r#"{"event":"end"}"#);
        assert_eq!(Event::Alive { every: 9.0 }.to_json(), r#"{"event":"alive","every":9.0}"#);
        let error = Event::Error { code: "gone", message: "\"\u{1F600}\n".to_owned() };
        assert_eq!(
            error.to_json(),
            "{\"event\":\"error\",\"code\":\"gone\",\"message\":\"\\\"\u{1F600}\\n\"}"
        );
    }

    #[test]
    fn commands() {
        let command = |text| Command::parse(text).unwrap();
        assert_eq!(command("{}"), Command::default());
        assert_eq!(command(r#"{"seek": 12.5}"#).seek, Some(12.5));
        assert_eq!(command(r#"{"pause": true, "other": []}"#).pause, Some(true));
        assert_eq!(command(r#"{"rendition": null}"#).rendition, Some(None));
        assert_eq!(command(r#"{"rendition": "v1"}"#).rendition, Some(Some("v1".to_owned())));
        assert_eq!(command(r#"{"max": 800000}"#).max, Some(Some(800_000)));
        assert_eq!(command(r#"{"max": null}"#).max, Some(None));
    }

    #[test]
    fn malformed_commands_are_refused() {
        for text in [
            "",
            "x",
            "null",
            "[]",
            "3",
            "{",
            "{\"seek\": \"1\"}",
            "{\"seek\": -1}",
            "{\"seek\": 1e300}",
            "{\"pause\": 1}",
            "{\"max\": -5}",
            "{\"rendition\": 7}",
            "{\"seek\":1}{",
        ] {
            assert_eq!(Command::parse(text).unwrap_err().code, CloseCode::InvalidData, "{text}");
        }
        // Deep nesting is refused, not followed.
        let deep = format!("{{\"x\":{}}}", "[".repeat(4000));
        assert!(Command::parse(&deep).is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".{0,300}") {
            let _ = Command::parse(&text);
            let _ = Command::parse(&format!("{{{text}"));
        }
    }
}
