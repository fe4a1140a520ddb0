//! Odd requests, the same in each run.

/// Names and sizes of the files. Each size is unique.
pub(crate) const FILES: [(&str, usize); 5] = [
    ("file.bin", 10_000),
    ("empty.bin", 0),
    ("folder/inner.bin", 3000),
    ("a b.bin", 777),
    ("é.bin", 555),
];

/// What is odd about a case. Only its oddities can explain a difference between the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Oddity {
    Method,
    LowerCaseMethod,
    Connect,
    HeadRange,
    DotSegments,
    EncodedSlash,
    Nul,
    NotUtf8,
    Folder,
    Query,
    Fragment,
    Scheme,
    Spaces,
    Version,
    NoVersion,
    Host,
    EmptyHost,
    Folding,
    FieldName,
    FieldValue,
    LineEnds,
    Size,
    ManyFields,
    Connection,
    Length,
    Chunked,
    Expect,
    RangeSet,
    RangeSyntax,
    RangeRepeated,
    RangeOfNothing,
    Precedence,
    BadDate,
    TagsRepeated,
    TagSyntax,
    IfRange,
}

use Oddity as Odd;

/// A request, with its payload if it has one.
pub(crate) struct Request {
    /// The bytes, where `{etag}` stands for the server's entity tag of `file.bin`.
    pub(crate) template: Vec<u8>,
    pub(crate) oddities: Vec<Oddity>,
}

impl Request {
    pub(crate) fn is_head(&self) -> bool {
        self.template.starts_with(b"HEAD ")
    }

    pub(crate) fn bytes(&self, tag: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.template.len());
        let mut rest = &self.template[..];
        let place = b"{etag}";
        while let Some(at) = rest.windows(place.len()).position(|window| window == place) {
            bytes.extend_from_slice(&rest[..at]);
            bytes.extend_from_slice(tag.as_bytes());
            rest = &rest[at + place.len()..];
        }
        bytes.extend_from_slice(rest);
        bytes
    }
}

struct Random(testkit::Random);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit as u64) as usize
    }

    fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// The requests that each connection sends at once: each listed request once, then mixtures of
/// conditions and ranges, then pairs of these.
pub(crate) fn cases() -> Vec<Vec<Request>> {
    let mut random = Random(testkit::Random::new(2026));
    let listed = heads().into_iter().chain(fields()).chain(bodies());
    let mut cases: Vec<_> = listed.map(|request| vec![request]).collect();
    cases.extend((0..350).map(|_| vec![conditional(&mut random)]));
    cases.extend((0..150).map(|_| vec![conditional(&mut random), conditional(&mut random)]));
    cases
}

fn case(oddity: impl IntoIterator<Item = Oddity>, request: impl Into<Vec<u8>>) -> Request {
    let mut request = Request { template: request.into(), oddities: oddity.into_iter().collect() };
    if request.is_head() && request.template.windows(8).any(|window| window == b"\r\nRange:") {
        request.oddities.push(Odd::HeadRange);
    }
    request
}

/// Request lines.
fn heads() -> Vec<Request> {
    let mut cases = Vec::new();
    for method in [
        "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", "PROPFIND",
        "G-T", "G_T",
    ] {
        for path in ["/vod/file.bin", "/vod/nothing", "/vod/folder/inner.bin"] {
            let plain = method == "GET" || method == "HEAD";
            let head = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n");
            cases.push(case((!plain).then_some(Odd::Method), head));
        }
    }
    for method in ["get", "Get", "hEAD"] {
        let head = format!("{method} /vod/file.bin HTTP/1.1\r\nHost: h\r\n\r\n");
        cases.push(case([Odd::LowerCaseMethod], head));
    }
    for target in ["h:443", "/vod/file.bin", "http://h/vod/file.bin"] {
        let head = format!("CONNECT {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        cases.push(case([Odd::Connect], head));
    }
    let targets: [(Option<Oddity>, &[&str]); 12] = [
        (
            None,
            &[
                "/vod/file.bin",
                "/vod/empty.bin",
                "/vod/folder/inner.bin",
                "//vod//folder///inner.bin",
                "/vod/a%20b.bin",
                "/vod/%C3%A9.bin",
                "/vod/%c3%a9.bin",
                "/%76od/%66ile.bin",
                "/vod/file%2ebin",
                "/vod/nothing",
                "/vod/file.bin/",
                "/vod/file.bin/more",
                "/vod/File.bin",
                "/vod/file.bin%20",
                "/vod/%2541",
                "/vod/...",
                "/vod/;a=b",
                "/vod/a+b.bin",
                "/vod/%",
                "/vod/%4",
                "/vod/%zz",
                "/vod/%u0041",
                "/VOD/file.bin",
                "*",
                "http://h/vod/file.bin",
                "HTTP://H:80/vod/file.bin",
                "https://h/vod/file.bin",
                "http://other/vod/file.bin?a",
                "http:/vod/file.bin",
                "://h/vod/file.bin",
            ],
        ),
        (
            Some(Odd::DotSegments),
            &[
                "/vod/../vod/file.bin",
                "/vod/./file.bin",
                "/vod/folder/../file.bin",
                "/vod/%2e%2e/file.bin",
                "/vod/folder/%2E./file.bin",
                "/vod/..",
                "/..",
                "/vod/../../../etc/hostname",
                "/vod/folder/..",
                "/vod/.",
                "http://h/vod/./file.bin",
            ],
        ),
        (
            Some(Odd::EncodedSlash),
            &[
                "/vod%2Ffile.bin",
                "/vod/folder%2finner.bin",
                "/vod/..%2ffile.bin",
                "/vod/%2f",
                "/vod/folder%5Cinner.bin",
                "/vod/folder\\inner.bin",
                "/vod/..\\file.bin",
            ],
        ),
        (Some(Odd::Nul), &["/vod/file.bin%00", "/vod/%00", "/vod/file.bin%0a", "/vod/%7f"]),
        (Some(Odd::NotUtf8), &["/vod/%ff.bin", "/vod/%c0%af", "/vod/%ed%a0%80"]),
        (Some(Odd::Folder), &["/vod/", "/vod/folder", "/vod/folder/", "/vod", "/vod/?x"]),
        (
            Some(Odd::Query),
            &[
                "/vod/file.bin?",
                "/vod/file.bin?a=b&c",
                "/vod/file.bin??/../",
                "/vod/file.bin?%zz",
                "/vod/file.bin?a=%ff",
                "/vod/file.bin?a=%",
                "/vod/file.bin?a=/../b",
                "/vod/nothing?a",
            ],
        ),
        (Some(Odd::Fragment), &["/vod/file.bin#a", "/vod/file.bin?a#b", "/vod/#"]),
        (
            Some(Odd::Scheme),
            &[
                "ftp://h/vod/file.bin",
                "http:///vod/file.bin",
                "http://u@h/vod/file.bin",
                "http://h:x/vod/file.bin",
                "vod/file.bin",
                "h:80",
                "?a",
            ],
        ),
        (
            Some(Odd::Spaces),
            &["/vod/a b.bin", "/vod/file.bin ", " /vod/file.bin", "\t/vod/file.bin", "/vod/\tx"],
        ),
        (Some(Odd::NotUtf8), &["/vod/é.bin", "/vod/€"]),
        (Some(Odd::Nul), &["/vod/\u{1}", "/vod/\u{7f}x", "/vod/\0"]),
    ];
    for (oddity, targets) in targets {
        for target in targets {
            for method in ["GET", "HEAD"] {
                let head = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n");
                cases.push(case(oddity, head));
            }
        }
    }
    for (oddity, version) in [
        (None, "HTTP/1.0"),
        (Some(Odd::Version), "HTTP/1.2"),
        (Some(Odd::Version), "HTTP/1.9"),
        (Some(Odd::Version), "HTTP/2.0"),
        (Some(Odd::Version), "HTTP/0.9"),
        (Some(Odd::Version), "HTTP/1"),
        (Some(Odd::Version), "HTTP/1.1x"),
        (Some(Odd::Version), "HTTP/11"),
        (Some(Odd::Version), "http/1.1"),
        (Some(Odd::Version), "HTTPS/1.1"),
        (Some(Odd::Version), "RTSP/1.0"),
        (Some(Odd::Version), "HTTP/1.1 "),
        (Some(Odd::NoVersion), ""),
    ] {
        for method in ["GET", "HEAD"] {
            let head = format!("{method} /vod/file.bin {version}\r\nHost: h\r\n\r\n");
            cases.push(case(oddity, head));
            let head = format!("{method} /vod/nothing {version}\r\nHost: h\r\n\r\n");
            cases.push(case(oddity, head));
        }
    }
    cases.push(case([Odd::NoVersion], "GET /vod/file.bin\r\n"));
    cases
}

/// Header fields.
fn fields() -> Vec<Request> {
    let mut cases = Vec::new();
    let lists: [(Option<Oddity>, &[&str]); 11] = [
        (
            None,
            &[
                "",
                "Accept: */*\r\n",
                "Empty:\r\n",
                "Tab:\ta\t\r\n",
                "Long: {7000}\r\n",
                "Connection: close\r\n",
                "Connection: keep-alive\r\n",
                "Connection: CLOSE\r\n",
                "Connection: upgrade\r\nUpgrade: websocket\r\n",
                "Utf8: é\r\n",
                "A: b\r\nA: c\r\n",
                "Range_: bytes=0-1\r\n",
                "Trailer: a\r\n",
                "TE: trailers\r\n",
                "Upgrade-Insecure-Requests: 1\r\n",
            ],
        ),
        (
            Some(Odd::Folding),
            &["A: b\r\n c\r\n", "A: b\r\n\tc\r\n", " A: b\r\n", "A:\r\n \r\n", "A: b\n c\r\n"],
        ),
        (
            Some(Odd::FieldName),
            &[
                "A B: c\r\n",
                "A : b\r\n",
                ": a\r\n",
                "no colon\r\n",
                "A\u{1}: b\r\n",
                "A(: b\r\n",
                "é: b\r\n",
                "Content-Length : 5\r\n",
                "\"A\": b\r\n",
            ],
        ),
        (
            Some(Odd::FieldValue),
            &["A: b\0c\r\n", "A: \u{1}\r\n", "A: \u{7f}\r\n", "A: b\rc\r\n", "A: \0\r\n"],
        ),
        (Some(Odd::LineEnds), &["A: b\n", "A: b\r\r\n", "A: b\r\n\r", "A: b\n\r\n"]),
        (Some(Odd::Size), &["Long: {9000}\r\n", "Long: {20000}\r\n"]),
        (
            Some(Odd::Connection),
            &[
                "Connection: closed\r\n",
                "Connection: a, close, b\r\n",
                "Connection: keep-alive, close\r\n",
                "Connection: keep-alive\r\nConnection: close\r\n",
                "Connection: close\r\nConnection: keep-alive\r\n",
                "Connection:\r\n",
                "Connection: not-close\r\n",
            ],
        ),
        (Some(Odd::Host), &["Host: h\r\n", "Host: other\r\n", "HOST: h\r\n", "Host:\r\n"]),
        (
            Some(Odd::TagSyntax),
            &[
                "If-None-Match: {etag}\r\n",
                "If-None-Match: \"{etag}\r\n",
                "If-None-Match: \"\"\r\n",
                "If-None-Match: \"a\"\"{etag}\"\r\n",
                "If-None-Match: w/\"{etag}\"\r\n",
                "If-None-Match: \"a\" \"{etag}\"\r\n",
                "If-None-Match: *, \"a\"\r\n",
                "If-None-Match:\r\n",
                "If-Match: {etag}\r\n",
                "If-Match: \"{etag}\" \r\n",
                "If-Match: ,,\"{etag}\"\r\n",
                "If-Match:\r\n",
            ],
        ),
        (
            Some(Odd::RangeRepeated),
            &[
                "Range: bytes=0-1\r\nRange: bytes=5-6\r\n",
                "Range: bytes=0-1\r\nRange: nonsense\r\n",
            ],
        ),
        (
            Some(Odd::TagsRepeated),
            &[
                "If-None-Match: \"a\"\r\nIf-None-Match: \"{etag}\"\r\n",
                "If-Match: \"a\"\r\nIf-Match: \"{etag}\"\r\n",
            ],
        ),
    ];
    for (oddity, fields) in lists {
        for field in fields {
            for (method, path) in
                [("GET", "/vod/file.bin"), ("HEAD", "/vod/file.bin"), ("GET", "/vod/nothing")]
            {
                let field = expand(field);
                let head = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n{field}\r\n");
                cases.push(case(oddity, head));
            }
        }
    }
    let hosts: [(Oddity, &[&str]); 2] = [
        (
            Odd::Host,
            &["h:80", "[::1]:80", "h h", "h/x", "u@h", "h,h", "h\0", "h#", "h?", "é", "h:x", "<h>"],
        ),
        (Odd::EmptyHost, &["", " "]),
    ];
    for (oddity, hosts) in hosts {
        for host in hosts {
            let head = format!("GET /vod/file.bin HTTP/1.1\r\nHost: {host}\r\n\r\n");
            cases.push(case([oddity], head));
        }
    }
    for (oddity, request) in [
        (Some(Odd::Host), "GET /vod/file.bin HTTP/1.1\r\n\r\n"),
        (None, "GET /vod/file.bin HTTP/1.0\r\n\r\n"),
        (None, "HEAD /vod/file.bin HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
        (None, "GET /vod/file.bin HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"),
        (Some(Odd::LineEnds), "\r\nGET /vod/file.bin HTTP/1.1\r\nHost: h\r\n\r\n"),
        (Some(Odd::LineEnds), "\n\r\n\nGET /vod/file.bin HTTP/1.1\r\nHost: h\r\n\r\n"),
        (Some(Odd::LineEnds), "GET /vod/file.bin HTTP/1.1\nHost: h\n\n"),
        (Some(Odd::LineEnds), "GET /vod/file.bin HTTP/1.1\rHost: h\r\r"),
        (Some(Odd::LineEnds), "GET /vod/file.bin HTTP/1.1\r\r\nHost: h\r\n\r\n"),
        (Some(Odd::Spaces), " GET /vod/file.bin HTTP/1.1\r\nHost: h\r\n\r\n"),
        (Some(Odd::Spaces), "GET\t/vod/file.bin\tHTTP/1.1\r\nHost: h\r\n\r\n"),
        (Some(Odd::Folding), "GET /vod/file.bin HTTP/1.1\r\n Host: h\r\n\r\n"),
    ] {
        cases.push(case(oddity, request));
    }
    let many: String = (0..150).map(|i| format!("X-{i}: y\r\n")).collect();
    let head = format!("GET /vod/file.bin HTTP/1.1\r\nHost: h\r\n{many}\r\n");
    cases.push(case([Odd::ManyFields], head));
    let long = "a".repeat(9000);
    let head = format!("GET /vod/{long} HTTP/1.1\r\nHost: h\r\n\r\n");
    cases.push(case([Odd::Size], head));
    let mut latin = b"GET /vod/file.bin HTTP/1.1\r\nHost: h\r\nA: \xe9\r\n\r\n".to_vec();
    cases.push(case([Odd::NotUtf8], latin.clone()));
    latin.splice(9..9, [0xe9]);
    cases.push(case([Odd::NotUtf8], latin));
    cases
}

fn expand(field: &str) -> String {
    let mut field = field.to_owned();
    for length in [7000, 9000, 20_000] {
        field = field.replace(&format!("{{{length}}}"), &"a".repeat(length));
    }
    field
}

/// Payloads of requests.
fn bodies() -> Vec<Request> {
    let mut cases = Vec::new();
    for method in ["GET", "HEAD", "POST", "PUT", "OPTIONS"] {
        let odd = |oddity| {
            let method = (!matches!(method, "GET" | "HEAD")).then_some(Odd::Method);
            method.into_iter().chain(Some(oddity)).collect::<Vec<_>>()
        };
        for (oddity, fields, payload) in [
            (Odd::Length, "Content-Length: 0\r\n", ""),
            (Odd::Length, "Content-Length: 5\r\n", "GET /"),
            (Odd::Length, "Content-Length: 005\r\n", "GET /"),
            (Odd::Length, "Content-Length: 3000\r\n", &*"x".repeat(3000)),
            (Odd::Length, "Content-Length: 5\r\nContent-Length: 5\r\n", "GET /"),
            (Odd::Length, "Content-Length: 5\r\nContent-Length: 6\r\n", "GET /"),
            (Odd::Length, "Content-Length: 5, 5\r\n", "GET /"),
            (Odd::Length, "Content-Length: -1\r\n", ""),
            (Odd::Length, "Content-Length: +5\r\n", "GET /"),
            (Odd::Length, "Content-Length: 0x5\r\n", "GET /"),
            (Odd::Length, "Content-Length: a\r\n", ""),
            (Odd::Length, "Content-Length:\r\n", ""),
            (Odd::Length, "Content-Length: 99999999999999999999\r\n", ""),
            (Odd::Chunked, "Transfer-Encoding: chunked\r\n", "5\r\nGET /\r\n0\r\n\r\n"),
            (Odd::Chunked, "Transfer-Encoding: CHUNKED\r\n", "0\r\n\r\n"),
            (Odd::Chunked, "Transfer-Encoding: chunked\r\n", "zz\r\n\r\n"),
            (Odd::Chunked, "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
            (Odd::Chunked, "Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
            (Odd::Chunked, "Transfer-Encoding: identity\r\n", ""),
            (Odd::Chunked, "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
            (
                Odd::Chunked,
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                "0\r\n\r\n",
            ),
            (Odd::Expect, "Expect: 100-continue\r\n", ""),
            (Odd::Expect, "Expect: 100-continue\r\nContent-Length: 5\r\n", "GET /"),
            (Odd::Expect, "Expect: something\r\nContent-Length: 5\r\n", "GET /"),
        ] {
            let head = format!("{method} /vod/file.bin HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            cases.push(case(odd(oddity), [head.as_bytes(), payload.as_bytes()].concat()));
        }
        let head = format!("{method} /vod/file.bin HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
        cases.push(case(odd(Odd::Chunked), format!("{head}0\r\n\r\n")));
    }
    cases
}

/// A GET or HEAD of a file, with or without each condition and a range.
fn conditional(random: &mut Random) -> Request {
    let (name, size) =
        *random.pick(&[("file.bin", 10_000), ("file.bin", 10_000), ("empty.bin", 0)]);
    let method = if random.one_in(6) { "HEAD" } else { "GET" };
    let (mut fields, mut odd) = (String::new(), Vec::new());
    let mut put = |name: &str, value: &str| fields.push_str(&format!("{name}: {value}\r\n"));
    let ranged = random.below(3) > 0;
    if ranged {
        let (oddity, range) = range(random, size);
        odd.extend(oddity);
        put("Range", &range);
        if size == 0 {
            odd.push(Odd::RangeOfNothing);
        }
    }
    let mut conditions = 0;
    for condition in ["If-Match", "If-None-Match"] {
        if random.one_in(4) {
            put(condition, tag(random));
            conditions += 1;
        }
    }
    for condition in ["If-Modified-Since", "If-Unmodified-Since"] {
        if random.one_in(4) {
            let (bad, date) = date(random);
            odd.extend(bad.then_some(Odd::BadDate));
            put(condition, date);
            conditions += 1;
        }
    }
    if conditions > 1 {
        odd.push(Odd::Precedence);
    }
    if random.one_in(3) {
        odd.push(Odd::IfRange);
        let date = date(random).1;
        put("If-Range", if random.one_in(2) { tag(random) } else { date });
    }
    case(odd, format!("{method} /vod/{name} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"))
}

fn tag(random: &mut Random) -> &'static str {
    let tags = [
        "\"{etag}\"",
        "\"{etag}\"",
        "W/\"{etag}\"",
        "\"other\"",
        "W/\"other\"",
        "*",
        "\"a\", \"{etag}\"",
        "\"a\",W/\"b\" ,\"c\"",
        "\"a, b\", \"{etag}\"",
    ];
    tags[random.below(tags.len())]
}

/// Whether the text is not a date, and the text: before, at, and after the file's date.
fn date(random: &mut Random) -> (bool, &'static str) {
    *random.pick(&[
        (false, "Wed, 01 Jan 2020 00:00:00 GMT"),
        (false, "Thu, 02 Jan 2020 03:04:04 GMT"),
        (false, "Thu, 02 Jan 2020 03:04:05 GMT"),
        (false, "Thu, 02 Jan 2020 03:04:05 GMT"),
        (false, "Thu, 02 Jan 2020 03:04:06 GMT"),
        (false, "Thu, 02 Jan 2025 00:00:00 GMT"),
        (false, "Thursday, 02-Jan-20 03:04:05 GMT"),
        (false, "Thu Jan  2 03:04:05 2020"),
        (true, "yesterday"),
        (true, "1577934245"),
        (true, ""),
        (true, "Thu, 32 Jan 2020 03:04:05 GMT"),
    ])
}

/// A value of `Range`, and what is odd about it.
fn range(random: &mut Random, size: usize) -> (Option<Oddity>, String) {
    if random.one_in(4) {
        let odd = [
            "bytes=",
            "bytes",
            "bytes=-",
            "bytes=a-b",
            "bytes=9-1",
            "bytes=1",
            "bytes=--1",
            "bytes=1--2",
            "bytes=0x1-2",
            "bytes=+1-2",
            "lines=1-2",
            "seconds=1-2",
            "nonsense",
            "=1-2",
            "bytes 0-1",
            "bytes=0 -1",
            "bytes=0- 1",
            "bytes=0-1,9-1",
            "bytes=0-1,x",
            "bytes=,",
            "bytes=,1-1",
            "bytes=1-1,,3-3",
            "bytes =0-1",
            "bytes= 0-1",
            "BYTES=0-1",
            "Bytes=5-",
            "bytes=0-1;2-3",
            "bytes=99999999999999999999-",
            "bytes=0-99999999999999999999",
            "bytes=-99999999999999999999",
            "bytes=-0",
            "bytes=10000-",
            "bytes=00000000000000000001-2",
        ];
        return (Some(Odd::RangeSyntax), (*random.pick(&odd)).to_owned());
    }
    let mut spec = || {
        let (a, b) = (random.below(size * 5 / 4 + 2), random.below(size * 5 / 4 + 2));
        match random.below(5) {
            0 => format!("{}-", a.min(b)),
            1 => format!("-{}", a.min(b)),
            2 => format!("{}-{}", a, a + b % 100),
            _ => format!("{}-{}", a.min(b), a.max(b)),
        }
    };
    let first = spec();
    let further: Vec<_> = (0..5).map(|_| spec()).collect();
    let count = [0, 0, 0, 1, 2, 5][random.below(6)];
    let separator = *random.pick(&[",", ", ", " ,"]);
    let set = std::iter::once(first).chain(further.into_iter().take(count));
    let set = set.collect::<Vec<_>>().join(separator);
    ((count > 0).then_some(Odd::RangeSet), format!("bytes={set}"))
}
