//! What server and client say in text messages: one JSON object each.

use serde::{Deserialize, Deserializer, Serialize};

use super::{CloseCode, Violation};

/// What the server says. The JSON has the variant's name under `event`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// The first message.
    Hello(Hello),
    /// What follows is of another rendition; its header comes first.
    Rendition {
        /// As `hello` names it.
        rendition: String,
    },
    /// What follows does not continue what was.
    Discontinuity {
        /// Why.
        reason: Discontinuity,
    },
    /// There is nothing more.
    End,
    /// The server cannot go on.
    Error {
        /// For programs.
        code: &'static str,
        /// A sentence for people.
        message: String,
    },
}

/// What there is to be watched.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Hello {
    /// Frames, by falling bitrate.
    pub renditions: Vec<Rendition>,
    /// The one that is sent first.
    pub rendition: Option<String>,
    /// Audio, which comes with each rendition.
    pub audio: Option<Audio>,
    /// Units of a second in which the times of the first rendition are.
    pub timescale: u32,
    /// Seconds of media that there are of a live stream from what is sent first on: how far behind it
    /// a viewer begins that plays at once, since frames begin with a keyframe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<f64>,
    /// Seconds of media, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<f64>,
}

/// A rendition of the video.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rendition {
    /// Names it in events and commands.
    pub name: String,
    /// Bits per second.
    pub bitrate: u64,
    /// Width and height in pixels, as `1280x720`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution: Option<String>,
    /// As in RFC 6381.
    pub codecs: String,
}

/// The audio.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Audio {
    /// Name of the track.
    pub name: String,
    /// Bits per second.
    pub bitrate: u64,
    /// As in RFC 6381.
    pub codecs: String,
}

/// Why what follows does not continue what was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Discontinuity {
    /// So did the publisher.
    Publisher,
    /// The viewer read too slowly, and goes on at the newest keyframe.
    Skipped,
    /// The viewer sought.
    Seek,
    /// The viewer paused.
    Pause,
    /// The stream's tracks are others now.
    Tracks,
}

impl Event {
    /// As it is sent.
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists: nothing that JSON has no form for.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What a client may say; several at once are done in this order.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Command {
    /// This rendition and no other; null lets the server choose again.
    #[serde(deserialize_with = "given")]
    pub rendition: Option<Option<String>>,
    /// Bits per second that no rendition may exceed; null for no limit.
    #[serde(deserialize_with = "given")]
    pub max: Option<Option<u64>>,
    /// Seconds on the stream's timeline.
    pub seek: Option<f64>,
    /// Whether nothing is to be sent.
    pub pause: Option<bool>,
}

/// Tells null from nothing.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Command {
    /// Reads a text message. Members of other names are not for us.
    ///
    /// # Errors
    /// It is not a JSON object, or a member's value means nothing.
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
    fn what_is_said() {
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
    fn what_is_no_command() {
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
