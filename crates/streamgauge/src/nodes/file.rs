//! Compares a file, range by range.

use std::rc::Rc;
use std::time::Duration;

use super::fetch::{Answer, Failure};
use super::node::{Node, object, object_name};

/// Length of a range.
const RANGE: u64 = 4 << 20;

/// Asks all nodes for one range after the other, until the file ends or something differs. `differ`
/// counts the differences so far.
pub(super) async fn compare(nodes: &[Rc<Node>], differ: impl Fn() -> u64) {
    let mut start = 0;
    loop {
        let range = (start, start + RANGE - 1);
        let mut tasks = Vec::new();
        for node in nodes.iter().map(Rc::clone) {
            tasks.push(tokio::task::spawn_local(async move {
                node.client.get(&node.url, Some(range), Duration::ZERO).await
            }));
        }
        let mut answers = Vec::new();
        for (node, task) in nodes.iter().zip(tasks) {
            match task.await {
                Ok(answer) => answers.push((node, answer)),
                Err(error) => node.fails("a task", &error),
            }
        }
        let (more, before) = (goes_on(&answers, range.1 + 1), differ());
        record(answers, range);
        if !more || differ() > before {
            return;
        }
        start += RANGE;
    }
}

/// Whether there is more of the file after `end`, as far as any node says.
fn goes_on(answers: &[(&Rc<Node>, Result<Answer, Failure>)], end: u64) -> bool {
    let good = || answers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
    match good().filter_map(|answer| answer.whole).max() {
        Some(whole) => whole > end,
        None => good().any(|answer| answer.body.len() as u64 == RANGE),
    }
}

fn record(answers: Vec<(&Rc<Node>, Result<Answer, Failure>)>, range: (u64, u64)) {
    let (good, bad): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(_, answer)| answer.is_ok());
    let name = |node: &Node| object_name(&node.name_of(&node.url), Some(range));
    for (node, answer) in good {
        let Ok(answer) = answer else { continue };
        node.record_range(&name(node), range.0, object(answer));
    }
    for (node, answer) in bad {
        let Err(failure) = answer else { continue };
        node.fails(&name(node), &failure);
        node.absent(&name(node), &failure);
    }
}
