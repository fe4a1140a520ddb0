//! CMCD: what players tell of themselves. CTA-5004, and as much of its second version, CTA-5004-A, as concerns the
//! same.
//!
//! The data are a list of keys and values, as RFC 8941 writes dictionaries: `bl=21300,bs,sid="6e2f"`. Players send them
//! percent-encoded as the query's parameter `CMCD`, in the header fields [`HEADERS`], or as the content of a POST, a
//! line for each event.

/// The header fields that carry the data, in lower case.
pub const HEADERS: [&str; 4] = ["cmcd-object", "cmcd-request", "cmcd-session", "cmcd-status"];

/// Most bytes of a session's identifier. The specification allows 64 characters.
const MOST_SESSION: usize = 256;

/// What a player told. A value that is not as specified, or that no player can mean, is as if it had not been there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told<'a> {
    /// `sid`: identifies the session of playback. As written: escapes are left.
    pub session: Option<&'a str>,
    /// `sf`: how the stream is sent.
    pub format: Option<Format>,
    /// `st`: whether the stream is live.
    pub kind: Option<Kind>,
    /// `ot`: what the request is for.
    pub object: Option<Object>,
    /// `bl`: length of the buffer, in milliseconds.
    pub buffer: Option<u64>,
    /// `mtp`: measured throughput, in kbit/s.
    pub throughput: Option<u64>,
    /// `br`: encoded bitrate of what the request is for, in kbit/s.
    pub bitrate: Option<u64>,
    /// `msd`: how long it took until media were shown, in milliseconds.
    pub startup: Option<u64>,
    /// `bs`: the buffer ran empty since the request before.
    pub starved: bool,
    /// `su`: the object is needed urgently, because of a start, a seek, or an empty buffer.
    pub urgent: bool,
    /// `sta`: playback is over. It ended, failed, or the viewer left.
    pub over: bool,
}

/// How a stream is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// HLS.
    Hls,
    /// MPEG-DASH.
    Dash,
    /// Something else.
    Other,
}

/// Whether a stream is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All segments exist.
    Vod,
    /// Segments become available.
    Live,
    /// The same, with low latency. Only the second version has this.
    LowLatency,
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// Audio only.
    Audio,
    /// Video, or audio and video.
    Video,
    /// Something else: a playlist, a header, text.
    Other,
}

impl<'a> Told<'a> {
    /// Reads data that are no longer percent-encoded.
    pub fn parse(text: &'a str) -> Self {
        let mut told = Self::default();
        told.add(text);
        told
    }

    /// Reads more data of the same player: another header field, or another line.
    pub fn add(&mut self, text: &'a str) {
        for member in Members(text) {
            let (key, value) = member.split_once('=').unwrap_or((member, "?1"));
            match key.trim() {
                "sid" => self.session = string(value).or(self.session),
                "sf" => {
                    self.format = token(value).map(|token| match token {
                        "h" => Format::Hls,
                        "d" => Format::Dash,
                        _ => Format::Other,
                    });
                }
                "st" => {
                    self.kind = token(value).and_then(|token| match token {
                        "v" => Some(Kind::Vod),
                        "l" => Some(Kind::Live),
                        "ll" => Some(Kind::LowLatency),
                        _ => None,
                    });
                }
                "ot" => {
                    self.object = token(value).map(|token| match token {
                        "a" => Object::Audio,
                        "v" | "av" => Object::Video,
                        _ => Object::Other,
                    });
                }
                // A day; 100 Gbit/s; an hour. What is more is no measurement.
                "bl" => self.buffer = number(value, 86_400_000).or(self.buffer),
                "mtp" => self.throughput = number(value, 100_000_000).or(self.throughput),
                "br" => self.bitrate = number(value, 100_000_000).or(self.bitrate),
                "msd" => self.startup = number(value, 3_600_000).or(self.startup),
                "bs" => self.starved |= is_true(value),
                "su" => self.urgent |= is_true(value),
                // The last state of several events counts.
                "sta" => self.over = matches!(token(value), Some("e" | "f" | "q")),
                _ => {}
            }
        }
    }
}

/// The members of a list: between commas and line ends that are in no string and no inner list.
struct Members<'a>(&'a str);

impl<'a> Iterator for Members<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        if self.0.is_empty() {
            return None;
        }
        let (mut in_string, mut in_list, mut is_escaped) = (false, false, false);
        let end = self.0.bytes().position(|byte| {
            match byte {
                _ if std::mem::take(&mut is_escaped) => {}
                b'\\' if in_string => is_escaped = true,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b'(' => in_list = true,
                b')' => in_list = false,
                b',' | b'\n' => return !in_list,
                _ => {}
            }
            false
        });
        let (member, rest) = match end {
            Some(end) => (&self.0[..end], &self.0[end + 1..]),
            None => (self.0, ""),
        };
        self.0 = rest;
        Some(member.trim())
    }
}

/// A string's content. Its parameters are left out.
fn string(value: &str) -> Option<&str> {
    let content = value.trim().strip_prefix('"')?;
    let mut is_escaped = false;
    let end = content.bytes().position(|byte| match byte {
        _ if std::mem::take(&mut is_escaped) => false,
        b'\\' => {
            is_escaped = true;
            false
        }
        byte => byte == b'"',
    })?;
    (1..=MOST_SESSION).contains(&end).then(|| &content[..end])
}

/// A token without its parameters. Strings stand for tokens: older players write them so.
fn token(value: &str) -> Option<&str> {
    let value = value.trim();
    let token = string(value).unwrap_or_else(|| value.split(';').next().unwrap_or_default());
    (!token.is_empty() && token.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(token)
}

fn is_true(value: &str) -> bool {
    matches!(value.trim(), "?1" | "true")
}

/// A number of at most `most`, without decimals. The second version has inner lists with a number for each kind of
/// object: that of audio only counts if there is no other.
fn number(value: &str, most: u64) -> Option<u64> {
    let value = value.trim();
    let Some(list) = value.strip_prefix('(') else { return single(value, most) };
    let list = list.split(')').next().unwrap_or_default();
    let is_audio = |item: &&str| item.split(';').skip(1).any(|kind| kind == "a");
    let item = list.split_whitespace().find(|item| !is_audio(item));
    single(item.or_else(|| list.split_whitespace().next())?, most)
}

fn single(item: &str, most: u64) -> Option<u64> {
    let number = item.split(';').next().unwrap_or_default();
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    // `parse` alone would accept a sign.
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = is_number(whole) && is_number(decimals);
    is_number.then(|| whole.parse().ok())?.filter(|&number| number <= most)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_specification() {
        // CTA-5004, table of examples.
        let told = Told::parse(
            "bl=21300,br=3200,bs,cid=\"faec5fc2-ac30-11ea-bb37-0242ac130002\",d=4004,dl=18500,\
             mtp=48100,nor=\"..%2F300kbps%2Ftrack.m4v\",ot=v,pr=1.08,rtp=12000,sf=d,\
             sid=\"6e2fb550-c457-11e9-bb97-0800200c9a66\",st=v,su,tb=6000",
        );
        let expected = Told {
            session: Some("6e2fb550-c457-11e9-bb97-0800200c9a66"),
            format: Some(Format::Dash),
            kind: Some(Kind::Vod),
            object: Some(Object::Video),
            buffer: Some(21_300),
            throughput: Some(48_100),
            bitrate: Some(3200),
            starved: true,
            urgent: true,
            ..Told::default()
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn the_second_version_has_lists_and_states() {
        let told = Told::parse(
            "br=(128;a 5000;v),bl=(1500;a),mtp=(25000),msd=850,sta=p,st=ll,sf=h,e=t,v=2,ts=1700000000000",
        );
        assert_eq!(
            (told.bitrate, told.buffer, told.throughput),
            (Some(5000), Some(1500), Some(25_000))
        );
        assert_eq!(
            (told.startup, told.kind, told.over),
            (Some(850), Some(Kind::LowLatency), false)
        );
        let mut lines = Told::parse("sid=\"a\",sta=p,bl=(100)\nsid=\"a\",sta=q,bl=(200)\n");
        assert_eq!((lines.session, lines.over, lines.buffer), (Some("a"), true, Some(200)));
        lines.add("sta=s");
        assert!(!lines.over);
    }

    #[test]
    fn what_is_wrong_is_as_if_it_were_not_there() {
        for text in [
            "",
            ",",
            "=",
            ",,=,",
            "bl",
            "bl=",
            "bl=-1",
            "bl=+1",
            "bl=1e3",
            "bl=\"1\"",
            "bl=x",
            "bl=()",
            "bl=(x)",
            "bl=(",
            "bl=86400001",
            "bl=99999999999999999999999",
            "br=1.",
            "br=.5",
            "mtp=100000001",
            "msd=3600001",
            "sid=1",
            "sid=\"",
            "sid=\"\"",
            "sid=\"a",
            "sid=\"a\\\"",
            "su=?0",
            "bs=?0",
            "bs=0",
            "sta",
            "ot=\u{fc}",
            "SID=\"a\"",
            "unknown=\"sid=\\\"a\\\",bl=1\"",
            "com.example-x=(sid=\"a\",bl=1)",
            "\u{1f3a5}",
        ] {
            assert_eq!(Told::parse(text), Told::default(), "{text}");
        }
        let long = format!("sid=\"{}\",bl=1", "a".repeat(MOST_SESSION + 1));
        assert_eq!(Told::parse(&long), Told { buffer: Some(1), ..Told::default() });
        // Quotes in a string do not end it.
        assert_eq!(Told::parse(r#"sid="a\",bl=1,\\",bl=2"#).session, Some(r#"a\",bl=1,\\"#));
        assert_eq!(Told::parse(r#"sid="a\",bl=1,\\",bl=2"#).buffer, Some(2));
    }

    proptest! {
        #[test]
        fn any_text(text in "\\PC{0,200}", list in "[a-z=,;()\"\\\\0-9?. \\n]{0,200}") {
            for text in [text, list] {
                let told = Told::parse(&text);
                prop_assert!(told.session.is_none_or(|session| text.contains(session)));
            }
        }

        #[test]
        fn what_is_written_is_read(
            session in "[a-zA-Z0-9,=;() -]{1,64}",
            numbers in proptest::array::uniform4(0..3_600_000_u64),
            flags in any::<(bool, bool)>(),
        ) {
            let [buffer, throughput, bitrate, startup] = numbers;
            let (starved, urgent) = flags;
            let mut text = format!("sid=\"{session}\",bl={buffer},mtp={throughput},br=({bitrate}),msd={startup}");
            for (is_set, key) in [(starved, "bs"), (urgent, "su")] {
                if is_set {
                    text.extend([",", key]);
                }
            }
            let expected = Told {
                session: Some(&session),
                buffer: Some(buffer),
                throughput: Some(throughput),
                bitrate: Some(bitrate),
                startup: Some(startup),
                starved,
                urgent,
                ..Told::default()
            };
            prop_assert_eq!(Told::parse(&text), expected);
        }
    }
}
