//! Lists a folder, for people and for programs.

use std::fmt::Write as _;
use std::io;

use http::{Request, date};
use payload::{Kind as Found, Root, Wait};
use serde::Serialize;

/// Most names in a folder that is listed. A longer folder is not listed at all: a program would
/// take a partial list for the whole.
pub(super) const MOST: usize = 10_000;

/// Most names of a folder that is read, with those that are not listed.
const ALL: usize = 10 * MOST;

/// An entry of a folder, in the format of nginx's `autoindex_format json`.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct Entry {
    name: String,
    #[serde(rename = "type")]
    kind: Kind,
    /// An HTTP date.
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<String>,
    /// In bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Directory,
    File,
}

/// Whether the client prefers JSON to HTML (RFC 9110 12.5.1): it names JSON, with a weight no less
/// than HTML's.
pub(super) fn wants_json(request: &Request) -> bool {
    let weight = |kind: &str| {
        let accepted = request.header_values("accept").flat_map(|value| value.split(','));
        let weights = accepted.filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            parts.next()?.eq_ignore_ascii_case(kind).then_some(())?;
            let weight = parts.find_map(|part| part.strip_prefix("q="));
            Some(weight.map_or(1.0, |weight| weight.parse::<f32>().unwrap_or(0.0)))
        });
        weights.fold(0.0, f32::max)
    };
    let json = weight("application/json");
    json > 0.0 && json >= weight("text/html")
}

/// Makes the list of a folder: its media type and text. `None` if the folder has more than [`MOST`]
/// names. Blocks.
///
/// The list names only what a request could get: files and folders below the root, and links to
/// such. Their names are Unicode, do not begin with a dot, and have only characters that a request
/// may contain.
pub(super) fn list(
    root: &Root,
    path: &str,
    json: bool,
) -> io::Result<Option<(&'static str, String)>> {
    let path = path.trim_end_matches('/');
    let mut entries = Vec::new();
    let Some(names) = root.list(path, ALL)? else { return Ok(None) };
    for name in names {
        if name.starts_with('.') || name.bytes().any(|b| b == b'\\' || b.is_ascii_control()) {
            continue;
        }
        if entries.len() == MOST {
            return Ok(None);
        }
        let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        // Opens the entry as a request would, so that the list names only what can be served. The
        // list of a store's folder tells it without that.
        let metadata = match root.objects() {
            Some(_) => root.stat(&below, Wait::AsLongAsItTakes),
            None => root.find(&below, Wait::AsLongAsItTakes).map(|(_, metadata)| metadata),
        };
        let Ok(metadata) = metadata else { continue };
        let kind = match metadata.kind {
            Found::Folder => Kind::Directory,
            Found::File => Kind::File,
            Found::Other => continue,
        };
        entries.push(Entry {
            name,
            kind,
            mtime: metadata.modified.and_then(date::of).map(|date| date.to_string()),
            size: (kind == Kind::File).then_some(metadata.len),
        });
    }
    entries.sort_by(|a, b| a.kind.cmp(&b.kind).then_with(|| a.name.cmp(&b.name)));
    Ok(Some(if json {
        ("application/json", serde_json::to_string(&entries)?)
    } else {
        ("text/html; charset=utf-8", html(path, &entries))
    }))
}

fn html(path: &str, entries: &[Entry]) -> String {
    // Writing to a string does not fail.
    let title = escape(&format!("/vod/{path}"));
    let mut page = format!(
        "<!doctype html>\n<meta charset=utf-8>\n<meta name=viewport content=\"width=device-width\">\n\
         <title>{title}</title>\n<h1>{title}</h1>\n<table>\n"
    );
    if let Some((above, _)) = path.rsplit_once('/').or((!path.is_empty()).then_some(("", ""))) {
        let slash = if above.is_empty() { "" } else { "/" };
        let _ = writeln!(page, "<tr><td><a href=\"/vod/{}{slash}\">..</a>", encode(above));
    }
    for entry in entries {
        let below = if path.is_empty() { "" } else { "/" };
        let slash = if entry.kind == Kind::Directory { "/" } else { "" };
        let _ = write!(
            page,
            "<tr><td><a href=\"/vod/{}{below}{}{slash}\">{}{slash}</a>",
            encode(path),
            encode(&entry.name),
            escape(&entry.name)
        );
        let size = entry.size.map(|size| size.to_string()).unwrap_or_default();
        let _ =
            writeln!(page, "<td>{}<td align=right>{size}", entry.mtime.as_deref().unwrap_or(""));
    }
    page.push_str("</table>\n");
    page
}

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Encodes a path for a URL (RFC 3986 2.3). Slashes stay.
fn encode(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use bytes::BytesMut;

    use super::*;

    #[test]
    fn formats() {
        let json = |accept: &str| {
            let mut head =
                BytesMut::from(format!("GET / HTTP/1.1\r\nHost: h\r\n{accept}\r\n").as_str());
            let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            wants_json(&Request::parse(&mut head, peer, 8192).unwrap().unwrap())
        };
        assert!(!json(""));
        assert!(!json("Accept: */*\r\n"));
        assert!(!json("Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n"));
        assert!(json("Accept: application/json\r\n"));
        assert!(json("Accept: text/html;q=0.5, Application/JSON; q=0.9\r\n"));
        assert!(!json("Accept: text/html, application/json;q=0.9\r\n"));
        assert!(!json("Accept: application/json;q=0\r\n"));
        assert!(!json("Accept: application/json;q=x\r\n"));
    }

    #[test]
    fn names_mean_themselves() {
        let entry =
            |name: &str, kind| Entry { name: name.to_owned(), kind, mtime: None, size: None };
        let page = html("a b", &[entry("<script>\"&é", Kind::File), entry("c", Kind::Directory)]);
        assert!(page.contains(
            "<a href=\"/vod/a%20b/%3Cscript%3E%22%26%C3%A9\">&lt;script&gt;&quot;&amp;é</a>"
        ));
        assert!(page.contains("<a href=\"/vod/a%20b/c/\">c/</a>"));
        assert!(page.contains("<a href=\"/vod/\">..</a>"));
        assert!(html("a/b", &[]).contains("<a href=\"/vod/a/\">..</a>"));
        assert!(!html("", &[]).contains("..</a>"));
        let json = serde_json::to_string(&[entry("c", Kind::Directory)]).unwrap();
        assert_eq!(json, r#"[{"name":"c","type":"directory"}]"#);
    }
}
