//! Messages between an agent and the crew of a run. A message is a head, a line of JSON, and a body.

use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of these messages, and of the jobs and results that they carry. Agents of another version
/// are not asked for anything.
pub const PROTOCOL: u32 = 3;
/// Where agents are looked for. Each answers with a [`Hello`].
pub const FIND: &str = "streamgauge.agents";
/// How long one side may be silent before the other gives up.
pub const SILENCE: Duration = Duration::from_secs(10);
/// Most bytes of a body.
pub const PIECE: usize = 32 << 10;
/// How many pieces of a child's output may wait to be taken.
pub const WINDOW: usize = 32;
/// Most children of a run at one agent.
pub const CHILDREN: usize = 250;
/// Longest head.
const LONGEST_HEAD: usize = 16 << 10;
/// Longest name of an agent.
const LONGEST_NAME: usize = 64;
/// Longest subject that an agent sends to.
const LONGEST_RUN: usize = 256;

/// The subject of an agent.
pub fn subject(id: &str) -> String {
    format!("streamgauge.agent.{id}")
}

/// Whether a text can be an agent's name: 1 to 64 letters, digits, `-`, `_` and `.`.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(plain)
}

/// Whether a text can be an agent's id, which is one token of a subject.
pub fn is_id(text: &str) -> bool {
    is_name(text) && !text.contains('.')
}

/// Whether a text can be a run: the subject of an inbox, so that nobody makes an agent send to
/// others' subjects.
pub fn is_run(text: &str) -> bool {
    text.strip_prefix("_INBOX.")
        .is_some_and(|rest| text.len() <= LONGEST_RUN && rest.split('.').all(is_id))
}

/// What an agent says of itself. A newer protocol may add fields, but does not change these two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// [`PROTOCOL`] of the agent.
    pub protocol: u32,
    /// Its name.
    pub name: String,
}

/// What an agent of this protocol says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Its name, for people.
    pub name: String,
    /// What its subject ends with. No other agent has it.
    pub id: String,
    /// Version of the program.
    pub version: String,
    /// Whether it serves a run.
    pub busy: bool,
    /// Number of its processors.
    pub cores: u32,
    /// How many files a process may open there.
    pub files: u64,
}

/// A request to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Asks for the clocks. A crew says its run, which tells the agent that the crew is there.
    Clocks {
        /// The run, if there is one.
        run: Option<String>,
    },
    /// Reserves the agent.
    Reserve {
        /// The run: the subject to which the agent sends what its children say.
        run: String,
    },
    /// Starts children.
    Start {
        /// The run.
        run: String,
        /// What they do.
        role: String,
        /// Their numbers, which no earlier children of the run had.
        children: Vec<u32>,
    },
    /// Gives a child input. The body has it.
    Input {
        /// The run.
        run: String,
        /// The child.
        child: u32,
    },
    /// Pieces of a child's output have been taken. The crew says so again and again, for the message
    /// may be lost.
    Taken {
        /// The run.
        run: String,
        /// The child.
        child: u32,
        /// How many since the start of the child.
        pieces: u64,
    },
    /// Kills a child. There is no answer.
    Kill {
        /// The run.
        run: String,
        /// The child.
        child: u32,
    },
    /// Ends the run.
    Release {
        /// The run.
        run: String,
    },
}

/// The answer to an [`Ask`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The clocks of the agent's machine.
    Clocks {
        /// The monotonic clock.
        monotonic: Duration,
        /// Time since 1970.
        unix: Duration,
    },
    /// It is done.
    Done,
    /// It is not done, and why.
    Refused(String),
}

/// What an agent tells of a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The child.
    pub child: u32,
    /// Counts the messages about this child, from 0.
    pub number: u64,
    /// How the child ended, in the last message about it.
    pub ended: Option<Result<(), String>>,
}

/// A message that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Garbage {
    /// It has no head.
    #[error("no head within the first {LONGEST_HEAD} bytes")]
    Headless,
    /// Its head is not one of these messages.
    #[error("the head is not known")]
    Unknown,
    /// Its body is too long.
    #[error("a body of more than {PIECE} bytes")]
    TooLong,
}

/// Writes a message.
pub fn write(head: &impl Serialize, body: &[u8]) -> Bytes {
    let mut message = serde_json::to_vec(head).expect("texts and numbers only");
    message.push(b'\n');
    message.extend_from_slice(body);
    message.into()
}

/// Reads a message.
///
/// # Errors
/// [`Garbage`].
pub fn read<T: DeserializeOwned>(message: &Bytes) -> Result<(T, Bytes), Garbage> {
    let end = message.iter().take(LONGEST_HEAD).position(|byte| *byte == b'\n');
    let end = end.ok_or(Garbage::Headless)?;
    let head = serde_json::from_slice(&message[..end]).map_err(|_| Garbage::Unknown)?;
    let body = message.slice(end + 1..);
    if body.len() > PIECE { Err(Garbage::TooLong) } else { Ok((head, body)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_and_runs_are_plain() {
        assert!(["edge-1.example.org", "a", "A_b"].into_iter().all(is_name));
        assert!(!["", "a b", "a*", "ä", &"x".repeat(65)].into_iter().any(is_name));
        assert!(is_id("kfj3-2") && !is_id("a.b") && !is_id(">"));
        assert!(is_run("_INBOX.aB3.x") && is_run("_INBOX.q"));
        for bad in ["", "_INBOX.", "_INBOX.a..b", "_INBOX.*", "$SYS.x", "streamgauge.agents"] {
            assert!(!is_run(bad), "{bad}");
        }
    }

    #[test]
    fn a_greeting_of_another_protocol_is_read() {
        let other = br#"{"protocol":7,"name":"b","moon":[1]}"#;
        let message = Bytes::from([&other[..], b"\n"].concat());
        let (greeting, _): (Greeting, _) = read(&message).unwrap();
        assert_eq!(greeting, Greeting { protocol: 7, name: "b".to_owned() });
        assert_eq!(read::<Hello>(&message).unwrap_err(), Garbage::Unknown);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(run in ".{0,40}", child: u32, body in prop::collection::vec(any::<u8>(), 0..200)) {
            for ask in [
                Ask::Input { run: run.clone(), child },
                Ask::Start { run: run.clone(), role: "viewers".to_owned(), children: vec![child, 7] },
                Ask::Clocks { run: Some(run) },
            ] {
                let (again, rest) = read::<Ask>(&write(&ask, &body)).unwrap();
                prop_assert_eq!((again, &rest[..]), (ask, &body[..]));
            }
        }

        #[test]
        fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let message = Bytes::from(bytes);
            prop_assert!(read::<Ask>(&message).is_err());
            prop_assert!(read::<Report>(&message).is_err());
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let ask = Ask::Input { run: String::new(), child: 0 };
        assert_eq!(read::<Ask>(&write(&ask, &vec![0; PIECE + 1])).unwrap_err(), Garbage::TooLong);
        let long = Ask::Release { run: "x".repeat(LONGEST_HEAD) };
        assert_eq!(read::<Ask>(&write(&long, b"")).unwrap_err(), Garbage::Headless);
    }
}
