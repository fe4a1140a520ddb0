//! The run that an agent serves.

use std::collections::{HashMap, HashSet};

use async_nats::{Client, Subject};
use bytes::Bytes;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::child::{self, Child};
use crate::agents::wire::CHILDREN;
use crate::shard::ROLES;

/// A run, and the children that were started for it. Dropping it kills them.
pub(super) struct Run {
    /// The subject to which all goes.
    pub(super) name: String,
    /// When its crew was heard last.
    pub(super) heard: Instant,
    children: HashMap<u32, (Child, AbortHandle)>,
}

impl Run {
    pub(super) fn new(name: String) -> Self {
        Self { name, heard: Instant::now(), children: HashMap::new() }
    }

    /// Starts children.
    ///
    /// # Errors
    /// The role is unknown, or there are too many children.
    pub(super) fn start(
        &mut self,
        client: &Client,
        role: &str,
        numbers: &[u32],
    ) -> Result<(), String> {
        let role = *ROLES.iter().find(|known| **known == role).ok_or("that role is not known")?;
        // Those of an earlier part of the run have ended.
        self.children.retain(|_, (_, task)| !task.is_finished());
        if self.children.len() + numbers.len() > CHILDREN {
            return Err(format!("more than {CHILDREN} children"));
        }
        let mut all: HashSet<u32> = self.children.keys().copied().collect();
        if let Some(number) = numbers.iter().find(|number| !all.insert(**number)) {
            return Err(format!("there is a child {number}"));
        }
        for number in numbers {
            let (child, work) = child::start(client.clone(), self.name.clone(), *number, role);
            self.children.insert(*number, (child, tokio::spawn(work).abort_handle()));
        }
        Ok(())
    }

    /// Gives a child input. Its task answers to `reply`.
    ///
    /// # Errors
    /// There is no such child, or it has more input than it takes.
    pub(super) fn input(
        &mut self,
        child: u32,
        input: Bytes,
        reply: Option<Subject>,
    ) -> Result<(), String> {
        let (child, _) = self.children.get(&child).ok_or("there is no such child")?;
        child.input(input, reply)
    }

    /// Notes how many pieces of a child's output were taken so far.
    ///
    /// # Errors
    /// There is no such child, or it did not send as many.
    pub(super) fn taken(&mut self, child: u32, pieces: u64) -> Result<(), String> {
        let (child, _) = self.children.get_mut(&child).ok_or("there is no such child")?;
        child.taken(pieces)
    }

    pub(super) fn kill(&mut self, child: u32) {
        if let Some((_, task)) = self.children.remove(&child) {
            task.abort();
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.children.values().for_each(|(_, task)| task.abort());
    }
}
