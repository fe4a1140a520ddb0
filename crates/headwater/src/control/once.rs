//! Renders answers at most once a second, however many clients ask.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long an answer is reused.
const KEPT: Duration = Duration::from_secs(1);

/// Most answers that are kept. Further ones are rendered for each request. An answer that must not
/// be rendered so often needs a [`Once`] of its own.
pub(super) const MOST: usize = 1024;

/// Recent answers by request key.
#[derive(Debug)]
pub(crate) struct Once<K> {
    kept: Mutex<HashMap<K, (Instant, Bytes)>>,
}

impl<K> Default for Once<K> {
    fn default() -> Self {
        Self { kept: Mutex::default() }
    }
}

impl<K: Hash + Eq> Once<K> {
    /// Returns the answer for `key`. `render` makes it if there was none in the last second; other
    /// requests wait meanwhile. Returns `None` if `render` does.
    pub(crate) async fn get(
        &self,
        key: K,
        render: impl FnOnce() -> Option<Bytes>,
    ) -> Option<Bytes> {
        let mut kept = self.kept.lock().await;
        let now = Instant::now();
        let is_fresh = |at: Instant| now.duration_since(at) < KEPT;
        if let Some((at, answer)) = kept.get(&key)
            && is_fresh(*at)
        {
            return Some(answer.clone());
        }
        let answer = render()?;
        if kept.len() >= MOST {
            kept.retain(|_, (at, _)| is_fresh(*at));
        }
        if kept.len() < MOST {
            kept.insert(key, (now, answer.clone()));
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_rendering_a_second_and_answer() {
        let (once, renderings) = (Once::default(), Cell::new(0));
        let render = || {
            renderings.set(renderings.get() + 1);
            Some(Bytes::from(renderings.get().to_string()))
        };
        for _ in 0..1000 {
            assert_eq!(once.get("a", render).await.unwrap(), "1");
        }
        assert_eq!(once.get("b", render).await.unwrap(), "2");
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(once.get("a", render).await.unwrap(), "1");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(once.get("a", render).await.unwrap(), "3");
        assert_eq!(once.get("a", render).await.unwrap(), "3");
    }

    #[tokio::test(start_paused = true)]
    async fn absent_answers_are_not_kept_and_others_are_bounded() {
        let once = Once::default();
        assert_eq!(once.get(0, || None).await, None);
        assert!(once.kept.lock().await.is_empty());
        for key in 0..2 * MOST {
            assert_eq!(once.get(key, || Some(Bytes::from_static(b"x"))).await.unwrap(), "x");
        }
        assert_eq!(once.kept.lock().await.len(), MOST);
        tokio::time::advance(KEPT).await;
        once.get(2 * MOST, || Some(Bytes::new())).await;
        assert_eq!(once.kept.lock().await.len(), 1);
    }
}
