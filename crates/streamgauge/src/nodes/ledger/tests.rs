use super::*;

fn ledger(nodes: usize) -> Ledger {
    Ledger::new((0..nodes).map(|node| format!("n{node}")).collect())
}

fn object(body: &str, etag: &str) -> Object {
    let fields = [etag.to_owned(), "video/mp4".to_owned(), String::new()];
    Object { body: Bytes::copy_from_slice(body.as_bytes()), fields, ..Object::default() }
}

fn at(millis: u64) -> Option<Duration> {
    Some(Duration::from_millis(millis))
}

#[test]
fn the_first_byte_that_differs_is_named() {
    let mut ledger = ledger(3);
    for (node, body, etag) in [(1, "abcdef", "1"), (0, "abcxef", "1"), (2, "abcde", "2")] {
        ledger.record(node, ("x.m4s", Kind::Lasting), (100, object(body, etag)), None);
    }
    let (counts, differences, _) = ledger.finish();
    assert_eq!((counts.objects, counts.bytes, counts.differences), (1, 6, 2));
    let of = |at: usize| {
        let Difference { node, from, what, offset, lengths, .. } = &differences[at];
        (&**node, &**from, &**what, *offset, *lengths)
    };
    assert_eq!(of(0), ("n0", "n1", "body", Some(103), Some([6, 6])));
    assert_eq!(of(1), ("n2", "n1", "body", Some(105), Some([5, 6])));
}

#[test]
fn fields_are_compared_of_the_same_bytes() {
    let mut ledger = ledger(2);
    let other = Object { aside: "LAST-PART=3".to_owned(), ..object("a", "2") };
    ledger.record(0, ("p", Kind::State), (0, object("a", "1")), None);
    ledger.record(1, ("p", Kind::State), (0, other), None);
    ledger.record(0, ("q", Kind::Lasting), (0, object("a", "1")), None);
    ledger.record(1, ("q", Kind::Lasting), (0, object("a", "2")), None);
    let (counts, differences, _) = ledger.finish();
    assert_eq!((counts.other_reports, counts.states, counts.objects), (1, 1, 2));
    assert_eq!(counts.other_reports_same_etag, 0);
    assert_eq!(differences.len(), 1);
    assert_eq!((&*differences[0].object, &*differences[0].what), ("q", "ETag"));
    assert_eq!(differences[0].values, Some(["2".to_owned(), "1".to_owned()]));
}

#[test]
fn what_is_being_made_has_no_etag_yet() {
    let growing = |etag: &str| Object { is_growing: true, ..object("a", etag) };
    // Each node's answer, and how many differ from the first that says more.
    for (answers, differ) in [
        ([growing(""), object("a", "1"), object("a", "1")], 0),
        ([object("a", "1"), growing(""), growing("")], 0),
        ([growing(""), growing(""), object("a", "1")], 0),
        ([growing(""), object("a", "1"), object("a", "2")], 1),
        ([growing("1"), growing("2"), growing("")], 1),
        // An answer with a length is of what is whole.
        ([growing(""), object("a", ""), object("a", "1")], 1),
        ([object("a", "1"), object("a", ""), growing("")], 1),
    ] {
        let mut ledger = ledger(3);
        for (node, answer) in answers.iter().enumerate() {
            ledger.record(node, ("x.m4s", Kind::Lasting), (0, answer.clone()), None);
        }
        let (counts, differences, _) = ledger.finish();
        assert_eq!(counts.differences, differ, "{answers:?}");
        assert!(differences.iter().all(|difference| difference.what == "ETag"));
    }
}

#[test]
fn nodes_are_as_late_as_they_are() {
    let mut ledger = ledger(2);
    for n in 0..100 {
        let name = format!("{n}");
        // One in ten comes first from node 1.
        let (zero, one) = if n % 10 == 0 { (5, 0) } else { (0, 20) };
        let object = || (0, object("a", "1"));
        ledger.record(0, (&name, Kind::Lasting), object(), at(1000 + zero));
        ledger.record(1, (&name, Kind::Lasting), object(), at(1000 + one));
    }
    // Nobody saw when node 0 got this one.
    ledger.record(0, ("old", Kind::Lasting), (0, object("a", "1")), None);
    ledger.record(1, ("old", Kind::Lasting), (0, object("a", "1")), at(90_000));
    let (counts, _, behind) = ledger.finish();
    assert_eq!(counts.objects, 101);
    assert_eq!(behind[0].as_ref().unwrap().worst.as_deref(), Some("0"));
    let [zero, one] = [0, 1].map(|node| behind[node].as_ref().unwrap().times);
    assert_eq!((zero.count, one.count), (100, 100));
    assert!(zero.p50 == 0.0 && (zero.max - 0.005).abs() < 1e-4, "{zero:?}");
    assert!((one.p50 - 0.02).abs() < 1e-4 && one.min == 0.0, "{one:?}");
}

#[test]
fn what_a_node_lacks_is_told_and_states_may_be_missed() {
    let mut ledger = ledger(2);
    ledger.record(0, ("a", Kind::Lasting), (0, object("a", "1")), None);
    ledger.record(0, ("s", Kind::State), (0, object("a", "1")), None);
    assert_eq!((ledger.lacks(1), ledger.lacks(0).len()), (vec!["a".to_owned()], 0));
    ledger.absent(1, "a", "status 404");
    let (counts, differences, _) = ledger.finish();
    assert_eq!((counts.differences, counts.states_of_some), (1, 1));
    assert_eq!((&*differences[0].what, &*differences[0].node), ("absent", "n1"));
}

#[test]
fn a_playlist_that_a_node_never_answers_is_absent() {
    let mut ledger = ledger(2);
    ledger.record(0, ("x", Kind::Lasting), (0, object("a", "1")), None);
    ledger.record(1, ("x", Kind::Lasting), (0, object("a", "1")), None);
    ledger.listed(0, "p");
    ledger.record(0, ("p in state 1", Kind::State), (0, object("a", "1")), None);
    assert_eq!((ledger.unlisted(1), ledger.unlisted(0).len()), (vec!["p".to_owned()], 0));
    ledger.absent(1, "p", "status 500");
    let (counts, differences, _) = ledger.finish();
    assert_eq!((counts.differences, counts.never_in_one_state), (1, 1));
    assert_eq!((&*differences[0].what, &*differences[0].node), ("absent", "n1"));
    assert!(!counts.passed(false) && !counts.passed(true));
}

#[test]
fn playlists_are_compared_in_one_state_at_least() {
    for (other, never) in [("p in state 1", 0), ("p in state 2", 1)] {
        let mut ledger = ledger(2);
        for (node, state) in [(0, "p in state 1"), (1, other)] {
            ledger.record(node, ("x", Kind::Lasting), (0, object("a", "1")), None);
            ledger.listed(node, "p");
            ledger.record(node, (state, Kind::State), (0, object("a", "1")), None);
        }
        let (counts, ..) = ledger.finish();
        assert_eq!((counts.never_in_one_state, counts.passed(false)), (never, never == 0));
        assert!(counts.passed(true));
    }
}

#[test]
fn what_was_there_before_anybody_looked_is_asked_for_early() {
    let mut ledger = ledger(2);
    ledger.record(0, ("old", Kind::Lasting), (0, object("a", "1")), None);
    ledger.record(0, ("new", Kind::Lasting), (0, object("a", "1")), at(1000));
    assert_eq!((ledger.lacks_of_first(1), ledger.lacks(1).len()), (vec!["old".to_owned()], 2));
}

#[test]
fn what_waits_is_bounded() {
    let mut ledger = ledger(2);
    let body = Bytes::from(vec![0; MOST_BYTES / 4]);
    for n in 0..6 {
        let object = Object { body: body.clone(), ..Object::default() };
        ledger.record(0, (&n.to_string(), Kind::Lasting), (0, object), None);
    }
    assert!(ledger.bytes <= MOST_BYTES);
    let (counts, ..) = ledger.finish();
    assert_eq!((counts.given_up, counts.passed(true)), (2, false));
}

#[test]
fn a_node_that_is_far_ahead_is_told_until_others_have_caught_up() {
    let mut ledger = ledger(2);
    let body = Bytes::from(vec![0; MOST_BYTES / 16]);
    let object = || (0, Object { body: body.clone(), ..Object::default() });
    for n in 0..5 {
        assert!(!ledger.is_far_ahead(0), "{n}");
        ledger.record(0, (&n.to_string(), Kind::Lasting), object(), None);
    }
    assert!(ledger.is_far_ahead(0) && !ledger.is_far_ahead(1));
    ledger.record(1, ("0", Kind::Lasting), object(), None);
    assert!(!ledger.is_far_ahead(0));
    assert_eq!(ledger.objects(), 1);
    // What is given up waits no longer.
    for n in 5..40 {
        ledger.record(0, (&n.to_string(), Kind::Lasting), object(), None);
    }
    assert!(ledger.is_far_ahead(0) && ledger.bytes <= MOST_BYTES);
    assert_eq!(ledger.ahead[0].0, ledger.bytes);
    for n in 0..40 {
        ledger.absent(1, &n.to_string(), "status 404");
    }
    assert_eq!((ledger.ahead[0], ledger.bytes), ((0, 0), 0));
}
