//! User and password of an RTMP URL (`rtmp://USER:PASSWORD@HOST/…`), as Adobe's servers ask for them before an encoder
//! says what it publishes. The exchange is written down nowhere. ffmpeg, librtmp (OBS) and GStreamer agree on it:
//!
//! ```text
//! connect live                                  ▶  rejected: code=403 need auth; authmod=adobe
//! connect live?authmod=adobe&user=U             ▶  rejected: ?reason=needauth&user=U&salt=S&challenge=C&opaque=C
//! connect live?authmod=adobe&user=U&challenge=D&response=R&opaque=C   ▶  accepted
//!
//! R = base64(md5(base64(md5(U S password)) C D))
//! ```
//!
//! Each is a connection of its own. Nothing is kept between them: `C` tells its own time, user and address.

use std::net::IpAddr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};

/// For how many seconds a challenge holds.
///
/// An attacker who reads an answer on its way can repeat it for so long from the same address: RTMP without
/// TLS hides nothing.
const HOLDS: u64 = 30;

/// Longest name of a user, in bytes.
const LONGEST_USER: usize = 256;

/// Makes challenges and looks at what comes back.
pub(super) struct Adobe {
    key: Key,
}

/// The credentials in a connect command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// Nothing yet.
    Nothing,
    /// A name, which needs a challenge.
    Named(&'a str),
    /// An answer to a challenge.
    Answered(Answer<'a>),
    /// Something else than this exchange has.
    Unknown,
}

/// An answer to a challenge.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer<'a> {
    pub(super) user: &'a str,
    own: &'a str,
    response: &'a str,
    challenge: &'a str,
}

impl<'a> Step<'a> {
    /// Reads the query of an application. What it has is neither percent-encoded nor may it have `&`.
    pub(super) fn of(query: &'a str) -> Self {
        let field = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let user = field("user").filter(|user| !user.is_empty() && user.len() <= LONGEST_USER);
        match (field("authmod"), user) {
            (None, _) => Self::Nothing,
            (Some("adobe"), Some(user)) => {
                match (field("challenge"), field("response"), field("opaque")) {
                    (Some(own), Some(response), Some(challenge)) => {
                        Self::Answered(Answer { user, own, response, challenge })
                    }
                    _ => Self::Named(user),
                }
            }
            _ => Self::Unknown,
        }
    }
}

impl Adobe {
    /// # Panics
    /// The system has no random numbers.
    pub(super) fn new() -> Self {
        let mut key = [0; 32];
        rand::fill(&mut key).expect("a system with random numbers");
        Self { key: Key::new(HMAC_SHA256, &key) }
    }

    /// The answer to a peer that must give its credentials first.
    pub(super) fn ask() -> String {
        "[ AccessManager.Reject ] : [ code=403 need auth; authmod=adobe ] : ".to_owned()
    }

    /// The answer to wrong credentials.
    pub(super) fn refuse() -> String {
        "[ AccessManager.Reject ] : [ authmod=adobe ] : ?reason=authfailed".to_owned()
    }

    /// The answer to a peer that has named a user, whether there is one or not. `now` is in seconds since 1970.
    pub(super) fn challenge(&self, user: &str, ip: IpAddr, now: u64) -> String {
        let (salt, challenge) = (self.salt(user), self.issued(user, ip, now));
        format!(
            "[ AccessManager.Reject ] : [ authmod=adobe ] : \
             ?reason=needauth&user={user}&salt={salt}&challenge={challenge}&opaque={challenge}"
        )
    }

    /// Whether the peer that answers has a challenge of ours that still holds.
    pub(super) fn holds(&self, answer: &Answer<'_>, ip: IpAddr, now: u64) -> bool {
        let at = answer.challenge.split_once('-').and_then(|(at, _)| at.parse().ok());
        at.is_some_and(|at: u64| {
            let issued = self.issued(answer.user, ip, at);
            let is_ours =
                verify_slices_are_equal(issued.as_bytes(), answer.challenge.as_bytes()).is_ok();
            is_ours && (at..=at.saturating_add(HOLDS)).contains(&now)
        })
    }

    /// Whether the peer that answers knows this password.
    pub(super) fn knows(&self, answer: &Answer<'_>, password: &str) -> bool {
        let expected = respond(
            [answer.user, &self.salt(answer.user), password],
            [answer.challenge, answer.own],
        );
        verify_slices_are_equal(expected.as_bytes(), answer.response.as_bytes()).is_ok()
    }

    fn salt(&self, user: &str) -> String {
        hex(&sign(&self.key, format!("salt {user}").as_bytes()).as_ref()[..8])
    }

    fn issued(&self, user: &str, ip: IpAddr, at: u64) -> String {
        let code = sign(&self.key, format!("challenge {at} {ip} {user}").as_bytes());
        format!("{at}-{}", hex(&code.as_ref()[..16]))
    }
}

/// The response of somebody with user, salt and password to a challenge and an own one.
pub(super) fn respond(secret: [&str; 3], challenges: [&str; 2]) -> String {
    let secret = STANDARD.encode(Md5::digest(secret.concat()));
    STANDARD.encode(Md5::digest(secret + &challenges.concat()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_of_an_application_tells_how_far_the_exchange_is() {
        let answered = Answer { user: "a=b", own: "d", response: "r==", challenge: "c" };
        for (query, expected) in [
            ("", Step::Nothing),
            ("user=u&password=p", Step::Nothing),
            ("authmod=adobe&user=u", Step::Named("u")),
            ("authmod=adobe&user=u&challenge=d&response=r", Step::Named("u")),
            ("authmod=adobe&user=a=b&challenge=d&response=r==&opaque=c", Step::Answered(answered)),
            ("authmod=adobe", Step::Unknown),
            ("authmod=adobe&user=", Step::Unknown),
            ("authmod=llnw&user=u", Step::Unknown),
        ] {
            assert_eq!(Step::of(query), expected, "{query}");
        }
        let long = format!("authmod=adobe&user={}", "u".repeat(LONGEST_USER + 1));
        assert_eq!(Step::of(&long), Step::Unknown);
    }

    #[test]
    fn a_right_answer_holds_for_a_time_for_one_user_at_one_address() {
        let (adobe, other) = (Adobe::new(), Adobe::new());
        let ip: IpAddr = "192.0.2.1".parse().unwrap();
        let told = adobe.challenge("u", ip, 1000);
        let field = |name: &str| {
            let (_, rest) = told.split_once(name).unwrap();
            rest.split('&').next().unwrap().to_owned()
        };
        let (salt, challenge) = (field("salt="), field("opaque="));
        let response = respond(["u", &salt, "p"], [&challenge, "d"]);
        let answer = |user| Answer { user, own: "d", response: &response, challenge: &challenge };
        let right = answer("u");
        assert!(adobe.holds(&right, ip, 1000) && adobe.holds(&right, ip, 1000 + HOLDS));
        assert!(adobe.knows(&right, "p") && !adobe.knows(&right, "q"));
        assert!(!adobe.holds(&right, ip, 1001 + HOLDS) && !adobe.holds(&right, ip, 999));
        assert!(!adobe.holds(&right, "192.0.2.2".parse().unwrap(), 1000));
        assert!(!adobe.holds(&answer("v"), ip, 1000) && !adobe.knows(&answer("v"), "p"));
        assert!(!other.holds(&right, ip, 1000));
        for challenge in ["", "1000", "1000-", "x-y", "99999999999999999999-0"] {
            assert!(!adobe.holds(&Answer { challenge, ..answer("u") }, ip, 1000), "{challenge}");
        }
    }
}
