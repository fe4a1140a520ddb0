//! Reads TOML files that people write. An error names file, line and key.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::files;

/// Larger files are refused, in bytes: no person wrote them.
const MOST: u64 = 1 << 20;

/// Why a file is refused, in one line that begins with file, line and key: `lab/peers/mine.toml:12:
/// start.comand: unknown key, expected …`.
#[derive(Debug, thiserror::Error)]
#[error("{}:{line}: {}{message}", path.display(), Key(key))]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// Line number from 1.
    pub line: usize,
    /// The wrong key, after its tables: `start.command`. Empty if the file is not TOML.
    pub key: String,
    /// What is wrong with it.
    pub message: String,
}

struct Key<'a>(&'a str);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}

/// Reads the text of a file that a person wrote.
///
/// # Errors
/// The file cannot be read, is larger than 1 MiB, or is not UTF-8.
pub fn text(path: &Path) -> anyhow::Result<String> {
    files::text(path, MOST)
}

/// Parses the content of the file at `path`. `path` is only for errors.
///
/// # Errors
/// `text` is not TOML, has an unknown key or a bad value.
pub fn parse<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, Error> {
    toml::from_str(text).map_err(|source| refused(text, path, &source))
}

fn refused(text: &str, path: &Path, source: &toml::de::Error) -> Error {
    let at = source.span().unwrap_or(0..0);
    let key = match DeTable::parse(text) {
        // A key that is missing in the file as a whole has no place.
        Ok(_) if at.is_empty() => None,
        Ok(table) => key_at(table.get_ref(), &at),
        // This is not TOML. For a key that is given twice, the parser still gives its place.
        Err(_) => text.get(at.clone()).filter(|found| is_bare_key(found)).map(str::to_owned),
    };
    Error {
        path: path.to_owned(),
        line: line_of(text, at.start),
        key: key.unwrap_or_default(),
        message: message(source.message()),
    }
}

/// Rewords a message of the parser: it speaks of fields and variants, people write keys and words.
fn message(from_reader: &str) -> String {
    let message = from_reader.trim_end().replace('\n', ", ");
    for (theirs, ours) in
        [("unknown field `", "unknown key"), ("unknown variant `", "unknown word")]
    {
        let Some(rest) = message.strip_prefix(theirs) else { continue };
        let (word, rest) = rest.split_once('`').unwrap_or((rest, ""));
        // The key stands before the message already. A word that is a value does not.
        let word = if ours == "unknown key" { String::new() } else { format!(" `{word}`") };
        return format!("{ours}{word}{rest}");
    }
    match message.strip_prefix("missing field ") {
        Some(rest) => format!("missing key {rest}"),
        None => message,
    }
}

fn is_bare_key(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|b| *b == b'\n').count()
}

/// Whether `span` contains `at`.
fn holds(span: &Range<usize>, at: &Range<usize>) -> bool {
    span.start <= at.start && at.end <= span.end
}

/// Finds the dotted path of the key or value at `at`.
fn key_at(table: &DeTable<'_>, at: &Range<usize>) -> Option<String> {
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        if holds(&key.span(), at) {
            return Some(name.to_owned());
        }
        if let Some(rest) = within(value, at) {
            return Some(format!("{name}{rest}"));
        }
    }
    None
}

/// Finds the rest of the path from a value to `at`; `None` if `at` is not in the value.
fn within(value: &Spanned<DeValue<'_>>, at: &Range<usize>) -> Option<String> {
    // The span of a table is its header only; its content stands after it.
    let inner = match value.get_ref() {
        DeValue::Table(table) => key_at(table, at).map(|rest| format!(".{rest}")),
        DeValue::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| Some(format!("[{index}]{}", within(item, at)?))),
        _ => None,
    };
    inner.or_else(|| holds(&value.span(), at).then(String::new))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(rename = "size")]
        _size: u32,
        #[serde(default, rename = "item")]
        _items: Vec<Item>,
        #[serde(default, rename = "words")]
        _words: BTreeMap<String, Vec<Word>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Item {
        #[serde(rename = "name")]
        _name: String,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Word {
        One,
        Two,
    }

    #[track_caller]
    fn refused(text: &str) -> String {
        parse::<Outer>(text, Path::new("x.toml")).expect_err("refused").to_string()
    }

    #[test]
    fn errors_name_file_line_and_key() {
        for (text, expected) in [
            (
                "size = 1\nsise = 2\n",
                "x.toml:2: sise: unknown key, expected one of `size`, `item`, `words`",
            ),
            ("\nsize = \"x\"\n", "x.toml:2: size: invalid type: string \"x\", expected u32"),
            (
                "size = 1\n[[item]]\nname = \"a\"\n[[item]]\nnam = \"b\"\n",
                "x.toml:5: item[1].nam: unknown key, expected `name`",
            ),
            ("size = 1\n[[item]]\n", "x.toml:2: item[0]: missing key `name`"),
            ("[words]\n", "x.toml:1: missing key `size`"),
            (
                "size = 1\n[words]\na = [\n  \"one\",\n  \"tow\",\n]\n",
                "x.toml:5: words.a[1]: unknown word `tow`, expected `one` or `two`",
            ),
            ("size = 1\nsize = 2\n", "x.toml:2: size: duplicate key"),
        ] {
            assert_eq!(refused(text), expected, "{text}");
        }
        assert!(refused("size = = 1").starts_with("x.toml:1: "));
    }

    #[test]
    fn endless_and_absent_files_are_refused_by_name() {
        let error = text(Path::new("/dev/zero")).expect_err("too large").to_string();
        assert!(error.contains("/dev/zero"), "{error}");
        let error = text(Path::new("/nonexistent.toml")).expect_err("absent").to_string();
        assert!(error.contains("/nonexistent.toml"), "{error}");
    }
}
