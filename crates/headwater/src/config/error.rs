//! Why a configuration is refused, and which line of the file is the reason.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::validate::Found;

/// Why there is no configuration. The text is one line and begins with file, line and key, as in
/// `headwater.toml:12: http.max_head: unknown key`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file or the command line gives a value that cannot be used.
    #[error("{}{}{message}", Position(place.as_ref()), Key(key))]
    Refused {
        /// File and line (from 1). `None` if the value is from the command line.
        place: Option<(PathBuf, usize)>,
        /// The option with its table: `http.listen`. Empty if the file is not TOML.
        key: String,
        /// The reason.
        message: String,
    },
    /// The configuration cannot be written as TOML.
    #[error("the configuration cannot be written as TOML: {message}")]
    Unwritable {
        /// Why.
        message: String,
    },
}

struct Position<'a>(Option<&'a (PathBuf, usize)>);

impl fmt::Display for Position<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |(path, line)| write!(f, "{}:{line}: ", path.display()))
    }
}

struct Key<'a>(&'a str);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}

impl From<Found> for Error {
    fn from(found: Found) -> Self {
        let key = found.keys.first().copied().unwrap_or_default().to_owned();
        Self::Refused { place: None, key, message: found.message }
    }
}

/// Texts that are secrets, or addresses that may have some. No error has their values.
const SECRETS: [&str; 5] = [
    "access.rule.password",
    "access.rule.key",
    "access.webhook.url",
    "events.webhook",
    "traces.endpoint",
];

/// Makes an error of what the TOML reader refused, with the key at fault.
pub(super) fn refused(text: &str, path: &Path, source: &toml::de::Error) -> Error {
    let at = source.span().unwrap_or(0..0);
    let key = match DeTable::parse(text) {
        Ok(table) => key_at(table.get_ref(), &at),
        // The text is not TOML. If a key is given twice, the reader tells where it is. Other errors are at a value, which
        // may be a secret.
        Err(_) => (text.get(at.clone()))
            .filter(|found| source.message().starts_with("duplicate key") && is_bare_key(found))
            .map(str::to_owned),
    };
    let key = key.unwrap_or_default();
    // The reader's message of a wrong type has the value.
    let message = if key.starts_with("cluster.nats") {
        "must be a list of addresses such as [\"nats://192.0.2.1:4222\"]".to_owned()
    } else if SECRETS.contains(&key.as_str()) && source.message().starts_with("invalid type") {
        "must be a text in quotes".to_owned()
    } else {
        message(source.message())
    };
    Error::Refused { place: Some((path.to_owned(), line_of(text, at.start))), key, message }
}

/// Makes an error of an option that was read but cannot be used. Its line is that of the first key
/// in `found.keys` that the file gives.
pub(super) fn located(text: &str, path: &Path, found: Found) -> Error {
    let place = DeTable::parse(text).ok().and_then(|table| {
        let at = found.keys.iter().find_map(|key| value_of(table.get_ref(), key))?;
        Some((path.to_owned(), line_of(text, at.start)))
    });
    match Error::from(found) {
        Error::Refused { key, message, .. } => Error::Refused { place, key, message },
        other => other,
    }
}

/// Translates the reader's message. The reader speaks of fields of a data structure, but a user
/// sees keys.
fn message(from_reader: &str) -> String {
    let message = from_reader.trim_end().replace('\n', ", ");
    if let Some(rest) = message.strip_prefix("unknown field ") {
        return match rest.split_once(", ") {
            Some((_, expected)) => format!("unknown key, {expected}"),
            None => "unknown key".to_owned(),
        };
    }
    if message == "invalid socket address syntax" {
        return "is not an address and port such as 0.0.0.0:8080 or [::]:8080".to_owned();
    }
    message
}

fn is_bare_key(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|b| *b == b'\n').count()
}

/// The dotted path of the key or value at `at`.
fn key_at(table: &DeTable<'_>, at: &Range<usize>) -> Option<String> {
    let holds = |span: Range<usize>| span.start <= at.start && at.end <= span.end;
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        if holds(key.span()) && !at.is_empty() {
            return Some(name.to_owned());
        }
        // A table's span covers only its header. Its content stands after that.
        let within = |value: &DeValue<'_>| match value {
            DeValue::Table(inner) => key_at(inner, at),
            _ => None,
        };
        let rest = match value.get_ref() {
            DeValue::Array(items) => items.iter().find_map(|item| within(item.get_ref())),
            value => within(value),
        };
        if let Some(rest) = rest {
            return Some(format!("{name}.{rest}"));
        }
        if holds(value.span()) {
            return Some(name.to_owned());
        }
    }
    None
}

/// The place of a dotted key's value.
fn value_of(table: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    let value = |name: &str| -> Option<&Spanned<DeValue<'_>>> {
        table.iter().find(|(key, _)| key.get_ref().as_ref() == name).map(|(_, value)| value)
    };
    let Some((first, rest)) = key.split_once('.') else {
        return value(key).map(Spanned::span);
    };
    match value(first)?.get_ref() {
        DeValue::Table(inner) => value_of(inner, rest),
        _ => None,
    }
}
