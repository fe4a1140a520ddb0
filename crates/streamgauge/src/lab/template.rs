//! Text with variables: `http://{host}:{http}/{path}`.
//!
//! A variable is a word in braces, `{rate}`, or several words with points between, `{media.film}`.
//! Any other brace stands for itself, so that configuration files of other programs need no
//! escapes. `{{` is a brace where a variable would begin.

use std::fmt;

/// Text with variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    source: String,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Variable(String),
}

/// A template cannot be filled in, because a variable has no value here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{source_text}`: {{{variable}}} is not known here")]
pub struct Unknown {
    source_text: String,
    variable: String,
}

impl Template {
    /// Parses a text. Every text is a template.
    pub fn new(source: &str) -> Self {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = source;
        while let Some(at) = rest.find('{') {
            text.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('{') {
                text.push('{');
                rest = after;
            } else if let Some((name, after)) =
                rest.split_once('}').filter(|(name, _)| is_name(name))
            {
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(Piece::Variable(name.to_owned()));
                rest = after;
            } else {
                text.push('{');
            }
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        Self { source: source.to_owned(), pieces }
    }

    /// Appends another text to this one.
    pub fn append(&mut self, more: Self) {
        self.source.push_str(&more.source);
        self.pieces.extend(more.pieces);
    }

    /// Fills in the values that `value` gives for variables by name.
    ///
    /// # Errors
    /// `value` gives none for a variable.
    pub fn fill(&self, value: impl Fn(&str) -> Option<String>) -> Result<String, Unknown> {
        let mut filled = String::with_capacity(self.source.len());
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Variable(name) => filled.push_str(&value(name).ok_or_else(|| Unknown {
                    source_text: self.source.clone(),
                    variable: name.clone(),
                })?),
            }
        }
        Ok(filled)
    }

    /// The variables in the template, in order.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }
}

/// Whether a template can have a variable with this name: words of ASCII letters, digits, `_` and
/// `-` with points between, beginning with a letter.
pub fn is_name(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(letter);
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.split('.').all(is_word)
}

/// The template as it was written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn filled(text: &str) -> String {
        let value = |name: &str| match name {
            "host" => Some("127.0.0.1".to_owned()),
            "http" => Some("8080".to_owned()),
            "media.film" => Some("film.mp4".to_owned()),
            _ => None,
        };
        Template::new(text).fill(value).expect("values")
    }

    #[test]
    fn variables_are_filled_in_and_other_braces_stay() {
        assert_eq!(filled("http://{host}:{http}/"), "http://127.0.0.1:8080/");
        assert_eq!(filled("-i {media.film}"), "-i film.mp4");
        assert_eq!(filled("http {\n listen {http}; }"), "http {\n listen 8080; }");
        assert_eq!(filled("{{host} {{{host}"), "{host} {127.0.0.1");
        assert_eq!(filled("a{2} {} {.x} {x.} {\"x\": 1} {"), "a{2} {} {.x} {x.} {\"x\": 1} {");
    }

    #[test]
    fn a_variable_without_a_value_is_named() {
        let error = Template::new("x{name}").fill(|_| None).expect_err("no value");
        assert_eq!(error.to_string(), "`x{name}`: {name} is not known here");
    }

    proptest! {
        #[test]
        fn text_with_its_braces_doubled_is_itself(text in ".*") {
            let read = Template::new(&text.replace('{', "{{"));
            prop_assert_eq!(read.variables().count(), 0);
            prop_assert_eq!(read.fill(|_| None).expect("no variable"), text);
        }
    }
}
