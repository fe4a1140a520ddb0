//! Text with places to be filled in: `http://{host}:{http}/{path}`.
//!
//! A variable is a word in braces. A brace that does not begin one stands for itself, so that
//! configuration files of other programs need no marks; `{{` is a brace where one would.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};

/// Text with variables; that they are known was checked when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    source: String,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Variable(Variable),
}

/// What a template can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variable {
    /// The address that the server listens on.
    Host,
    /// A free port, for HTTP.
    Http,
    /// Another, for RTMP.
    Rtmp,
    /// The folder of media.
    Root,
    /// A fresh folder of the server's own; its working directory.
    Work,
    /// How many processors the server may use.
    Cpus,
    /// The name of the user that it runs as.
    User,
    /// This repository.
    Repository,
    /// The folder of this repository's own programs.
    Programs,
    /// The folder that peers are installed into.
    Peers,
    /// What the load asks for: a file's path below the folder of media.
    Path,
    /// The same: a stream's name.
    Name,
}

impl Variable {
    const ALL: [(&str, Self); 12] = [
        ("host", Self::Host),
        ("http", Self::Http),
        ("rtmp", Self::Rtmp),
        ("root", Self::Root),
        ("work", Self::Work),
        ("cpus", Self::Cpus),
        ("user", Self::User),
        ("repository", Self::Repository),
        ("programs", Self::Programs),
        ("peers", Self::Peers),
        ("path", Self::Path),
        ("name", Self::Name),
    ];

    fn named(word: &str) -> Result<Self, Error> {
        let known = Self::ALL.iter().find(|(name, _)| *name == word);
        known.map(|(_, variable)| *variable).ok_or_else(|| Error::Unknown(word.to_owned()))
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, variable)| variable == self).map(|(name, _)| *name);
        write!(f, "{{{}}}", name.unwrap_or_default())
    }
}

/// Why a template cannot be read, or filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such variable.
    #[error("unknown variable {{{0}}}, expected one of {known} (and {{{{ for a brace)", known = Known)]
    Unknown(String),
    /// The variable has no value at this place.
    #[error("`{0}`: {1} is not known here")]
    Absent(String, Variable),
}

struct Known;

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> =
            Variable::ALL.iter().map(|(name, _)| format!("{{{name}}}")).collect();
        f.write_str(&names.join(", "))
    }
}

impl TryFrom<String> for Template {
    type Error = Error;

    fn try_from(source: String) -> Result<Self, Error> {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = source.as_str();
        while let Some(at) = rest.find('{') {
            text.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('{') {
                text.push('{');
                rest = after;
            } else if let Some((word, after)) = word(rest) {
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(Piece::Variable(Variable::named(word)?));
                rest = after;
            } else {
                text.push('{');
            }
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        Ok(Self { source, pieces })
    }
}

/// By a visitor, so that what is wrong is found where it stands: `try_from` would have it at whatever
/// the text is in.
impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Template;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Template, E> {
                Template::try_from(text.to_owned()).map_err(E::custom)
            }
        }
        from.deserialize_str(Text)
    }
}

/// The word that ends with a brace, and what comes after it.
fn word(text: &str) -> Option<(&str, &str)> {
    let (word, after) = text.split_once('}')?;
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let is_word = word.bytes().all(letter) && word.starts_with(|c: char| c.is_ascii_alphabetic());
    is_word.then_some((word, after))
}

impl Template {
    /// With the values that `value` gives to variables.
    ///
    /// # Errors
    /// It has none for one of them.
    pub fn fill(&self, value: impl Fn(Variable) -> Option<String>) -> Result<String, Error> {
        let mut filled = String::with_capacity(self.source.len());
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Variable(variable) => {
                    let absent = || Error::Absent(self.source.clone(), *variable);
                    filled.push_str(&value(*variable).ok_or_else(absent)?);
                }
            }
        }
        Ok(filled)
    }

    /// Whether it asks for `variable`.
    pub fn asks_for(&self, variable: Variable) -> bool {
        self.pieces.contains(&Piece::Variable(variable))
    }
}

/// As it was written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn template(text: &str) -> Result<Template, Error> {
        Template::try_from(text.to_owned())
    }

    #[track_caller]
    fn filled(text: &str) -> String {
        let value = |variable| match variable {
            Variable::Host => Some("127.0.0.1".to_owned()),
            Variable::Http => Some("8080".to_owned()),
            _ => None,
        };
        template(text).expect("known variables").fill(value).expect("values")
    }

    #[test]
    fn variables_are_filled_in_and_other_braces_stay() {
        assert_eq!(filled("http://{host}:{http}/"), "http://127.0.0.1:8080/");
        assert_eq!(filled("http {\n listen {http}; }"), "http {\n listen 8080; }");
        assert_eq!(filled("{{host} {{{host}"), "{host} {127.0.0.1");
        assert_eq!(filled("a{2} {} {\"x\": 1} {"), "a{2} {} {\"x\": 1} {");
    }

    #[test]
    fn an_unknown_variable_is_refused_with_those_there_are() {
        let error = template("{hots}").expect_err("unknown").to_string();
        assert!(error.starts_with("unknown variable {hots}, expected one of {host}, "), "{error}");
        assert!(error.ends_with("(and {{ for a brace)"), "{error}");
    }

    #[test]
    fn a_variable_without_a_value_is_named() {
        let error = template("x{name}").expect("known").fill(|_| None).expect_err("no value");
        assert_eq!(error.to_string(), "`x{name}`: {name} is not known here");
    }

    proptest! {
        #[test]
        fn text_with_its_braces_doubled_is_itself(text in ".*") {
            let read = template(&text.replace('{', "{{")).expect("no variable");
            prop_assert_eq!(read.fill(|_| None).expect("no variable"), text);
        }
    }
}
