//! Data that the connections of one event loop share.

use std::sync::Arc;

use axum::Router;
use hyper_util::service::TowerToHyperService;
use tokio::runtime;

use crate::counters::{Counters, OwnTally, Tally};
use crate::net::{Gate, Task, Worker};
use crate::{Config, Handler, Method, Request, Response};

/// Methods that the driver allows for every media path, and for those that take a POST.
const ALLOW: &str = "GET, HEAD, OPTIONS";
const ALLOW_WITH_POST: &str = "GET, HEAD, OPTIONS, POST";

/// Data that the connections of a worker share.
pub(crate) struct Shared<H> {
    pub(crate) worker: Worker,
    pub(crate) handler: H,
    pub(crate) config: Arc<Config>,
    /// Header lines of every media response.
    pub(crate) cors: Arc<[u8]>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) router: TowerToHyperService<Router>,
    /// The runtime of the router.
    pub(crate) control: runtime::Handle,
}

impl<H> Shared<H> {
    pub(crate) fn tally(&self) -> &Tally {
        self.counters.worker(self.worker.index)
    }

    /// The worker's counters, for code that cannot borrow them.
    pub(crate) fn own_tally(&self) -> OwnTally {
        OwnTally::new(&self.counters, self.worker.index)
    }

    /// A guard for every task of the worker that draining must wait for.
    pub(crate) fn task(&self) -> Task {
        self.worker.task()
    }
}

impl<H: Handler> Shared<H> {
    pub(crate) fn accepts(&self, request: &Request) -> bool {
        request.path() == "*" || self.handler.accepts(request)
    }

    /// Answers a request of the media plane.
    pub(crate) async fn answer(&self, request: Request) -> Response {
        if self.worker.drain.has_begun() {
            let response = Response::text(503, "the server is shutting down");
            return response.header("Retry-After", 5).header("Cache-Control", "no-store");
        }
        match request.method() {
            Method::Get | Method::Head => self.handler.handle(request).await,
            Method::Options => self.options(&request),
            _ if self.takes_content(&request) => self.handler.handle(request).await,
            _ => {
                let allow = self.allow(&request);
                Response::text(405, "only GET and HEAD").header("Allow", allow)
            }
        }
    }

    /// Whether the handler gets the payload of this accepted request.
    pub(crate) fn takes_content(&self, request: &Request) -> bool {
        request.method() == Method::Post && self.handler.posts(request)
    }

    fn allow(&self, request: &Request) -> &'static str {
        if self.handler.posts(request) { ALLOW_WITH_POST } else { ALLOW }
    }

    /// Answers OPTIONS, including a CORS preflight (Fetch 3.2.2). The driver adds
    /// `Access-Control-Allow-Origin`, as to every answer.
    fn options(&self, request: &Request) -> Response {
        let allow = self.allow(request);
        let mut response = Response::new(204).header("Allow", allow);
        if !self.cors.is_empty() && request.header("access-control-request-method").is_some() {
            response = response
                .header("Access-Control-Allow-Methods", allow)
                .header("Access-Control-Max-Age", 86_400);
            if let Some(fields) = request.header("access-control-request-headers") {
                response = response
                    .header("Access-Control-Allow-Headers", fields)
                    .header("Vary", "Access-Control-Request-Headers");
            }
        }
        response
    }
}
