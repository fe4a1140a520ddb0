//! What strangers say of themselves before anything is decided: the trace that a request belongs to (`traceparent`), its
//! id (`X-Request-Id`), and the query of an encoder in Adobe's exchange of RTMP.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::LazyLock;

use headwater::access::Access;
use headwater::config::Config;
use headwater::traces::Context;
use http::net::request_id;
use libfuzzer_sys::fuzz_target;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The longest message of a refusal: with the longest user that is taken, a salt and the challenge twice.
const LONGEST: usize = 600;

static ACCESS: LazyLock<Access> = LazyLock::new(|| {
    let text = "[access]\nrtmp_challenge = true\n[[access.rule]]\nactions = [\"publish\"]\n\
                user = \"alice\"\npassword = \"of which the fuzzer knows nothing\"\n";
    let config = Config::parse(text, Path::new("headwater.toml")).unwrap();
    Access::load(&config.access).unwrap()
});

/// What an encoder is told that connects with this query. `None` if it may go on.
fn refusal(query: &str, program: &str) -> Option<String> {
    match ACCESS.connects(query.to_owned(), program, HERE) {
        Ok(counts) => {
            // Nobody knows the password, so nothing is added to what was given.
            assert!(counts == query && !query.split('&').any(|pair| pair.starts_with("authmod=")));
            None
        }
        Err(rejected) => {
            assert!(rejected.told.len() <= LONGEST);
            Some(rejected.told)
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else { return };
    let text = std::str::from_utf8(data).unwrap_or_default();
    match kind % 4 {
        0 => {
            if let Some(Context { trace, span, is_sampled }) = Context::parse(text) {
                assert!(trace != 0 && span != 0);
                let same = format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(is_sampled));
                assert_eq!(Context::parse(&same), Some(Context { trace, span, is_sampled }));
            }
        }
        1 => {
            if let Some(id) = request_id::given(data) {
                assert!(id.as_bytes() == data && !id.is_empty() && id.len() <= 64);
                assert!(id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'));
            }
        }
        2 => {
            let (program, query) = text.split_once('\n').unwrap_or(("FMLE/3.0", text));
            let _ = refusal(query, program);
        }
        _ => {
            // With a challenge of ours, only the response is missing.
            let (user, answer) = text.split_once('\n').unwrap_or((text, ""));
            let asked =
                refusal(&format!("authmod=adobe&user={user}"), "FMLE/3.0").unwrap_or_default();
            if let Some((_, challenge)) = asked.rsplit_once("&opaque=") {
                let query = format!("authmod=adobe&user={user}&opaque={challenge}&{answer}");
                assert!(refusal(&query, "FMLE/3.0").is_some());
            }
        }
    }
});
