//! When requests are answered.

use proptest::prelude::*;
use protocol::hls::{Decision, Request, RequestError, Skip, State};

use super::support::live;

#[test]
fn queries() {
    let request = |msn, part, skip| Ok(Request { msn, part, skip });
    for (query, expected) in [
        ("", request(None, None, Skip::No)),
        ("token=abc&x", request(None, None, Skip::No)),
        ("_HLS_msn=12", request(Some(12), None, Skip::No)),
        ("_HLS_msn=12&_HLS_part=3", request(Some(12), Some(3), Skip::No)),
        ("_HLS_part=3&a=b&_HLS_msn=12", request(Some(12), Some(3), Skip::No)),
        ("_HLS_skip=YES", request(None, None, Skip::Yes)),
        ("_HLS_msn=1&_HLS_skip=v2", request(Some(1), None, Skip::V2)),
        ("_HLS_msn=18446744073709551615", request(Some(u64::MAX), None, Skip::No)),
        ("_HLS_msn=18446744073709551616", Err(RequestError::Number("_HLS_msn"))),
        ("_HLS_msn=", Err(RequestError::Number("_HLS_msn"))),
        ("_HLS_msn", Err(RequestError::Number("_HLS_msn"))),
        ("_HLS_msn=+1", Err(RequestError::Number("_HLS_msn"))),
        ("_HLS_msn=-1", Err(RequestError::Number("_HLS_msn"))),
        ("_HLS_msn=1&_HLS_part=x", Err(RequestError::Number("_HLS_part"))),
        ("_HLS_msn=1&_HLS_msn=2", Err(RequestError::Twice("_HLS_msn"))),
        ("_HLS_part=1", Err(RequestError::PartWithoutSegment)),
        ("_HLS_skip=NO", Err(RequestError::Skip)),
        ("_HLS_skip=yes", Err(RequestError::Skip)),
    ] {
        assert_eq!(Request::parse(query), expected, "{query}");
    }
}

#[test]
fn decisions() {
    // Segments 10 to 13, four parts each; segment 14 has one part so far. Parts of half a
    // second: at most six parts ahead.
    let state = live(4).state();
    assert_eq!(
        state,
        State {
            open_msn: 14,
            open_parts: 1,
            last_segment_parts: 4,
            part_target_micros: Some(500_000),
            ended: false,
        }
    );
    let wait = |msn, part| Decision::Wait { msn, part };
    for (msn, part, expected) in [
        (None, None, Decision::Now),
        // Gone long ago, and complete.
        (Some(0), None, Decision::Now),
        (Some(0), Some(99), Decision::Now),
        (Some(13), None, Decision::Now),
        (Some(13), Some(3), Decision::Now),
        (Some(12), Some(4), Decision::Now),
        // A part behind the end of 13 means part 0 of 14, which exists.
        (Some(13), Some(4), Decision::Now),
        (Some(13), Some(99), Decision::Now),
        // The open segment.
        (Some(14), Some(0), Decision::Now),
        (Some(14), Some(1), wait(14, Some(1))),
        (Some(14), Some(6), wait(14, Some(6))),
        (Some(14), Some(7), Decision::TooFar),
        (Some(14), Some(u64::MAX), Decision::TooFar),
        (Some(14), None, wait(14, None)),
        // The segment after the open one: two more than the last complete segment.
        (Some(15), Some(0), wait(15, Some(0))),
        (Some(15), Some(5), wait(15, Some(5))),
        (Some(15), Some(6), Decision::TooFar),
        (Some(15), None, wait(15, None)),
        (Some(16), None, Decision::TooFar),
        (Some(16), Some(0), Decision::TooFar),
        (Some(u64::MAX), Some(u64::MAX), Decision::TooFar),
    ] {
        let request = Request { msn, part, skip: Skip::No };
        assert_eq!(request.decide(&state), expected, "{request:?}");
        let ended = State { ended: true, ..state };
        assert_eq!(request.decide(&ended), Decision::Now, "{request:?}");
    }

    // Segment 14 complete with two parts, 15 not begun.
    let state = State { open_msn: 15, open_parts: 0, last_segment_parts: 2, ..state };
    for (msn, part, expected) in [
        (14, None, Decision::Now),
        (14, Some(1), Decision::Now),
        // A player that expected four parts waits for part 0 of 15.
        (14, Some(2), wait(15, Some(0))),
        (14, Some(99), wait(15, Some(0))),
        (15, Some(0), wait(15, Some(0))),
        (16, None, wait(16, None)),
        (17, None, Decision::TooFar),
    ] {
        let request = Request { msn: Some(msn), part, skip: Skip::No };
        assert_eq!(request.decide(&state), expected, "{request:?}");
    }

    // Parts of a second or more: at most three ahead.
    let slow = State { part_target_micros: Some(1_000_000), ..state };
    let request = |part| Request { msn: Some(15), part: Some(part), skip: Skip::No };
    assert_eq!(request(2).decide(&slow), wait(15, Some(2)));
    assert_eq!(request(3).decide(&slow), Decision::TooFar);

    // In a playlist without parts, the player waits for the segment itself. The stream has just
    // begun.
    let plain = State { part_target_micros: None, open_msn: 0, last_segment_parts: 0, ..state };
    let request = |msn| Request { msn: Some(msn), part: Some(0), skip: Skip::No };
    assert_eq!(request(0).decide(&plain), wait(0, None));
    assert_eq!(request(1).decide(&plain), wait(1, None));
    assert_eq!(request(2).decide(&plain), Decision::TooFar);
}

proptest! {
    #[test]
    fn parsing_and_deciding_never_panic(
        query in "(_HLS_msn|_HLS_part|_HLS_skip|&|=|[0-9]{1,21}|YES|v2|\\PC){0,12}",
        open_msn in any::<u64>(),
        open_parts in any::<u64>(),
        last_segment_parts in any::<u64>(),
        part_target_micros in any::<Option<u64>>(),
        ended in any::<bool>(),
    ) {
        let state = State { open_msn, open_parts, last_segment_parts, part_target_micros, ended };
        if let Ok(request) = Request::parse(&query) {
            match request.decide(&state) {
                // The awaited segment or part does not exist yet, but is near.
                Decision::Wait { msn, .. } => {
                    prop_assert!(msn >= open_msn && msn - open_msn <= 1 && !ended);
                }
                Decision::TooFar => prop_assert!(request.msn.is_some() && !ended),
                Decision::Now => {}
            }
        }
    }
}
