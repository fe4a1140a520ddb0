//! `[access]`: who may publish, play and observe.

use std::path::{Path, PathBuf};

use credentials::jwt::Keys;
use credentials::signed::Signer;
use credentials::{Action, Pattern, Secret};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::Time;

/// Networks of machines that are near: this machine, private networks (RFC 1918, RFC 4193), and links (RFC 3927, RFC
/// 4291 2.5.6).
const NEAR: [&str; 8] = [
    "127.0.0.0/8",
    "::1/128",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "fc00::/7",
    "fe80::/10",
];

/// `[access]`: who may publish, play and observe. Each kind of credentials that is configured for an action closes the
/// action to everybody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Access {
    /// Networks whose addresses may publish if no kind of credentials is configured for publishing.
    pub publish_from: Vec<IpNet>,
    /// How many wrong credentials an address (IPv6: a /64 network) may give in a minute; 0 is no limit.
    pub max_failures: u32,
    /// Whether RTMP encoders that give no credentials are asked for user and password in Adobe's way.
    pub rtmp_challenge: bool,
    /// A file with the key of signed paths, at least 32 bytes. The holder of a signed path may play. Empty
    /// means there are none.
    pub signing_key: PathBuf,
    /// Tokens (RFC 7519).
    pub jwt: Jwt,
    /// A server that decides.
    pub webhook: Webhook,
    /// The actions that peers may do. Any rule that matches allows them.
    pub rule: Vec<Rule>,
}

/// `[[access.rule]]`: allows actions on paths to some addresses, or to those who have credentials. All that is given
/// must match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The actions.
    pub actions: Vec<Action>,
    /// The paths of streams and titles. `api` and `metrics` have none.
    #[serde(default = "Pattern::all")]
    pub path: Pattern,
    /// Networks of addresses; empty for all.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// The name that goes with `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password of `user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// A stream key, which is a password without a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
}

/// `[access.jwt]`: tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jwt {
    /// The keys that verify signatures: a file with a PEM public key, with a secret of at least 32 bytes, or with a
    /// JSON Web Key Set (RFC 7517), or the http or https URL of such a set. Empty means there are no tokens.
    pub keys: String,
    /// The `iss` that tokens must have; empty for any.
    pub issuer: String,
    /// The `aud` that tokens must have; empty for tokens without one.
    pub audience: String,
    /// By how much the issuer's clock may be off: tokens hold so much longer.
    pub leeway: Time,
    /// How often a key set is fetched from its URL.
    pub refresh: Time,
    /// The actions that tokens are for.
    pub actions: Vec<Action>,
}

/// `[access.webhook]`: a server that is asked before each publisher and player.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Webhook {
    /// Its http or https URL; empty means there is none.
    pub url: String,
    /// It must answer within this time.
    pub timeout: Time,
    /// How long an answer holds for the same address, credentials, path and query.
    pub cache: Time,
    /// How often the webhook is asked again about open sessions. A refusal ends the session. Zero is never.
    pub recheck: Time,
    /// What happens if it does not answer in time, or with something else than an answer.
    pub on_failure: OnFailure,
    /// The actions that it is asked about.
    pub actions: Vec<Action>,
}

/// The treatment of peers for which no decision is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// They are refused.
    Refuse,
    /// They are let in.
    Allow,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            publish_from: NEAR.iter().filter_map(|network| network.parse().ok()).collect(),
            max_failures: 10,
            rtmp_challenge: false,
            signing_key: PathBuf::new(),
            jwt: Jwt::default(),
            webhook: Webhook::default(),
            rule: Vec::new(),
        }
    }
}

impl Default for Jwt {
    fn default() -> Self {
        Self {
            keys: String::new(),
            issuer: String::new(),
            audience: String::new(),
            leeway: Time::from_secs(5),
            refresh: Time::from_secs(300),
            actions: vec![Action::Publish, Action::Play],
        }
    }
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            url: String::new(),
            timeout: Time::from_secs(3),
            cache: Time::from_secs(5),
            recheck: Time::from_secs(30),
            on_failure: OnFailure::Refuse,
            actions: vec![Action::Publish, Action::Play],
        }
    }
}

/// Reads the key of signed paths.
///
/// # Errors
/// The file cannot be read, or is too short.
pub(crate) fn signing_key(path: &Path) -> Result<Signer, String> {
    let named = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let content = std::fs::read(path).map_err(|error| named(&error))?;
    Signer::new(content.trim_ascii_end()).map_err(|error| named(&error))
}

/// Reads the keys of tokens.
///
/// # Errors
/// The file cannot be read, or has no keys.
pub(crate) fn jwt_keys(path: &str) -> Result<Keys, String> {
    let content = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    Keys::parse(&content).map_err(|error| format!("{path}: {error}"))
}

/// Whether something is at a URL, and not in a file.
pub(crate) fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https"))
}
