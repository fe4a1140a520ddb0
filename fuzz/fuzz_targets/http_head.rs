//! Any bytes as the head of a request: nothing panics, no bytes are taken that were not understood,
//! and accepted requests satisfy the documented properties.

#![no_main]

use std::net::{Ipv4Addr, SocketAddr};

use bytes::BytesMut;
use http::{ByteRanges, Request, Validators};
use libfuzzer_sys::fuzz_target;

const MAX_HEAD: usize = 8 << 10;

fuzz_target!(|data: &[u8]| {
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let mut input = BytesMut::from(data);
    loop {
        let before = input.len();
        match Request::parse(&mut input, peer, MAX_HEAD) {
            Ok(Some(request)) => {
                assert!(input.len() < before && before - input.len() <= MAX_HEAD);
                check(&request);
            }
            Ok(None) => {
                assert!(input.len() == before && before <= MAX_HEAD);
                break;
            }
            Err(reason) => {
                assert_eq!(input.len(), before);
                assert!([400, 404, 431].contains(&reason.status()));
                break;
            }
        }
    }
});

fn check(request: &Request) {
    let path = request.path();
    assert!(path.starts_with('/') || path == "*");
    assert!(!path.contains("//") && !path.contains('\\'));
    assert!(!path.chars().any(|character| character.is_ascii_control()));
    assert!(request.segments().all(|segment| !["", ".", ".."].contains(&segment)));
    assert!(request.target().is_ascii() || !request.target().is_empty());
    for (name, value) in request.headers() {
        assert!(!name.is_empty() && !value.contains(['\r', '\n', '\0']));
        if let ByteRanges::Parts(parts) = ByteRanges::select(value, 1000) {
            assert!(parts.iter().all(|part| part.start < part.end && part.end <= 1000));
            assert!(parts.iter().map(|part| part.end - part.start).sum::<u64>() <= 1000);
        }
    }
    request.query_pairs().for_each(drop);
    let validators = Validators { etag: Some("a"), modified: Some(std::time::UNIX_EPOCH) };
    let _ = (validators.evaluate(request), validators.range_applies(request));
}
