//! Conditional requests (RFC 9110 13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Request;

/// Identifies a version of a representation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Validators<'a> {
    /// Strong entity tag without its quotes, in printable ASCII without `"`.
    pub etag: Option<&'a str>,
    /// When the representation last changed; only whole seconds count.
    pub modified: Option<SystemTime>,
}

/// Result of a request's preconditions (RFC 9110 13.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The preconditions hold, or there are none.
    Proceed,
    /// 304: the client has this version.
    NotModified,
    /// 412: the client wants another version.
    Failed,
}

impl Validators<'_> {
    /// Evaluates the preconditions of a GET or HEAD.
    pub fn evaluate(&self, request: &Request) -> Precondition {
        let listed = |field, weak| self.listed(request, field, weak);
        let changed_since = |field: &str| {
            let date = httpdate::parse_http_date(request.header(field)?).ok()?;
            Some(whole_seconds(self.modified?) > date)
        };
        let failed = match listed("if-match", false) {
            Some(matched) => !matched,
            None => changed_since("if-unmodified-since") == Some(true),
        };
        if failed {
            return Precondition::Failed;
        }
        let not_modified = match listed("if-none-match", true) {
            Some(matched) => matched,
            None => changed_since("if-modified-since") == Some(false),
        };
        if not_modified { Precondition::NotModified } else { Precondition::Proceed }
    }

    /// Whether `If-Range` allows `Range` to apply (RFC 9110 13.1.5). It needs an exact match, and a
    /// strong entity tag.
    pub fn range_applies(&self, request: &Request) -> bool {
        let Some(value) = request.header("if-range") else { return true };
        if value.contains('"') {
            return value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) == self.etag
                && self.etag.is_some();
        }
        match (httpdate::parse_http_date(value), self.modified.map(whole_seconds)) {
            (Ok(date), Some(modified)) => {
                // During its second, a date may still stand for two versions (8.8.2.2).
                let over = SystemTime::now().duration_since(modified);
                date == modified && over.is_ok_and(|over| over >= Duration::from_secs(1))
            }
            _ => false,
        }
    }

    /// Whether a field contains our tag; `None` if there is no such field. `*` matches any version.
    fn listed(&self, request: &Request, field: &str, weak: bool) -> Option<bool> {
        let mut found = None;
        for value in request.header_values(field) {
            let matches = value.trim() == "*"
                || tags(value).any(|(is_weak, tag)| Some(tag) == self.etag && (weak || !is_weak));
            found = Some(found.unwrap_or(false) || matches);
        }
        found
    }
}

/// The entity tags of a list, each with whether it is weak. Ends at the first malformed tag or
/// missing comma.
fn tags(mut list: &str) -> impl Iterator<Item = (bool, &str)> {
    std::iter::from_fn(move || {
        list = list.trim_start_matches([' ', '\t', ',']);
        let weak = list.starts_with("W/");
        let rest = list.strip_prefix("W/").unwrap_or(list).strip_prefix('"')?;
        let (tag, rest) = rest.split_once('"')?;
        let rest = rest.trim_start_matches([' ', '\t']);
        list = if rest.starts_with(',') { rest } else { "" };
        Some((weak, tag))
    })
}

pub(crate) fn whole_seconds(time: SystemTime) -> SystemTime {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    UNIX_EPOCH + Duration::from_secs(seconds)
}
