//! Ranges: the bytes are those of the file, however many ranges one request has.

use std::process::Command;

use testkit::http::Response;
use testkit::{Program, Random, noise};

use crate::support::{LIMIT, Origin};

/// A range as a request writes it, and the bytes that it means in a file of `length` bytes.
fn random_range(random: &mut Random, length: u64) -> (String, std::ops::Range<u64>) {
    let from = random.below(length);
    // Mostly short, sometimes up to the end or beyond.
    let size = match random.below(4) {
        0 => 1 + random.below(64),
        1 => 1 + random.below(20_000),
        2 => 1 + random.below(300_000),
        _ => 1 + random.below(2 * length),
    };
    match random.below(8) {
        0 => (format!("{from}-"), from..length),
        1 => (format!("-{size}"), length - size.min(length)..length),
        _ => (format!("{from}-{}", from + size - 1), from..length.min(from + size)),
    }
}

#[test]
fn single() {
    const LENGTH: u64 = 1_300_007;
    let origin = Origin::start();
    let bytes = noise(2, LENGTH as usize);
    origin.put("a.bin", &bytes);
    let mut client = origin.client();
    let mut random = Random::new(20_261_121);
    for _ in 0..500 {
        let (asked, range) = random_range(&mut random, LENGTH);
        let answer = client.get("/vod/a.bin", &[("Range", &format!("bytes={asked}"))]);
        assert_eq!(answer.status(), 206, "{asked}");
        let content_range = format!("bytes {}-{}/{LENGTH}", range.start, range.end - 1);
        assert_eq!(answer.header("Content-Range"), Some(content_range.as_str()), "{asked}");
        assert!(answer.body == bytes[range.start as usize..range.end as usize], "{asked}");
    }
    // The same with curl.
    for _ in 0..20 {
        let (asked, range) = random_range(&mut random, LENGTH);
        let got = curl(&origin, &["-r", &asked, &origin.server.url("/vod/a.bin")]);
        assert!(got == bytes[range.start as usize..range.end as usize], "{asked}");
    }
    let got = curl(&origin, &[&origin.server.url("/vod/a.bin")]);
    assert!(got == bytes);
}

fn curl(origin: &Origin, args: &[&str]) -> Vec<u8> {
    let mut command = Command::new("curl");
    command.args(["-sS", "--fail"]).args(args).current_dir(origin.server.folder());
    Program::output(&mut command, LIMIT)
}

#[test]
fn unsatisfiable_ranges_are_refused_and_meaningless_ones_ignored() {
    let origin = Origin::start();
    let bytes = noise(3, 1000);
    origin.put("a.bin", &bytes);
    origin.put("empty.bin", b"");
    let mut client = origin.client();
    for (asked, status) in [
        ("bytes=1000-", 416),
        ("bytes=1000-2000", 416),
        ("bytes=-0", 416),
        ("bytes=2000-,-0", 416),
        ("bytes=18446744073709551616-", 416),
        ("bytes=999-", 206),
        ("bytes=-1", 206),
        ("bytes=2000-,5-5", 206),
        ("bytes=5-4", 200),
        ("bytes=a-b", 200),
        ("bytes=", 200),
        ("bytes", 200),
        ("seconds=1-2", 200),
        ("bytes=0-1,x", 200),
    ] {
        let answer = client.get("/vod/a.bin", &[("Range", asked)]);
        assert_eq!(answer.status(), status, "{asked}");
        match status {
            416 => {
                assert_eq!(answer.header("Content-Range"), Some("bytes */1000"), "{asked}");
                assert!(answer.body.len() < 100);
            }
            206 => assert_eq!(answer.body.len(), 1, "{asked}"),
            _ => assert!(answer.body == bytes, "{asked}"),
        }
    }
    assert_eq!(client.get("/vod/empty.bin", &[("Range", "bytes=0-")]).status(), 416);
    assert_eq!(client.get("/vod/empty.bin", &[("Range", "bytes=-5")]).status(), 200);
}

/// Reads multipart/byteranges with Python's `email` and compares it with the file. Prints one line
/// for each part, or what is wrong.
const JUDGE: &str = r#"
import email, email.policy, re, sys
original = open(sys.argv[1], "rb").read()
for name in sys.argv[2:]:
    message = email.message_from_bytes(open(name, "rb").read(), policy=email.policy.HTTP)
    assert message.get_content_type() == "multipart/byteranges", message.get_content_type()
    assert not message.defects, message.defects
    shown = []
    for part in message.iter_parts():
        assert not part.defects, part.defects
        assert part.get_content_type() == "application/octet-stream", part.get_content_type()
        first, last, length = map(int, re.fullmatch(
            r"bytes (\d+)-(\d+)/(\d+)", part["Content-Range"]).groups())
        assert length == len(original), length
        assert part.get_payload(decode=True) == original[first:last + 1], (name, first, last)
        shown.append(f"{first}-{last}")
    print(",".join(shown))
"#;

/// The answer as a mail message: `Content-Type` and body.
fn message(answer: &Response) -> Vec<u8> {
    let content_type = answer.header("Content-Type").unwrap();
    let body = answer.body.as_slice();
    [format!("Content-Type: {content_type}\r\n\r\n").as_bytes(), body].concat()
}

#[test]
fn several() {
    const LENGTH: u64 = 700_001;
    let origin = Origin::start();
    let bytes = noise(4, LENGTH as usize);
    let original = origin.put("a.bin", &bytes);
    let mut client = origin.client();
    let mut random = Random::new(4711);
    let (mut files, mut expected) = (Vec::new(), Vec::new());
    for i in 0..150 {
        let count = 2 + random.below(12);
        let (asked, ranges): (Vec<_>, Vec<_>) =
            (0..count).map(|_| random_range(&mut random, LENGTH)).unzip();
        let asked = format!("bytes={}", asked.join(if i % 2 == 0 { "," } else { " , " }));
        let answer = client.get("/vod/a.bin", &[("Range", &asked)]);
        // The answer is never longer than the file.
        assert!(answer.body.len() <= bytes.len(), "{asked}: {}", answer.body.len());
        if answer.status() == 200 {
            assert!(answer.body == bytes, "{asked}");
            continue;
        }
        assert_eq!(answer.status(), 206, "{asked}");
        if answer.header("Content-Range").is_some() {
            // The ranges make up one.
            continue;
        }
        // The parts have the requested bytes and no others, in any order, each byte once.
        let path = origin.server.folder().join(format!("{i}.eml"));
        std::fs::write(&path, message(&answer)).unwrap();
        files.push(path);
        let mut wanted: Vec<_> = ranges;
        wanted.sort_by_key(|range| range.start);
        let mut merged: Vec<std::ops::Range<u64>> = Vec::new();
        for range in wanted {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        expected.push(merged);
    }
    assert!(files.len() > 20, "{} of them have several parts", files.len());
    let mut python = Command::new("python3");
    let output = Program::output(python.args(["-c", JUDGE]).arg(original).args(&files), LIMIT);
    let output = String::from_utf8(output).unwrap();
    let mut lines = output.lines();
    for merged in expected {
        let mut parts: Vec<_> = lines.next().unwrap().split(',').collect();
        parts.sort_by_key(|part| part.split('-').next().unwrap().parse::<u64>().unwrap());
        let merged: Vec<_> = merged.iter().map(|r| format!("{}-{}", r.start, r.end - 1)).collect();
        assert_eq!(parts, merged);
    }
    assert_eq!(lines.next(), None);

    // With curl the parts come in the requested order.
    let url = origin.server.url("/vod/a.bin");
    let got = curl(&origin, &["-i", "-r", "500-599,0-9,-5", &url]);
    let split = got.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(got[..split].to_vec()).unwrap();
    assert!(head.starts_with("HTTP/1.1 206 "), "{head}");
    let boundary = head.split("multipart/byteranges; boundary=").nth(1).unwrap();
    let boundary = boundary.split("\r\n").next().unwrap();
    let mut whole = Vec::new();
    for (i, range) in [500..600, 0..10, 699_996..700_001].into_iter().enumerate() {
        let before = if i == 0 { "" } else { "\r\n" };
        let (start, end) = (range.start, range.end - 1);
        whole.extend_from_slice(
            format!(
                "{before}--{boundary}\r\nContent-Type: application/octet-stream\r\n\
                 Content-Range: bytes {start}-{end}/700001\r\n\r\n"
            )
            .as_bytes(),
        );
        whole.extend_from_slice(&bytes[range]);
    }
    whole.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert_eq!(String::from_utf8_lossy(&got[split..]), String::from_utf8_lossy(&whole));
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", whole.len())), "{head}");
    assert!(!head.contains("\r\nContent-Range:"), "{head}");
}

/// A short request for very many ranges gets no more bytes than the file has.
#[test]
fn no_amplification() {
    let origin = Origin::start();
    let bytes = noise(5, 100_000);
    origin.put("a.bin", &bytes);
    let mut client = origin.client();
    let repeated = |spec: &str, times| format!("bytes={}", vec![spec; times].join(","));
    let scattered: Vec<_> = (0..600).map(|i| format!("{0}-{0}", i * 2)).collect();
    for asked in [
        repeated("0-", 1000),
        repeated("0-", 16),
        repeated("-1", 2000),
        repeated("0-0", 1500),
        repeated("0-99999", 700),
        "bytes=".to_owned() + &scattered.join(","),
        "bytes=".to_owned() + &scattered[..16].join(","),
        // Fifteen parts that are nearly the whole file.
        "bytes=".to_owned()
            + &(0..15)
                .map(|i| format!("{}-{}", i * 6600, i * 6600 + 6598))
                .collect::<Vec<_>>()
                .join(","),
    ] {
        let answer = client.get("/vod/a.bin", &[("Range", &asked)]);
        let shown = &asked[..asked.len().min(40)];
        assert!([200, 206].contains(&answer.status()), "{shown}: {answer:?}");
        assert!(answer.body.len() <= bytes.len(), "{shown}: {}", answer.body.len());
        if answer.status() == 200 {
            assert!(answer.body == bytes, "{shown}");
        }
    }
    // A `Range` that is too long for a head is refused like any other long head.
    let answer = client.get("/vod/a.bin", &[("Range", &repeated("0-1", 3000))]);
    assert_eq!(answer.status(), 431);
}

/// Offsets that need more than 32 bits. The file is sparse and takes no room.
#[test]
fn beyond_four_gibibytes() {
    use std::os::unix::fs::FileExt;
    const LENGTH: u64 = (5 << 30) + 123;
    let origin = Origin::start();
    let path = origin.put("large.mp4", b"");
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(LENGTH).unwrap();
    let mark = noise(6, 40_000);
    for at in [0, (4 << 30) - 20_000, LENGTH - 40_000] {
        file.write_all_at(&mark, at).unwrap();
    }
    let mut client = origin.client();
    let head = client.ask("HEAD", "/vod/large.mp4", &[], b"");
    assert_eq!(head.header("Content-Length"), Some(LENGTH.to_string().as_str()));
    let mut range = |asked: &str| {
        let answer = client.get("/vod/large.mp4", &[("Range", &format!("bytes={asked}"))]);
        assert_eq!(answer.status(), 206, "{asked}");
        (answer.header("Content-Range").map(str::to_owned), answer.body)
    };
    let four = 4u64 << 30;
    let (content_range, body) = range(&format!("{}-{}", four - 20_000, four + 19_999));
    assert_eq!(content_range, Some(format!("bytes {}-{}/{LENGTH}", four - 20_000, four + 19_999)));
    assert!(body == mark);
    let (_, body) = range("-40000");
    assert!(body == mark);
    let (_, body) = range(&format!("{}-", LENGTH - 10));
    assert!(body == mark[39_990..]);
    let (_, body) = range(&format!("{}-{}", four - 1_000_000, four + 1_000_000));
    assert_eq!(body.len(), 2_000_001);
    assert!(body[980_000..1_020_000] == mark);
    assert!(body[..980_000].iter().chain(&body[1_020_000..]).all(|&byte| byte == 0));
    // The whole file, from the beginning.
    client.send("GET", "/vod/large.mp4", &[], b"").unwrap();
    let (head, mut body) = client.begin().unwrap();
    assert_eq!(head.header("Content-Length"), Some(LENGTH.to_string().as_str()));
    let mut start = vec![0; 100_000];
    std::io::Read::read_exact(&mut body, &mut start).unwrap();
    assert!(start[..40_000] == mark);
}
