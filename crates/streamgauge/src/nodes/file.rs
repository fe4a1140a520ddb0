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
        // Where one node sends ranges and another does not, both are compared as what they are.
        let goes_on = |(_, answer): &(&Rc<Node>, Result<Answer, Failure>)| {
            let Ok(answer) = answer else { return false };
            answer.status == 206 && answer.whole.is_none_or(|whole| whole > range.1 + 1)
        };
        let (more, before) = (answers.iter().any(goes_on), differ());
        record(answers, range);
        if !more || differ() > before {
            return;
        }
        start += RANGE;
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
