//! `[ladder]`: renditions of live streams that the origin itself makes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::units::{Bitrate, Size, Time};

/// Most renditions that are made of one stream.
pub(super) const MOST_RUNGS: usize = 8;

/// Networks that no stranger on the internet has an address of: this machine (RFC 1122, 3.2.1.3; RFC
/// 4291, 2.5.3), private networks (RFC 1918; RFC 4193), and links (RFC 3927; RFC 4291, 2.5.6).
const OWN_NETWORKS: [IpNet; 8] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xFC00, 0, 0, 0, 0, 0, 0, 0), 7)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 0), 10)),
];

/// x264's presets, from the least work to the most.
pub(super) const PRESETS: [&str; 9] = [
    "ultrafast",
    "superfast",
    "veryfast",
    "faster",
    "fast",
    "medium",
    "slow",
    "slower",
    "veryslow",
];

/// `[ladder]`: renditions of live streams that ffmpeg makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ladder {
    /// Whether renditions are made.
    pub enabled: bool,
    /// Names of the streams to make them of; `*` stands for any characters.
    pub streams: Vec<String>,
    /// Most streams that have renditions at the same time; 0 is no limit.
    pub max_streams: usize,
    /// The same for publishers at one address; 0 is no limit.
    pub max_per_address: usize,
    /// How many of the `max_streams` places are kept for the streams in `reserved_for`.
    pub reserved: usize,
    /// Names of the streams for which places are kept; `*` stands for any characters.
    pub reserved_for: Vec<String>,
    /// Networks of your own publishers. `max_outside` does not count them.
    pub own_networks: Vec<IpNet>,
    /// Most streams of other publishers that have renditions at the same time; 0 is three quarters
    /// of the places that are kept for no name.
    pub max_outside: usize,
    /// The ffmpeg program: a path, or a name to look up in `PATH`.
    pub ffmpeg: PathBuf,
    /// Whether the kernel keeps ffmpeg from files, network and other processes.
    pub sandbox: Sandbox,
    /// Files and folders that ffmpeg may read nonetheless.
    pub read: Vec<PathBuf>,
    /// Most memory for one ffmpeg.
    pub memory: Size,
    /// Processors that one ffmpeg may use; 0 is all.
    pub cores: usize,
    /// x264's preset.
    pub preset: String,
    /// A rendition has a keyframe where its source has one, and at least once in this time.
    pub keyframe_interval: Time,
    /// Whether viewers are also offered the source.
    pub source: bool,
    /// Threads of each encoder; with 0, x264 decides.
    pub threads: u32,
    /// Niceness of ffmpeg relative to the origin, from 0 to 19.
    pub nice: i32,
    /// The renditions.
    pub rungs: Vec<Rung>,
}

/// Whether ffmpeg is kept from files, network and other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Sandbox {
    /// As far as the kernel supports it.
    Auto,
    /// Fully. Without kernel support the configuration is refused.
    Require,
    /// Not at all.
    Off,
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Require => "require",
            Self::Off => "off",
        })
    }
}

/// One rendition of a ladder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rung {
    /// The rendition's name, as publishers name theirs with `?rendition=`.
    pub name: String,
    /// Width in pixels of the box into which frames must fit. For upright video, width and height
    /// change places.
    pub width: u32,
    /// Height of this box in pixels.
    pub height: u32,
    /// Bit rate of the rendition's video.
    pub bitrate: Bitrate,
}

impl Rung {
    fn new(name: &str, (width, height): (u32, u32), kbit: u64) -> Self {
        Self { name: name.to_owned(), width, height, bitrate: Bitrate::from_kbit(kbit) }
    }
}

impl Ladder {
    /// Whether renditions are made of the stream with this name.
    pub fn wants(&self, stream: &str) -> bool {
        self.enabled && self.streams.iter().any(|pattern| matches(pattern, stream))
    }

    /// Whether places are kept for the stream with this name.
    pub fn expects(&self, stream: &str) -> bool {
        self.reserved_for.iter().any(|pattern| matches(pattern, stream))
    }

    /// Whether a publisher at this address is one of your own.
    pub fn is_own(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.own_networks.iter().any(|network| network.contains(&address))
    }

    /// Path of the ffmpeg program, if it can be found.
    pub fn program(&self) -> Option<PathBuf> {
        find(&self.ffmpeg)
    }
}

impl Default for Ladder {
    fn default() -> Self {
        Self {
            enabled: false,
            streams: vec!["*".to_owned()],
            max_streams: 8,
            max_per_address: 4,
            reserved: 0,
            reserved_for: Vec::new(),
            own_networks: OWN_NETWORKS.into(),
            max_outside: 0,
            ffmpeg: PathBuf::from("ffmpeg"),
            sandbox: Sandbox::Auto,
            read: Vec::new(),
            memory: Size::from_mib(1024),
            cores: 4,
            preset: "veryfast".to_owned(),
            keyframe_interval: Time::from_secs(4),
            source: true,
            threads: 0,
            nice: 5,
            rungs: vec![
                Rung::new("240p", (320, 240), 100),
                Rung::new("720p", (1280, 720), 1200),
                Rung::new("1080p", (1920, 1080), 5000),
            ],
        }
    }
}

/// Whether `name` matches `pattern`. Each `*` stands for any number of characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut literals = pattern.split('*');
    let first = literals.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = literals.next_back() else { return rest.is_empty() };
    for literal in literals {
        let Some(at) = rest.find(literal) else { return false };
        rest = &rest[at + literal.len()..];
    }
    rest.ends_with(last)
}

/// Whether the pattern could match a stream's name.
pub(super) fn is_pattern(pattern: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._-/*".contains(&b);
    (1..=128).contains(&pattern.len()) && pattern.bytes().all(good)
}

/// Whether the text can name a rendition and does not look like the name of a track.
pub(super) fn is_rung_name(name: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let track = name
        .strip_prefix(['v', 'a'])
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
    (1..=32).contains(&name.len()) && name.bytes().all(good) && !track
}

/// Finds a program: a path, or a name that is looked up as a shell does.
fn find(program: &Path) -> Option<PathBuf> {
    let is_executable = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.components().count() != 1 || program.has_root() {
        return Some(program.to_owned()).filter(is_executable);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(is_executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, is_match) in [
            ("*", "x", true),
            ("*", "a/b", true),
            ("x", "x", true),
            ("x", "xy", false),
            ("x*", "x", true),
            ("x*", "xyz", true),
            ("*x", "yx", true),
            ("*x", "xy", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("events/*", "events/1", true),
            ("events/*", "other/events/1", false),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, name), is_match, "{pattern} {name}");
        }
        assert!(!Ladder::default().wants("x"), "there is none unless asked for");
    }

    #[test]
    fn publishers_of_this_machine_and_private_networks_are_own() {
        for (address, is_own) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:192.168.1.7", true),
            ("172.31.255.255", true),
            ("172.32.0.1", false),
            ("fd00::1", true),
            ("fe80::1", true),
            ("2001:db8::1", false),
            ("192.0.2.1", false),
        ] {
            assert_eq!(Ladder::default().is_own(address.parse().unwrap()), is_own, "{address}");
        }
    }

    #[test]
    fn names_of_rungs_are_not_those_of_tracks() {
        for good in ["720p", "low", "v", "audio", "v0x", "A.b_c-d"] {
            assert!(is_rung_name(good), "{good}");
        }
        for bad in ["", "v0", "a12", "a b", "a/b", "a&b", &"n".repeat(33)] {
            assert!(!is_rung_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_program_is_looked_for_as_a_shell_does() {
        assert_eq!(find(Path::new("/bin/sh")).unwrap(), Path::new("/bin/sh"));
        assert!(find(Path::new("sh")).unwrap().ends_with("bin/sh"));
        for none in ["no-such-program", "/bin", "./sh", "/etc/passwd", ""] {
            assert_eq!(find(Path::new(none)), None, "{none}");
        }
    }
}
