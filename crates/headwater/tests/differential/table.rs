//! Intended differences between headwater and nginx, and the reason for each.

use crate::exchange::Outcome;
use crate::requests::{Oddity as Odd, Request};

/// One kind of difference.
#[derive(Debug)]
pub(crate) struct Row {
    /// The oddity that a request must have; `None` for any request.
    oddity: Option<Odd>,
    /// Our verdicts, as in [`Outcome::verdict`].
    ours: &'static [&'static str],
    /// Verdicts of nginx.
    theirs: &'static [&'static str],
    #[expect(dead_code, reason = "for whoever reads the table, and a failed test's message")]
    because: &'static str,
}

impl Row {
    fn explains(&self, request: &Request, ours: &Outcome<'_>, theirs: &Outcome<'_>) -> bool {
        let (our_verdict, their_verdict) = (ours.verdict(), theirs.verdict());
        // If both sent a part of the file, it must be the same part.
        let both = our_verdict.starts_with("206") && their_verdict.starts_with("206");
        self.oddity.is_none_or(|oddity| request.oddities.contains(&oddity))
            && self.ours.contains(&&*our_verdict)
            && self.theirs.contains(&&*their_verdict)
            && (!both || ours.covered() == theirs.covered())
    }
}

/// The first row that explains a difference.
pub(crate) fn row(request: &Request, ours: &Outcome<'_>, theirs: &Outcome<'_>) -> Option<usize> {
    ROWS.iter().position(|row| row.explains(request, ours, theirs))
}

pub(crate) const ROWS: &[Row] = &[
    Row {
        oddity: Some(Odd::Method),
        ours: &["405 kept"],
        theirs: &["404 kept", "405 closed"],
        because: "a method that is not served is refused before the path is looked at, and the \
         connection kept: its framing is known (RFC 9112 9.3)",
    },
    Row {
        oddity: Some(Odd::Method),
        ours: &["204 kept", "204 closed"],
        theirs: &["405 kept", "405 closed"],
        because: "OPTIONS is answered: browsers ask before they fetch (RFC 9110 9.3.7)",
    },
    Row {
        oddity: Some(Odd::LowerCaseMethod),
        ours: &["405 kept"],
        theirs: &["400 closed"],
        because: "methods are tokens, of any case (RFC 9110 9.1)",
    },
    Row {
        oddity: Some(Odd::Connect),
        ours: &["405 kept"],
        theirs: &["405 closed"],
        because: "as any method that is not served",
    },
    Row {
        oddity: Some(Odd::DotSegments),
        ours: &["404 closed"],
        theirs: &["200 kept", "403 kept", "404 kept", "400 closed"],
        because: "interfaces: dot segments are not resolved but refused, and logged; clients \
         resolve them (RFC 3986 6.2.2.3)",
    },
    Row {
        oddity: Some(Odd::EncodedSlash),
        ours: &["404 closed"],
        theirs: &["200 kept", "403 kept", "404 kept"],
        because: "interfaces: encoded slashes and backslashes are refused, and logged",
    },
    Row {
        oddity: Some(Odd::Nul),
        ours: &["404 closed"],
        theirs: &["400 closed", "404 kept"],
        because: "interfaces: control characters in a path are refused, and logged",
    },
    Row {
        oddity: Some(Odd::NotUtf8),
        ours: &["400 closed"],
        theirs: &["404 kept", "200 kept"],
        because: "paths and fields are text (interfaces: malformed)",
    },
    Row {
        oddity: Some(Odd::Folder),
        ours: &["404 kept"],
        theirs: &["403 kept", "301 kept"],
        because: "whether there is a folder is nobody's business unless folders are listed",
    },
    Row {
        oddity: Some(Odd::Query),
        ours: &["400 closed"],
        theirs: &["200 kept"],
        because: "interfaces: a malformed query is refused",
    },
    Row {
        oddity: Some(Odd::Fragment),
        ours: &["400 closed"],
        theirs: &["200 kept", "403 kept"],
        because: "a target has no fragment (RFC 9112 3.2)",
    },
    Row {
        oddity: Some(Odd::Scheme),
        ours: &["400 closed"],
        theirs: &["200 kept"],
        because: "a resource of another scheme is not ours (RFC 9110 7.4)",
    },
    Row {
        oddity: Some(Odd::Spaces),
        ours: &["400 closed"],
        theirs: &["200 kept"],
        because: "one space between the parts of a request line (RFC 9112 3)",
    },
    Row {
        oddity: Some(Odd::Version),
        ours: &["400 closed"],
        theirs: &["200 kept", "404 kept"],
        because: "a version nobody has, or a space behind it (RFC 9112 2.3)",
    },
    Row {
        oddity: Some(Odd::Version),
        ours: &["400 closed"],
        theirs: &["505 closed"],
        because: "interfaces: 400 for any malformed request line",
    },
    Row {
        oddity: Some(Odd::NoVersion),
        ours: &["400 closed"],
        theirs: &["9 closed"],
        because: "HTTP/0.9 is not spoken (RFC 9112 C.1)",
    },
    Row {
        oddity: Some(Odd::FieldName),
        ours: &["400 closed"],
        theirs: &["200 kept", "404 kept"],
        because: "a line that is no field is refused, not skipped (RFC 9112 5)",
    },
    Row {
        oddity: Some(Odd::FieldValue),
        ours: &["400 closed"],
        theirs: &["200 kept", "404 kept"],
        because: "control characters in a value (RFC 9110 5.5)",
    },
    Row {
        oddity: Some(Odd::LineEnds),
        ours: &["400 closed"],
        theirs: &["200 kept", "404 kept"],
        because: "a CR of its own (RFC 9112 2.2)",
    },
    Row {
        oddity: Some(Odd::Size),
        ours: &["431 closed"],
        theirs: &["400 closed", "414 closed"],
        because: "interfaces: a head over 8 KiB is 431 (RFC 6585 5)",
    },
    Row {
        oddity: Some(Odd::ManyFields),
        ours: &["431 closed"],
        theirs: &["200 kept"],
        because: "at most 100 fields (RFC 6585 5)",
    },
    Row {
        oddity: Some(Odd::Connection),
        ours: &["200 kept", "404 kept"],
        theirs: &["200 closed", "404 closed"],
        because: "an option is a whole token; `closed` is not `close` (RFC 9110 7.6.1)",
    },
    Row {
        oddity: Some(Odd::Connection),
        ours: &["200 closed", "404 closed"],
        theirs: &["200 kept", "404 kept"],
        because: "`close` counts wherever it is (RFC 9112 9.6)",
    },
    Row {
        oddity: Some(Odd::TagsRepeated),
        ours: &["200 kept", "304 kept", "404 kept"],
        theirs: &["400 closed"],
        because: "a list may be in several fields (RFC 9110 5.3)",
    },
    Row {
        oddity: Some(Odd::Host),
        ours: &["400 closed"],
        theirs: &["200 kept"],
        because: "what no host can be (RFC 3986 3.2.2, RFC 9112 3.2)",
    },
    Row {
        oddity: Some(Odd::EmptyHost),
        ours: &["200 kept"],
        theirs: &["400 closed"],
        because: "a target without an authority has an empty Host (RFC 9110 7.2)",
    },
    Row {
        oddity: Some(Odd::Chunked),
        ours: &["400 closed"],
        theirs: &["200 kept"],
        because: "interfaces: Transfer-Encoding on GET leaves the framing in doubt",
    },
    Row {
        oddity: Some(Odd::Chunked),
        ours: &["400 closed"],
        theirs: &["501 closed"],
        because: "interfaces: 400 for framing in doubt, whatever the coding (RFC 9112 6.1)",
    },
    Row {
        oddity: Some(Odd::Chunked),
        ours: &["405 closed"],
        theirs: &["405 kept"],
        because: "a chunked payload that nobody wants is not read (RFC 9112 9.6)",
    },
    Row {
        oddity: Some(Odd::Expect),
        ours: &["200 closed", "405 closed"],
        theirs: &["200 kept", "405 kept"],
        because: "a payload announced with Expect may come or not, so the connection ends (RFC \
         9110 10.1.1)",
    },
    Row {
        oddity: Some(Odd::HeadRange),
        ours: &["200 kept"],
        theirs: &["206 kept", "416 kept"],
        because: "Range is defined for GET alone (RFC 9110 14.2)",
    },
    Row {
        oddity: Some(Odd::RangeSyntax),
        ours: &["200 kept"],
        theirs: &["416 kept", "206 kept"],
        because: "interfaces: a malformed range is ignored (RFC 9110 14.2)",
    },
    Row {
        oddity: Some(Odd::RangeSyntax),
        ours: &["206 kept"],
        theirs: &["416 kept"],
        because: "empty members of a list, and a suffix longer than any file (RFC 9110 5.6.1, \
         14.1.2)",
    },
    Row {
        oddity: Some(Odd::RangeSet),
        ours: &["206 kept"],
        theirs: &["200 kept"],
        because: "ranges that overlap are merged, not given up (RFC 9110 14.2, 15.3.7.2)",
    },
    Row {
        oddity: Some(Odd::RangeSet),
        ours: &["206 kept"],
        theirs: &["206 kept"],
        because: "the same, where they are still less than the whole",
    },
    Row {
        oddity: Some(Odd::RangeOfNothing),
        ours: &["416 kept"],
        theirs: &["200 kept"],
        because: "no range of an empty file has a first byte (RFC 9110 14.1.2)",
    },
    Row {
        oddity: Some(Odd::Precedence),
        ours: &["304 kept"],
        theirs: &["200 kept", "206 kept", "416 kept"],
        because: "If-Modified-Since does not count beside If-None-Match (RFC 9110 13.1.3)",
    },
    Row {
        oddity: Some(Odd::Precedence),
        ours: &["200 kept", "206 kept", "304 kept", "416 kept"],
        theirs: &["412 closed"],
        because: "If-Unmodified-Since does not count beside If-Match (RFC 9110 13.1.4)",
    },
    Row {
        oddity: Some(Odd::BadDate),
        ours: &["200 kept", "206 kept", "304 kept", "416 kept"],
        theirs: &["412 closed"],
        because: "a date that is none is no condition (RFC 9110 13.1.4)",
    },
    Row {
        oddity: None,
        ours: &["412 kept"],
        theirs: &["412 closed"],
        because: "nothing about a failed condition ends a connection (RFC 9112 9.3)",
    },
];
