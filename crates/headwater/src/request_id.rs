//! `X-Request-Id` of the control plane.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use http::net::{LogId, request_id};

const NAME: HeaderName = HeaderName::from_static(request_id::NAME);

/// Answers a request within its id, which the answer tells. It is the client's own, or else the one that the driver
/// made.
pub(crate) async fn named(request: Request, next: Next) -> Response {
    let given = request.headers().get(NAME).and_then(|id| request_id::given(id.as_bytes()));
    let id = given.unwrap_or_else(request_id::make);
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

/// The path without the token of a signed one, which is as good as a password.
fn shown(path: &str) -> &str {
    if path.starts_with("/s/") { "/s/" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_of_a_signed_path_is_shown() {
        assert_eq!(shown("/s/secret/live/x/whep"), "/s/");
        assert_eq!(shown("/api/v1/streams"), "/api/v1/streams");
    }
}
