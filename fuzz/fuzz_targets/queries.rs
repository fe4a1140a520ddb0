//! Queries of URLs: the directives of a blocking reload, in any state of the playlist, the parameters
//! of a push viewer, and what a player tells of itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::cmcd::Told;
use protocol::hls::{Decision, Request, State, advance_part_limit};
use protocol::push::query::{From, Query};

fuzz_target!(|data: &[u8]| {
    let Some((state, query)) = data.split_first_chunk::<12>() else { return };
    let Ok(query) = std::str::from_utf8(query) else { return };
    let &[a, b, c, d, e, f, g, h, open, last, target, flags] = state;
    let state = State {
        open_msn: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        open_parts: open.into(),
        last_segment_parts: last.into(),
        part_target_micros: (flags & 1 == 0).then_some(u64::from(target) * 5000),
        ended: flags & 2 != 0,
    };
    if let Ok(request) = Request::parse(query) {
        match request.decide(&state) {
            Decision::Now => {}
            Decision::Wait { msn, part } => {
                // No request waits for something that is far ahead.
                assert!(msn >= state.open_msn && msn - state.open_msn <= 1);
                let limit = advance_part_limit(state.part_target_micros.unwrap_or(0));
                assert!(part.is_none_or(|part| part < state.open_parts.saturating_add(limit)));
                assert!(!state.ended);
            }
            Decision::TooFar => assert!(request.msn.is_some() && !state.ended),
        }
    }
    let told = Told::parse(query);
    assert!(told.session.is_none_or(|session| query.contains(session)));
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    if let Ok(query) = Query::parse(pairs) {
        assert!(query.max.is_none_or(|most| most > 0));
        if let From::At(time) = query.from {
            let _ = time.as_micros();
        }
    }
});
