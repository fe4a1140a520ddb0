//! HTTP/1.1 as far as it is no architecture's subject: what a head asks for ([`Request`]), which
//! file that is ([`Root`]), and what is to be answered ([`Answer`]).

mod answer;
mod range;
mod request;
mod root;

pub(crate) use answer::{Answer, Body};
pub(crate) use request::{MAX_HEAD, Parsed, Refusal, Request};
pub(crate) use root::Root;
