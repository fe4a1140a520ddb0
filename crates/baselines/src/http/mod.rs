//! The parts of HTTP/1.1 that do not depend on the architecture: parsing a head ([`Request`]),
//! finding its file ([`Root`]), and making the answer ([`Answer`]).

mod answer;
mod range;
mod request;
mod root;

pub(crate) use answer::{Answer, Body};
pub(crate) use request::{MAX_HEAD, Parsed, Refusal, Request};
pub(crate) use root::Root;
