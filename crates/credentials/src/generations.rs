//! A map that keeps what is used, and never more than so much.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by keys, in two generations of `most` each. When the new generation is full, it becomes the old one, whose place
/// it takes. An entry that is used comes into the new one. So what is used stays, and each step takes the same time.
#[derive(Debug)]
pub struct Generations<K, V> {
    most: usize,
    new: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Hash + Eq + Copy, V> Generations<K, V> {
    /// Makes an empty map, which keeps twice `most` entries at most.
    pub fn new(most: usize) -> Self {
        Self { most, new: HashMap::new(), old: HashMap::new() }
    }

    /// The value of a key, which is used by that.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        if !self.new.contains_key(key) {
            let value = self.old.remove(key)?;
            self.insert(*key, value);
        }
        self.new.get(key)
    }

    /// Keeps a value.
    pub fn insert(&mut self, key: K, value: V) {
        if self.new.len() >= self.most {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        const MOST: usize = 100;
        let mut map = Generations::new(MOST);
        map.insert(0, "used");
        map.insert(1, "unused");
        for key in 2..5 * MOST {
            map.insert(key, "other");
            assert_eq!(map.get(&0), Some(&"used"));
        }
        assert_eq!(map.get(&1), None);
        assert_eq!(map.get(&(5 * MOST - 1)), Some(&"other"));
        assert!(map.new.len() <= MOST && map.old.len() <= MOST);
    }
}
