//! A reader of XML, as far as manifests need it: elements, attributes and text, in their order.
//! Namespaces are left out. Document types with their own declarations are refused.

use std::borrow::Cow;

use crate::Error;

/// Deepest nesting that is accepted.
const MAX_DEPTH: usize = 32;

/// What comes next in the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// `<name attributes>`. An empty element has its [`Event::End`] too.
    Start {
        name: &'a str,
        attributes: &'a str,
    },
    End,
    /// Text as it is written, never blank.
    Text(&'a str),
}

/// Reads a document.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
    open: Vec<&'a str>,
    /// Whether the element that has just begun has also ended: `<name/>`.
    empty: bool,
    any: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, open: Vec::new(), empty: false, any: false }
    }

    fn error(&self, what: &'static str) -> Error {
        Error::manifest(what).at(format!("byte {}", self.at))
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Passes over all text up to and including `end`.
    fn skip_past(&mut self, end: &str) -> Result<(), Error> {
        let found = self.rest().find(end).ok_or_else(|| self.error("XML cut off"))?;
        self.at += found + end.len();
        Ok(())
    }

    /// The next event; `None` at the document's end.
    pub(crate) fn next(&mut self) -> Result<Option<Event<'a>>, Error> {
        if std::mem::take(&mut self.empty) {
            self.open.pop();
            return Ok(Some(Event::End));
        }
        loop {
            let rest = self.rest();
            if rest.is_empty() {
                return match (self.open.is_empty(), self.any) {
                    (true, true) => Ok(None),
                    (true, false) => Err(self.error("no XML element")),
                    (false, _) => Err(self.error("XML cut off")),
                };
            }
            if !rest.starts_with('<') {
                let end = rest.find('<').unwrap_or(rest.len());
                self.at += end;
                let text = rest.get(..end).unwrap_or_default().trim();
                if !text.is_empty() && !self.open.is_empty() {
                    return Ok(Some(Event::Text(text)));
                }
            } else if rest.starts_with("<!--") {
                self.skip_past("-->")?;
            } else if rest.starts_with("<?") {
                self.skip_past("?>")?;
            } else if let Some(data) = rest.strip_prefix("<![CDATA[") {
                let end = data.find("]]>").ok_or_else(|| self.error("XML cut off"))?;
                self.at += "<![CDATA[".len() + end + "]]>".len();
                return Ok(Some(Event::Text(data.get(..end).unwrap_or_default())));
            } else if rest.starts_with("<!") {
                if rest.split('>').next().is_some_and(|declared| declared.contains('[')) {
                    return Err(self.error("XML with declarations of its own"));
                }
                self.skip_past(">")?;
            } else if let Some(end) = rest.strip_prefix("</") {
                let name = end.split('>').next().unwrap_or_default().trim();
                if self.open.pop() != Some(name) {
                    return Err(self.error("XML end tag without its start"));
                }
                self.skip_past(">")?;
                return Ok(Some(Event::End));
            } else {
                return self.start().map(Some);
            }
        }
    }

    fn start(&mut self) -> Result<Event<'a>, Error> {
        // The end of the tag; a `>` within quotes does not count.
        let rest = self.rest();
        let mut quote = None;
        let end = rest.char_indices().find(|&(_, c)| {
            match (quote, c) {
                (None, '"' | '\'') => quote = Some(c),
                (None, '>') => return true,
                (Some(open), c) if open == c => quote = None,
                _ => {}
            }
            false
        });
        let (end, _) = end.ok_or_else(|| self.error("XML tag cut off"))?;
        let inside = rest.get(1..end).unwrap_or_default();
        let (inside, empty) = match inside.strip_suffix('/') {
            Some(inside) => (inside, true),
            None => (inside, false),
        };
        let name_end = inside.find(|c: char| c.is_ascii_whitespace()).unwrap_or(inside.len());
        let (name, attributes) = inside.split_at_checked(name_end).unwrap_or((inside, ""));
        if name.is_empty() {
            return Err(self.error("XML tag without a name"));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(self.error("XML nested too deeply"));
        }
        self.at += end + 1;
        self.open.push(name);
        self.empty = empty;
        self.any = true;
        let name = name.rsplit(':').next().unwrap_or(name);
        Ok(Event::Start { name, attributes })
    }

    /// Passes over the rest of the element that has just begun.
    pub(crate) fn skip_element(&mut self) -> Result<(), Error> {
        let depth = self.open.len();
        while self.open.len() >= depth {
            if self.next()?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Iterates over the attributes of a start tag: names and values as they are written. Ends at the
/// first malformed one.
pub(crate) fn attributes(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (name, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (value, after) = after.get(1..)?.split_once(quote)?;
        rest = after;
        Some((name.trim(), value))
    })
}

/// Replaces references in a text or a value: those that XML has without declarations.
pub(crate) fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        let (name, behind) = after.split_once(';').unwrap_or((after, ""));
        let number = name.strip_prefix('#').and_then(|digits| match digits.strip_prefix('x') {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        });
        match (name, number.and_then(char::from_u32)) {
            ("amp", _) => out.push('&'),
            ("lt", _) => out.push('<'),
            ("gt", _) => out.push('>'),
            ("quot", _) => out.push('"'),
            ("apos", _) => out.push('\''),
            (_, Some(c)) => out.push(c),
            _ => {
                out.push('&');
                rest = after;
                continue;
            }
        }
        rest = behind;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &str) -> Result<Vec<Event<'_>>, Error> {
        let mut reader = Reader::new(text);
        let mut events = Vec::new();
        while let Some(event) = reader.next()? {
            events.push(event);
        }
        Ok(events)
    }

    #[test]
    fn elements_attributes_and_text() {
        let text = "<?xml version='1.0'?>\n<!-- <x> --><!DOCTYPE a><n:a b=\"1 > 0\" c='\"'>\n\
                    t<d/><![CDATA[<raw>]]></n:a>\n";
        let events = all(text).unwrap();
        let attributes_of = " b=\"1 > 0\" c='\"'";
        assert_eq!(
            events,
            [
                Event::Start { name: "a", attributes: attributes_of },
                Event::Text("t"),
                Event::Start { name: "d", attributes: "" },
                Event::End,
                Event::Text("<raw>"),
                Event::End,
            ]
        );
        let pairs: Vec<_> = attributes(attributes_of).collect();
        assert_eq!(pairs, [("b", "1 > 0"), ("c", "\"")]);
        assert_eq!(unescape("a&amp;b&#x41;&#66;&lt;&unknown;&"), "a&bAB<&unknown;&");
    }

    #[test]
    fn bad_xml_is_refused() {
        let deep = "<a>".repeat(100);
        for text in [
            "",
            "text",
            "<a",
            "<a>",
            "<a></b>",
            "</a>",
            "<>",
            "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>",
            &deep,
        ] {
            assert!(all(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[<>/a=\"'&;! \\[\\]?é-]{0,80}") {
            let _ = all(&text);
            let _ = attributes(&text).count();
            let _ = unescape(&text);
        }
    }
}
