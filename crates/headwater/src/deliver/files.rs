//! Files below the VOD root, by range.

use std::sync::Arc;

use super::not_found;
use crate::Origin;
use crate::http::{Request, Response};

pub(super) async fn respond(request: &Request, origin: &Arc<Origin>) -> Response {
    let _ = (request, origin);
    not_found()
}
