//! A peer's request and credentials, as the protocols carry them.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderValue, Uri, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use credentials::LONGEST_SECRET;

use super::{Action, Kind, page};

/// A peer's credentials, as the protocol carries them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// The part of a URL after the `?`.
    pub query: &'a str,
    /// A second query: that of the application, which RTMP has besides.
    pub query_of_app: &'a str,
    /// The `Authorization` header of HTTP.
    pub authorization: Option<&'a str>,
    /// The token of a signed path: `/s/TOKEN/…`.
    pub signed: Option<&'a str>,
    /// Whether the peer sent this HTTP request for itself: no page of another site asked for it, and
    /// no client behind a proxy.
    pub own: bool,
}

impl<'a> Credentials<'a> {
    /// The credentials in a request to the control plane.
    pub(crate) fn of(uri: &'a Uri, headers: &'a HeaderMap) -> Self {
        let authorization = headers.get(header::AUTHORIZATION).map(HeaderValue::to_str);
        Self {
            query: uri.query().unwrap_or_default(),
            authorization: authorization.and_then(Result::ok),
            own: page::is_own(uri, headers),
            ..Self::default()
        }
    }
}

/// A request to be let in: the action, the peer, the protocol, and the credentials.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The action that the peer wants.
    pub action: Action<'a>,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The protocol, as the webhook is told: `rtmp`, `http`, `whip` or `whep`.
    pub protocol: &'static str,
    /// The peer's credentials.
    pub credentials: Credentials<'a>,
    /// Whether the peer stays for some time if it is let in. Then it is checked again and again.
    pub lasts: bool,
}

/// An attempt to be let in: an owned [`Asked`]. It has no `Debug`, so that no log gets its secrets.
#[derive(Clone)]
pub(crate) struct Attempt {
    pub(super) kind: Kind,
    /// The path of the stream or title, if the action has one.
    pub(super) path: String,
    pub(super) protocol: &'static str,
    pub(super) ip: IpAddr,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) key: String,
    pub(super) token: String,
    pub(super) signed: String,
    /// The query as it came.
    pub(super) query: String,
    /// Whether there was an `Authorization` header.
    pub(super) is_personal: bool,
    pub(super) lasts: bool,
}

impl Attempt {
    /// The name of the action, the path, and the address, for the log.
    pub(crate) fn told(&self) -> (&'static str, &str, IpAddr) {
        (self.kind.name(), &self.path, self.ip)
    }

    pub(super) fn read(asked: &Asked<'_>) -> Self {
        let Credentials { query, query_of_app, authorization, signed, .. } = asked.credentials;
        let mut attempt = Self {
            kind: asked.action.kind(),
            path: asked.action.path().map(|path| path.to_string()).unwrap_or_default(),
            protocol: asked.protocol,
            ip: asked.peer.ip().to_canonical(),
            signed: signed.unwrap_or_default().to_owned(),
            is_personal: authorization.is_some(),
            lasts: asked.lasts,
            query: match query_of_app {
                "" => query.to_owned(),
                _ => format!("{query}&{query_of_app}").trim_start_matches('&').to_owned(),
            },
            user: String::new(),
            password: String::new(),
            key: String::new(),
            token: String::new(),
        };
        // The first of a name counts.
        for pair in query_of_app.rsplit('&').chain(query.rsplit('&')) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let field = match Field::of(name) {
                Some(Field::User) => &mut attempt.user,
                Some(Field::Password) => &mut attempt.password,
                Some(Field::Key) => &mut attempt.key,
                Some(Field::Token) => &mut attempt.token,
                None => continue,
            };
            *field = http::percent_decode(value).map(Cow::into_owned).unwrap_or_default();
        }
        // A header is meant for us alone, so it counts more.
        let (scheme, given) = authorization.and_then(|it| it.split_once(' ')).unwrap_or_default();
        if scheme.eq_ignore_ascii_case("bearer") {
            given.trim().clone_into(&mut attempt.token);
        } else if scheme.eq_ignore_ascii_case("basic")
            && let Some((user, password)) = basic(given.trim())
        {
            (attempt.user, attempt.password) = (user, password);
        }
        attempt
    }

    /// Whether nothing was given that could let anybody in.
    pub(super) fn is_anonymous(&self) -> bool {
        !self.guesses() && self.token.is_empty() && self.signed.is_empty()
    }

    /// Whether something was given that can be guessed.
    pub(super) fn guesses(&self) -> bool {
        [&self.user, &self.password, &self.key].into_iter().any(|given| !given.is_empty())
    }

    /// What is tried as the secret of a rule with this user; or of one without a user: a stream key, which HTTP carries
    /// as `?key=`, as the password of any user, or as a token. It is one secret, so that a failure is one guess.
    pub(super) fn tried(&self, user: Option<&str>) -> Option<&str> {
        let given = match user {
            Some(user) if user == self.user => [&*self.password, "", ""],
            Some(_) => return None,
            None => [&*self.key, &*self.password, &*self.token],
        };
        given
            .into_iter()
            .find(|secret| !secret.is_empty())
            .filter(|secret| secret.len() <= LONGEST_SECRET)
    }
}

/// What of the credentials a query may have.
enum Field {
    User,
    Password,
    Key,
    Token,
}

impl Field {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "user" => Self::User,
            // The second name is that of MediaMTX.
            "password" | "pass" => Self::Password,
            "key" => Self::Key,
            "token" | "jwt" => Self::Token,
            _ => return None,
        })
    }
}

/// Whether a query has credentials.
pub(super) fn has_credentials(query: &str) -> bool {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.any(|(name, value)| Field::of(name).is_some() && !value.is_empty())
}

/// User and password of RFC 7617.
fn basic(given: &str) -> Option<(String, String)> {
    let text = String::from_utf8(STANDARD.decode(given).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::StreamPath;

    fn read(credentials: Credentials<'_>) -> Attempt {
        let action = Action::Play(StreamPath::Live("a"));
        let peer = "[::ffff:192.0.2.1]:5".parse().unwrap();
        Attempt::read(&Asked { action, peer, protocol: "http", credentials, lasts: false })
    }

    #[test]
    fn queries_and_headers_carry_credentials() {
        let query = |query| read(Credentials { query, ..Credentials::default() });
        let header = |header| {
            read(Credentials {
                query: "user=q&token=q",
                authorization: Some(header),
                ..Credentials::default()
            })
        };
        let found = |attempt: Attempt| {
            [attempt.user, attempt.password, attempt.key, attempt.token].join("|")
        };
        for (given, expected) in [
            ("", "|||"),
            ("x=1&key=a%26b", "||a&b|"),
            ("user=a&pass=b", "a|b||"),
            ("user=a&password=b&password=c", "a|b||"),
            ("token=t+1&key", "|||t+1"),
            ("jwt=t", "|||t"),
            ("key=%ff", "|||"),
        ] {
            assert_eq!(found(query(given)), expected, "{given}");
        }
        for (given, expected) in [
            ("Basic YWxpY2U6cGE6c3M=", "alice|pa:ss||q"),
            ("basic YWxpY2U6", "alice|||q"),
            ("Basic YWxpY2U", "q|||q"),
            ("Basic ////", "q|||q"),
            ("BEARER  abc ", "q|||abc"),
            ("Digest x", "q|||q"),
            ("", "q|||q"),
        ] {
            assert_eq!(found(header(given)), expected, "{given}");
        }
        let both =
            Credentials { query: "key=1", query_of_app: "key=2&user=u", ..Credentials::default() };
        let both = read(both);
        assert_eq!((&*both.query, &*both.key, &*both.user), ("key=1&key=2&user=u", "1", "u"));
        assert_eq!((&*both.path, both.ip), ("live/a", "192.0.2.1".parse::<IpAddr>().unwrap()));
        assert!(query("").is_anonymous() && query("x=1").is_anonymous() && !both.is_anonymous());
    }
}
