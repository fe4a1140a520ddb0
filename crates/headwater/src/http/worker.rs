//! What the connections of one event loop share.

use std::rc::Rc;
use std::sync::Arc;

use axum::Router;
use hyper_util::service::TowerToHyperService;
use tokio::runtime;

use super::limits::{Counters, Gate, OwnTally, Tally};
use super::tasks::{Task, Tasks};
use super::{Config, Drain, Handler, Method, Request, Response};

/// What the driver answers for every media path.
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// What a worker gives its handler.
#[derive(Clone)]
pub struct Worker {
    /// 0 up to `Config::workers`, not included.
    pub index: usize,
    /// When this worker begins to drain.
    pub drain: Drain,
    pub(super) tasks: Rc<Tasks>,
}

impl Worker {
    /// Without a server.
    #[cfg(test)]
    pub(crate) fn alone() -> Self {
        Self { index: 0, drain: Drain::default(), tasks: Rc::default() }
    }

    /// To be held by what draining has to wait for, besides the server's own connections.
    pub(crate) fn task(&self) -> Task {
        Tasks::one_more(&self.tasks)
    }
}

/// What the connections of a worker share.
pub(super) struct Shared<H> {
    pub(super) index: usize,
    pub(super) handler: H,
    pub(super) config: Arc<Config>,
    /// The header lines every media response gets.
    pub(super) cors: Arc<[u8]>,
    pub(super) gate: Arc<Gate>,
    pub(super) counters: Arc<Counters>,
    pub(super) drain: Drain,
    pub(super) router: TowerToHyperService<Router>,
    /// Where the router runs.
    pub(super) control: runtime::Handle,
    pub(super) tasks: Rc<Tasks>,
}

impl<H> Shared<H> {
    pub(super) fn tally(&self) -> &Tally {
        self.counters.worker(self.index)
    }

    /// The same, for what cannot borrow it.
    pub(super) fn own_tally(&self) -> OwnTally {
        OwnTally::new(&self.counters, self.index)
    }

    /// To be held by every task of the worker that draining has to wait for.
    pub(super) fn task(&self) -> Task {
        Tasks::one_more(&self.tasks)
    }
}

impl<H: Handler> Shared<H> {
    pub(super) fn accepts(&self, request: &Request) -> bool {
        request.path() == "*" || self.handler.accepts(request)
    }

    /// Answers a request of the media plane.
    pub(super) async fn answer(&self, request: Request) -> Response {
        if self.drain.has_begun() {
            let response = Response::text(503, "the server is shutting down");
            return response.header("Retry-After", 5).header("Cache-Control", "no-store");
        }
        match request.method() {
            Method::Get | Method::Head => self.handler.handle(request).await,
            Method::Options => self.options(&request),
            _ => Response::text(405, "only GET and HEAD").header("Allow", ALLOW),
        }
    }

    /// Also the CORS preflight (Fetch 3.2.2), for which the driver adds `Access-Control-Allow-Origin`
    /// as everywhere.
    fn options(&self, request: &Request) -> Response {
        let mut response = Response::new(204).header("Allow", ALLOW);
        if !self.cors.is_empty() && request.header("access-control-request-method").is_some() {
            response = response
                .header("Access-Control-Allow-Methods", ALLOW)
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
