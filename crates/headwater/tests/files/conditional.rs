//! Conditional requests: every combination that matters to RFC 9110's order of precedence.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testkit::noise;

use crate::support::Origin;

const MODIFIED: &str = "Tue, 15 Nov 1994 12:45:26 GMT";
const BEFORE: &str = "Tue, 15 Nov 1994 12:45:25 GMT";
const AFTER: &str = "Tue, 15 Nov 1994 12:45:27 GMT";

/// A field's value, and whether its condition is true by itself.
#[derive(Clone, Copy, Debug)]
enum Condition {
    Absent,
    /// Not a date: the server ignores it as if it were absent.
    Ignored(&'static str),
    True(&'static str),
    False(&'static str),
}

impl Condition {
    fn value(self) -> Option<&'static str> {
        match self {
            Self::Absent => None,
            Self::Ignored(value) | Self::True(value) | Self::False(value) => Some(value),
        }
    }

    fn holds(self) -> Option<bool> {
        match self {
            Self::Absent | Self::Ignored(_) => None,
            Self::True(_) => Some(true),
            Self::False(_) => Some(false),
        }
    }
}

use Condition::{Absent, False, Ignored, True};

/// TAG stands for the file's entity tag.
const IF_MATCH: [Condition; 7] = [
    Absent,
    True("TAG"),
    True("*"),
    True("\"other\", TAG"),
    False("\"other\""),
    // Compared strongly (13.1.1).
    False("W/TAG"),
    False("\"other\", W/TAG"),
];
const IF_UNMODIFIED_SINCE: [Condition; 5] =
    [Absent, True(MODIFIED), True(AFTER), False(BEFORE), Ignored("no date")];
const IF_NONE_MATCH: [Condition; 6] = [
    Absent,
    False("TAG"),
    False("*"),
    // Compared weakly (13.1.2).
    False("\"other\", W/TAG"),
    True("\"other\""),
    True("W/\"other\""),
];
const IF_MODIFIED_SINCE: [Condition; 5] =
    [Absent, True(BEFORE), False(MODIFIED), False(AFTER), Ignored("1994")];
const IF_RANGE: [Condition; 7] = [
    Absent,
    True("TAG"),
    True(MODIFIED),
    False("\"other\""),
    // Compared strongly, dates exactly (13.1.5).
    False("W/TAG"),
    False(AFTER),
    False(BEFORE),
];

#[derive(Clone, Copy, Debug)]
struct Case {
    method: &'static str,
    if_match: Condition,
    if_unmodified_since: Condition,
    if_none_match: Condition,
    if_modified_since: Condition,
    range: bool,
    if_range: Condition,
}

/// The status by RFC 9110 13.2.2, step by step.
fn expected(case: &Case) -> u16 {
    // 1.
    if let Some(holds) = case.if_match.holds() {
        if !holds {
            return 412;
        }
    // 2.
    } else if case.if_unmodified_since.holds() == Some(false) {
        return 412;
    }
    // 3.
    if let Some(holds) = case.if_none_match.holds() {
        if !holds {
            return 304;
        }
    // 4.
    } else if case.if_modified_since.holds() == Some(false) {
        return 304;
    }
    // 5. Range and If-Range are defined for GET only (14.2).
    let applies = case.if_range.holds() != Some(false);
    if case.method == "GET" && case.range && applies { 206 } else { 200 }
}

#[test]
fn order_of_precedence() {
    let origin = Origin::start();
    let bytes = noise(1, 1000);
    let path = origin.put("film.mp4", &bytes);
    let modified = UNIX_EPOCH + Duration::from_millis(784_903_526_500);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
    let mut client = origin.client();
    let plain = client.get("/vod/film.mp4", &[]);
    let tag = plain.header("ETag").unwrap().to_owned();
    assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() > 8, "{tag} is strong");
    assert_eq!(plain.header("Last-Modified"), Some(MODIFIED));
    assert_eq!(plain.header("Accept-Ranges"), Some("bytes"));

    let mut cases = Vec::new();
    for method in ["GET", "HEAD"] {
        for if_match in IF_MATCH {
            for if_unmodified_since in IF_UNMODIFIED_SINCE {
                for if_none_match in IF_NONE_MATCH {
                    for if_modified_since in IF_MODIFIED_SINCE {
                        for (range, if_range) in IF_RANGE
                            .map(|if_range| (true, if_range))
                            .into_iter()
                            .chain([(false, Absent), (false, True("TAG"))])
                        {
                            cases.push(Case {
                                method,
                                if_match,
                                if_unmodified_since,
                                if_none_match,
                                if_modified_since,
                                range,
                                if_range,
                            });
                        }
                    }
                }
            }
        }
    }
    let mut seen = std::collections::BTreeMap::new();
    for case in &cases {
        let mut fields: Vec<(&str, String)> = [
            ("If-Match", case.if_match),
            ("If-Unmodified-Since", case.if_unmodified_since),
            ("If-None-Match", case.if_none_match),
            ("If-Modified-Since", case.if_modified_since),
            ("If-Range", case.if_range),
        ]
        .into_iter()
        .filter_map(|(name, condition)| Some((name, condition.value()?.replace("TAG", &tag))))
        .collect();
        if case.range {
            fields.push(("Range", "bytes=10-19".to_owned()));
        }
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = client.ask(case.method, "/vod/film.mp4", &fields, b"");
        let status = expected(case);
        assert_eq!(answer.status(), status, "{case:?}\n{answer:?}");
        *seen.entry((case.method, status)).or_insert(0) += 1;
        // These fields come with every status (15.4.5).
        assert_eq!(answer.header("ETag"), Some(tag.as_str()));
        assert!(answer.header("Cache-Control").is_some() && answer.header("Date").is_some());
        let length = match status {
            206 => Some("10"),
            200 => Some("1000"),
            412 => Some("0"),
            _ => None,
        };
        assert_eq!(answer.header("Content-Length"), length, "{case:?}");
        let content_range = (status == 206).then_some("bytes 10-19/1000");
        assert_eq!(answer.header("Content-Range"), content_range);
        let body = match (case.method, status) {
            ("GET", 206) => &bytes[10..20],
            ("GET", 200) => &bytes[..],
            _ => &[],
        };
        assert!(answer.body == body, "{case:?}");
    }
    let statuses: Vec<_> = seen.keys().copied().collect();
    let all = [
        ("GET", 200),
        ("GET", 206),
        ("GET", 304),
        ("GET", 412),
        ("HEAD", 200),
        ("HEAD", 304),
        ("HEAD", 412),
    ];
    assert_eq!(statuses, all, "{seen:?}");
}

/// A date is no validator while its second is not over, or while it is in the future.
#[test]
fn dates_that_may_come_to_mean_another_version() {
    let origin = Origin::start();
    let path = origin.put("new.bin", &[1; 100]);
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let mut client = origin.client();
    let mut ask = |date: &str| {
        let fields = [("Range", "bytes=0-9"), ("If-Range", date)];
        client.get("/vod/new.bin", &fields).status()
    };
    let now = SystemTime::now();
    let date = |time| httpdate::fmt_http_date(time);
    let past = now - Duration::from_secs(5);
    file.set_modified(past).unwrap();
    assert_eq!(ask(&date(past)), 206);
    let future = now + Duration::from_secs(3600);
    file.set_modified(future).unwrap();
    assert_eq!(ask(&date(future)), 200);
    let answer = origin.client().get("/vod/new.bin", &[]);
    assert_eq!(answer.header("Last-Modified"), None);
    assert!(answer.header("ETag").is_some());
}
