//! `X-Request-Id`: by it, what the log has of a request to the control plane is found.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use http::net::LogId;

const NAME: HeaderName = HeaderName::from_static("x-request-id");

/// Longest id that is taken from a client, or from a proxy before this server.
const LONGEST: usize = 64;

/// Answers a request within its id, which the answer tells. It is the client's own, or else a new one.
pub(crate) async fn named(request: Request, next: Next) -> Response {
    let id = given(request.headers()).unwrap_or_else(make);
    let (method, uri) = (request.method().clone(), request.uri().clone());
    LogId::request(Arc::clone(&id))
        .scope(async move {
            let mut response = next.run(request).await;
            let status = response.status().as_u16();
            tracing::debug!(%method, path = shown(uri.path()), status, "answered");
            if let Ok(id) = HeaderValue::from_str(&id) {
                response.headers_mut().insert(NAME, id);
            }
            response
        })
        .await
}

/// The client's id, if it can do no harm in a header or in a log.
fn given(headers: &HeaderMap) -> Option<Arc<str>> {
    let id = headers.get(NAME)?.to_str().ok()?;
    let is_harmless = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    ((1..=LONGEST).contains(&id.len()) && id.bytes().all(is_harmless)).then(|| id.into())
}

/// A new id. Its beginning tells this process from others, whose logs may be in one place.
fn make() -> Arc<str> {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{:08x}-{number}", *PROCESS >> 32).into()
}

/// The path without the token of a signed one, which is as good as a password.
fn shown(path: &str) -> &str {
    if path.starts_with("/s/") { "/s/" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_ids_are_taken_from_clients() {
        let headers =
            |id: &[u8]| HeaderMap::from_iter([(NAME, HeaderValue::from_bytes(id).unwrap())]);
        for good in ["a", "4bf92f35-77b3-4da6.a3ce_9", &"x".repeat(64)] {
            assert_eq!(given(&headers(good.as_bytes())).as_deref(), Some(good));
        }
        for bad in ["", "a b", "a\"b", "a\tb", "a=b", "\u{e4}", &"x".repeat(65)] {
            assert_eq!(given(&headers(bad.as_bytes())), None, "{bad:?}");
        }
        assert_eq!(given(&HeaderMap::new()), None);
    }

    #[test]
    fn made_ids_differ_and_could_come_from_a_client() {
        let (first, second) = (make(), make());
        assert_ne!(first, second);
        let headers = HeaderMap::from_iter([(NAME, HeaderValue::from_str(&first).unwrap())]);
        assert_eq!(given(&headers), Some(first));
    }

    #[test]
    fn no_token_of_a_signed_path_is_shown() {
        assert_eq!(shown("/s/secret/live/x/whep"), "/s/");
        assert_eq!(shown("/api/v1/streams"), "/api/v1/streams");
    }
}
