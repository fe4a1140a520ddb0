//! What was found right before, so that it need not be found out again.

use std::sync::{Mutex, PoisonError};

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::rand;
use credentials::Generations;

/// Most entries of a generation.
const MOST: usize = 10_000;

/// A digest of something secret. It tells nothing about the secret.
pub(super) type Digest = [u8; 32];

/// Values by digests of the secrets that they were found for.
pub(super) struct Proven<T> {
    /// Random, so that nobody can tell digests beforehand.
    key: Key,
    found: Mutex<Generations<Digest, T>>,
}

impl<T: Clone> Proven<T> {
    /// Makes an empty one.
    ///
    /// # Panics
    /// The system has no random numbers.
    pub(super) fn new() -> Self {
        let mut key = [0; 32];
        rand::fill(&mut key).expect("a system with random numbers");
        Self { key: Key::new(HMAC_SHA256, &key), found: Mutex::new(Generations::new(MOST)) }
    }

    /// The digest of some texts, each of which counts by itself.
    pub(super) fn digest(&self, texts: &[&str]) -> Digest {
        let mut data = Vec::new();
        for text in texts {
            data.extend_from_slice(&text.len().to_be_bytes());
            data.extend_from_slice(text.as_bytes());
        }
        let mut digest = Digest::default();
        digest.copy_from_slice(sign(&self.key, &data).as_ref());
        digest
    }

    /// What was found for this digest.
    pub(super) fn get(&self, digest: &Digest) -> Option<T> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).get(digest).cloned()
    }

    /// Notes what was found.
    pub(super) fn note(&self, digest: Digest, value: T) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_kept() {
        let proven = Proven::new();
        assert_ne!(proven.digest(&["a", "b"]), proven.digest(&["ab", ""]));
        assert_ne!(proven.digest(&["a"]), Proven::<()>::new().digest(&["a"]), "the key is random");
        let (used, unused) = (proven.digest(&["used"]), proven.digest(&["unused"]));
        proven.note(used, 1);
        proven.note(unused, 2);
        for number in 0..3 * MOST {
            proven.note(proven.digest(&[&number.to_string()]), 3);
            assert_eq!(proven.get(&used), Some(1));
        }
        assert_eq!(proven.get(&unused), None);
    }
}
