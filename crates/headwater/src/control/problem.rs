//! Errors of the API as problem details (RFC 9457).

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

/// The media type of problem details.
const KIND: &str = "application/problem+json";

/// Longest text that is described, in bytes: all of ours are much shorter.
const LONGEST: usize = 4 << 10;

/// Why a request to the API failed (RFC 9457). There is no `type`, so it is `about:blank`: the status says what kind of
/// problem it is.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(super) struct Problem {
    /// The name of the status.
    title: &'static str,
    /// The status of the response.
    status: u16,
    /// What is wrong with this request, in one sentence.
    detail: String,
}

/// Turns errors of the API into problem details. Handlers answer with a status and a line of text.
pub(super) async fn describe(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_api = path.contains("/api/v1/") || path == "/metrics" || path.starts_with("/route/");
    let response = next.run(request).await;
    let status = response.status();
    if !is_api || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let Ok(text) = axum::body::to_bytes(body, LONGEST).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let title = status.canonical_reason().unwrap_or("Error");
    let text = String::from_utf8_lossy(&text);
    let detail = match text.trim_end() {
        "" => title.to_owned(),
        text => text.to_owned(),
    };
    let problem = Problem { title, status: status.as_u16(), detail };
    // Text and a number can be written.
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(KIND));
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from(body))
}
