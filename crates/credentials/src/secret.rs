//! Passwords and stream keys.

use std::fmt;
use std::str::FromStr;

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// What the text of a hash begins with.
const HASHED: &str = "$argon2";
/// Longest secret that anybody may try, in bytes.
pub const LONGEST_SECRET: usize = 1024;
/// Most memory that checking a hash may take, in KiB, and most passes over it. More would let anybody who guesses
/// take the machine's time.
const MOST: (u32, u32) = (256 << 10, 16);

/// A password or a stream key: in plain, or as its argon2 hash in the PHC string format.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Secret(Kept);

#[derive(Clone, PartialEq, Eq)]
enum Kept {
    Plain(String),
    /// A hash that was read once, so that it can be read again.
    Hashed(String),
}

/// Why a text is no [`Secret`]. The text itself is not told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotASecret {
    /// Nobody could tell it from no secret at all.
    #[error("must not be empty")]
    Empty,
    /// More than anybody may try.
    #[error("must have at most {LONGEST_SECRET} bytes")]
    TooLong,
    /// It begins like a hash, and is none.
    #[error("is not an argon2 hash in the PHC string format: {0}")]
    Hash(String),
    /// Its parameters ask for more than one may spend on a guess.
    #[error("asks for more than 256 MiB or 16 passes")]
    Expensive,
}

impl Secret {
    /// Makes a secret whose argon2id hash is kept, with the parameters that OWASP recommends (19 MiB, 2 passes). The
    /// salt is random.
    ///
    /// # Errors
    /// The text is empty or too long.
    pub fn hashed(text: &str) -> Result<Self, NotASecret> {
        check_length(text)?;
        let failed = |why: &dyn fmt::Display| NotASecret::Hash(why.to_string());
        let mut salt = [0; 16];
        aws_lc_rs::rand::fill(&mut salt).map_err(|error| failed(&error))?;
        let salt = SaltString::encode_b64(&salt).map_err(|error| failed(&error))?;
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::default());
        let hash = argon2.hash_password(text.as_bytes(), &salt).map_err(|error| failed(&error))?;
        Ok(Self(Kept::Hashed(hash.to_string())))
    }

    /// The text in plain, if that is what is kept.
    pub fn plain(&self) -> Option<&str> {
        match &self.0 {
            Kept::Plain(text) => Some(text),
            Kept::Hashed(_) => None,
        }
    }

    /// Whether somebody who gives `tried` knows the secret. A hash takes some ten milliseconds, so this must not run on
    /// an event loop unless [`Secret::plain`] has something. The time tells nothing about the secret.
    pub fn is(&self, tried: &str) -> bool {
        if tried.len() > LONGEST_SECRET {
            return false;
        }
        match &self.0 {
            Kept::Plain(text) => {
                // Digests have one length, so the time does not tell that of the secret.
                let [ours, theirs] = [text, tried].map(|text| digest(&SHA256, text.as_bytes()));
                verify_slices_are_equal(ours.as_ref(), theirs.as_ref()).is_ok()
            }
            Kept::Hashed(text) => PasswordHash::new(text).is_ok_and(|hash| {
                Argon2::default().verify_password(tried.as_bytes(), &hash).is_ok()
            }),
        }
    }
}

fn check_length(text: &str) -> Result<(), NotASecret> {
    match text.len() {
        0 => Err(NotASecret::Empty),
        length if length > LONGEST_SECRET => Err(NotASecret::TooLong),
        _ => Ok(()),
    }
}

impl FromStr for Secret {
    type Err = NotASecret;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        check_length(text)?;
        if !text.starts_with(HASHED) {
            return Ok(Self(Kept::Plain(text.to_owned())));
        }
        let hash = PasswordHash::new(text).map_err(|error| NotASecret::Hash(error.to_string()))?;
        let params =
            Params::try_from(&hash).map_err(|error| NotASecret::Hash(error.to_string()))?;
        Algorithm::try_from(hash.algorithm).map_err(|error| NotASecret::Hash(error.to_string()))?;
        if hash.hash.is_none() || hash.salt.is_none() {
            return Err(NotASecret::Hash("it has no salt or no hash".to_owned()));
        }
        if params.m_cost() > MOST.0 || params.t_cost() > MOST.1 {
            return Err(NotASecret::Expensive);
        }
        Ok(Self(Kept::Hashed(text.to_owned())))
    }
}

impl TryFrom<String> for Secret {
    type Error = NotASecret;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Secret> for String {
    fn from(secret: Secret) -> Self {
        match secret.0 {
            Kept::Plain(text) | Kept::Hashed(text) => text,
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of `password`, made by the program `argon2` of Debian:
    /// `printf password | argon2 saltsaltsalt -id -t 2 -k 19456 -p 1 -e`.
    const FOREIGN: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0$83NhH4a54XrGQTfUWbmBlx7cfoFGhD1nGBk7kNt4L44";

    #[test]
    fn secrets_are_known_by_those_who_know_them() {
        for secret in [
            "password".parse().unwrap(),
            Secret::hashed("password").unwrap(),
            FOREIGN.parse::<Secret>().unwrap(),
        ] {
            assert!(secret.is("password"), "{secret:?}");
            for wrong in ["", "passwor", "password ", "PASSWORD", &"x".repeat(100_000)] {
                assert!(!secret.is(wrong), "{wrong:.20}");
            }
        }
        assert_eq!("key".parse::<Secret>().unwrap().plain(), Some("key"));
        assert_eq!(Secret::hashed("key").unwrap().plain(), None);
        let again = String::from(Secret::hashed("key").unwrap()).parse::<Secret>().unwrap();
        assert!(again.is("key"));
        assert_eq!(format!("{:?}", "key".parse::<Secret>().unwrap()), "Secret");
    }

    #[test]
    fn texts_that_are_no_secrets() {
        let expensive = FOREIGN.replace("m=19456", "m=4194304");
        let slow = FOREIGN.replace("t=2", "t=1000");
        let long = "x".repeat(LONGEST_SECRET + 1);
        for text in ["", "$argon2id$", "$argon2x$v=19$m=1,t=1,p=1$c2FsdA$aGFzaA", &long] {
            assert!(text.parse::<Secret>().is_err(), "{text:.30}");
        }
        for text in [&expensive, &slow] {
            assert_eq!(text.parse::<Secret>(), Err(NotASecret::Expensive), "{text}");
        }
        let error = "$argon2id$secret".parse::<Secret>().unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
