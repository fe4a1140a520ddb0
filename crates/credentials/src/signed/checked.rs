//! Tokens that were found good, so that they need not be checked again. A low-latency player shows its token ten times
//! a second, and to check a signature is a twentieth of what such a request costs.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::constant_time::verify_slices_are_equal;

use super::Permit;
use crate::Generations;

/// Most entries of a generation.
const MOST: usize = 8192;

/// What good tokens say. Nobody without the key can make another good token, so nobody can fill this with what is never
/// used.
pub(super) struct Checked {
    hashes: RandomState,
    entries: Mutex<Generations<u64, Entry>>,
}

struct Entry {
    token: Box<str>,
    permit: Permit,
}

impl Default for Checked {
    fn default() -> Self {
        Self { hashes: RandomState::new(), entries: Mutex::new(Generations::new(MOST)) }
    }
}

impl Checked {
    /// What a token says, if it was checked before. The time this takes tells nothing of other tokens: the hash is
    /// random, and texts are compared as a whole.
    pub(super) fn get(&self, token: &str) -> Option<Permit> {
        let hash = self.hashes.hash_one(token);
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(&hash)?;
        let is_same = verify_slices_are_equal(entry.token.as_bytes(), token.as_bytes()).is_ok();
        is_same.then(|| entry.permit.clone())
    }

    /// Keeps what a good token says.
    pub(super) fn insert(&self, token: &str, permit: Permit) {
        let hash = self.hashes.hash_one(token);
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert(hash, Entry { token: token.into(), permit });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(path: usize) -> Permit {
        Permit { path: format!("live/{path}").parse().unwrap(), expires: None, address: None }
    }

    #[test]
    fn tokens_that_are_used_stay_and_others_go() {
        let checked = Checked::default();
        checked.insert("used", permit(0));
        for n in 0..5 * MOST {
            checked.insert(&n.to_string(), permit(n));
            assert_eq!(checked.get("used"), Some(permit(0)));
        }
        assert_eq!(checked.get("0"), None);
        assert_eq!(checked.get(&(5 * MOST - 1).to_string()), Some(permit(5 * MOST - 1)));
    }

    #[test]
    fn a_hash_alone_is_no_proof() {
        let checked = Checked::default();
        let hash = checked.hashes.hash_one("other");
        let entry = Entry { token: "token".into(), permit: permit(0) };
        checked.entries.lock().unwrap().insert(hash, entry);
        assert_eq!(checked.get("other"), None);
    }

    #[test]
    #[ignore = "a measurement"]
    fn cost_of_checking() {
        const VIEWERS: usize = 5000;
        const TIMES: u32 = 200;
        let key = [7; 32];
        let first = || super::super::Signer::new(&key).unwrap();
        let tokens: Vec<_> = (0..VIEWERS).map(|n| first().sign(&permit(n))).collect();
        let (mut new, mut known) = (std::time::Duration::MAX, std::time::Duration::MAX);
        for _ in 0..TIMES {
            let signer = first();
            for cost in [&mut new, &mut known] {
                let began = std::time::Instant::now();
                for token in &tokens {
                    std::hint::black_box(signer.check(token)).unwrap();
                }
                *cost = (*cost).min(began.elapsed() / VIEWERS as u32);
            }
        }
        println!("a token checked for the first time {new:?}, again {known:?}");
    }
}
