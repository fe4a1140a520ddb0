//! Tokens (RFC 7519), with keys from a file or from a URL.

use std::sync::Arc;

use credentials::jwt::{self, Claims, Keys, Refused, Terms};

use super::proven::Proven;
use super::remote::Remote;
use crate::config::{Jwt, is_url, jwt_keys};

/// The tokens of `[access.jwt]`.
pub(super) struct Tokens {
    source: Source,
    terms: Terms,
    /// Tokens whose signatures were verified, with the keys of that time: a signature takes up to a tenth of a
    /// millisecond, and players send their token with each request.
    verified: Proven<(Arc<Keys>, Arc<Claims>)>,
    /// The same of those that were refused. They are apart, so that nobody drives out the good ones.
    refused: Proven<(Arc<Keys>, Refused)>,
}

enum Source {
    File(Arc<Keys>),
    Remote(Arc<Remote<Keys>>),
}

/// What a token is worth.
pub(super) enum Token {
    Good(Arc<Claims>),
    Bad(Refused),
    /// The key set may have the key by now.
    UnknownKey,
    /// The key set was never fetched.
    NoKeys,
}

/// The keys of a URL.
fn remote_keys(config: &Jwt) -> Result<Arc<Remote<Keys>>, String> {
    let parse = |body: &[u8]| Keys::parse(body).map_err(|error| error.to_string());
    let remote = Remote::new(&config.keys, config.refresh.into(), parse);
    remote.map_err(|error| error.to_string())
}

/// Fetches the keys of a URL once: whether they can be had.
pub(super) async fn fetch(config: &Jwt) -> Result<(), String> {
    remote_keys(config)?.fetch_in_time().await.map(drop)
}

impl Tokens {
    /// `before` are the tokens of a configuration with the same `keys`. Those of a URL go on until they are fetched anew:
    /// the server that has them may be away.
    ///
    /// # Errors
    /// The file cannot be read, or has no keys; or the URL cannot be used.
    pub(super) fn new(config: &Jwt, before: Option<&Self>) -> Result<Self, String> {
        let source = if is_url(&config.keys) {
            let remote = remote_keys(config)?;
            if let Some(Self { source: Source::Remote(before), .. }) = before {
                remote.begin_with(before.get());
            }
            Source::Remote(remote)
        } else {
            Source::File(Arc::new(jwt_keys(&config.keys)?))
        };
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let terms = Terms {
            issuer: given(&config.issuer),
            audience: given(&config.audience),
            leeway: config.leeway.into(),
        };
        Ok(Self { source, terms, verified: Proven::new(), refused: Proven::new() })
    }

    /// Looks at a token at a time, in seconds since 1970.
    pub(super) fn look(&self, token: &str, now: u64) -> Token {
        let keys = match &self.source {
            Source::File(keys) => Arc::clone(keys),
            Source::Remote(remote) => match remote.get() {
                Some(keys) => keys,
                None => return Token::NoKeys,
            },
        };
        let digest = self.verified.digest(&[token]);
        if let Some((with, claims)) = self.verified.get(&digest)
            && Arc::ptr_eq(&with, &keys)
            && claims.expires.is_none_or(|at| now < at)
        {
            return Token::Good(claims);
        }
        let digest_of_refused = self.refused.digest(&[token]);
        if let Some((with, why)) = self.refused.get(&digest_of_refused)
            && Arc::ptr_eq(&with, &keys)
        {
            return Token::Bad(why);
        }
        match jwt::verify(token, &keys, &self.terms, now) {
            Ok(claims) => {
                let claims = Arc::new(claims);
                self.verified.note(digest, (keys, Arc::clone(&claims)));
                Token::Good(claims)
            }
            Err(refused)
                if refused.is_unknown_key() && matches!(self.source, Source::Remote(_)) =>
            {
                Token::UnknownKey
            }
            Err(why) => {
                // It may be valid later.
                if why != Refused::NotYetValid {
                    self.refused.note(digest_of_refused, (keys, why));
                }
                Token::Bad(why)
            }
        }
    }

    /// Whether a token is genuine, even if it has expired. Nobody can guess such a token.
    pub(super) fn is_genuine(&self, token: &str, now: u64) -> bool {
        matches!(self.look(token, now), Token::Good(_) | Token::Bad(Refused::Expired))
    }

    /// Whether there are keys: those of a URL may not have come yet.
    pub(super) fn has_keys(&self) -> bool {
        match &self.source {
            Source::File(_) => true,
            Source::Remote(remote) => remote.get().is_some(),
        }
    }

    /// Asks for the key set again.
    pub(super) async fn fetch_again(&self) {
        if let Source::Remote(remote) = &self.source {
            remote.fetch_again().await;
        }
    }

    /// Keeps the key set fresh until the future is dropped.
    pub(super) async fn keep_fresh(&self) {
        if let Source::Remote(remote) = &self.source {
            Arc::clone(remote).keep_fresh().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_url_go_on_where_other_terms_are_configured() {
        let config = Jwt { keys: "http://127.0.0.1:1/".to_owned(), ..Jwt::default() };
        let before = Tokens::new(&config, None).unwrap();
        assert!(!before.has_keys());
        let Source::Remote(remote) = &before.source else { panic!("a file") };
        let keys = Keys::parse(b"a secret that has at least 32 bytes in it").unwrap();
        remote.begin_with(Some(Arc::new(keys)));
        let strict = Jwt { issuer: "https://id.example.org/".to_owned(), ..config };
        assert!(Tokens::new(&strict, Some(&before)).unwrap().has_keys());
        assert!(!Tokens::new(&strict, None).unwrap().has_keys());
    }
}
