//! Files in an object store. The store is moto, a server that speaks as Amazon S3 does. A proxy
//! before it counts requests, and makes the store slow or lets it go away.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod away;
mod cached;
mod foreign;
mod proxy;
mod rounds;
mod same;
mod support;
mod versions;
