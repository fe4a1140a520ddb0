//! Asks for the lengths of targets before a run.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::task::LocalSet;

use super::blame::describe;
use super::client::{Client, request};
use super::head_of;
use crate::load::before::{Before, Ended};
use crate::load::target::{ByteRange, Target};
use crate::load::url::Origin;
use crate::load::{Error, Plan};

/// Finds the length of each target that has no range of its own.
pub(in crate::load) fn find_lengths(
    plan: &mut Plan,
    addresses: &HashMap<Origin, SocketAddr>,
    before: &Before<'_>,
) -> Result<(), Error> {
    let client = Client::new(plan, None)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut known: HashMap<String, u64> = HashMap::new();
    for place in 0..plan.targets.len() {
        let target = &plan.targets[place];
        if target.range.is_some() {
            continue;
        }
        let url = target.url.to_string();
        let length = match known.get(&url) {
            Some(length) => *length,
            None => {
                let found = find_length(&client, plan, target, addresses);
                let wrong = |reason| Error::Length { url: url.clone(), reason };
                match LocalSet::new().block_on(&runtime, before.future(found)) {
                    Ok(found) => found.map_err(wrong)?,
                    Err(Ended::Stopped) => return Err(Error::Interrupted),
                    Err(ended) => return Err(wrong(ended.to_string())),
                }
            }
        };
        known.insert(url, length);
        plan.targets[place].length = Some(length);
    }
    Ok(())
}

async fn find_length(
    client: &Client,
    plan: &Plan,
    target: &Target,
    addresses: &HashMap<Origin, SocketAddr>,
) -> Result<u64, String> {
    let origin = &target.url.origin;
    let address = addresses.get(origin).copied().ok_or("no address")?;
    let session = client.connect(origin, address, &Rc::default()).await;
    let mut session = session.map_err(|trouble| trouble.detail)?;
    let get = Target { method: "GET".to_owned(), ..target.clone() };
    let first = Some(ByteRange { first: 0, last: 0 });
    let request = request(plan, &get, first).map_err(|trouble| trouble.detail)?;
    let response = session.send(request).await.map_err(|error| describe(&error, false).detail)?;
    let head = head_of(&response);
    match head.status {
        206 => head.whole.ok_or_else(|| "Content-Range does not say".to_owned()),
        200 => head.content_length.ok_or_else(|| "no Content-Length".to_owned()),
        status => Err(format!("status {status}")),
    }
}
