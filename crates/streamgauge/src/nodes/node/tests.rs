use std::sync::Arc;

use tokio::task::LocalSet;
use viewer::tls::{Trust, client_config};

use super::*;

/// The nodes `a` and `b`, and what they have answered.
fn nodes() -> ([Rc<Node>; 2], Rc<RefCell<Ledger>>) {
    let names = ["a", "b"].map(str::to_owned).to_vec();
    let ledger = Rc::new(RefCell::new(Ledger::new(names)));
    let tls = Arc::new(client_config(&Trust::Anybody).unwrap());
    let (stop, stopped) = watch::channel(false);
    drop(stop);
    let node = |place| {
        let url = Url::parse("http://127.0.0.1:9/x.m3u8").unwrap();
        let client = Client::new(&tls, Duration::from_secs(10));
        let (ledger, stopped) = (Rc::clone(&ledger), stopped.clone());
        Rc::new(Node::new((place, url), client, ledger, Instant::now(), stopped))
    };
    ([node(0), node(1)], ledger)
}

fn object(body: &Bytes) -> Object {
    Object { body: body.clone(), ..Object::default() }
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_seen_again_counts_once() {
    let ([a, b], ledger) = nodes();
    let (state, body) = (|| "7 to 8.1".to_owned(), Bytes::from_static(b"x"));
    let (mut last, mut of_b) = (None, None);
    a.record_state(("p", state()), object(&body), None, &mut last);
    b.record_state(("p", state()), object(&body), None, &mut of_b);
    // It is complete. Polling shows it again, and that is no other state.
    a.record_state(("p", state()), object(&body), None, &mut last);
    b.record_state(("p", state()), object(&body), None, &mut of_b);
    let ended = std::mem::replace(&mut *ledger.borrow_mut(), Ledger::new(Vec::new()));
    let (counts, ..) = ended.finish();
    assert_eq!((counts.states, counts.states_of_some, counts.never_in_one_state), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_ahead_waits_for_the_others_but_not_for_ever() {
    let ([a, b], ledger) = nodes();
    let body = Bytes::from(vec![0; 50 << 20]);
    for n in 0..3 {
        a.record(&n.to_string(), Kind::Lasting, object(&body), None);
    }
    let began = Instant::now();
    let local = LocalSet::new();
    let (waiting, of_b) = (Rc::clone(&a), body.clone());
    local.spawn_local(async move {
        let body = of_b;
        sleep(Duration::from_secs(4)).await;
        b.record("0", Kind::Lasting, object(&body), None);
        sleep(Duration::from_secs(4)).await;
        b.record("1", Kind::Lasting, object(&body), None);
    });
    local.run_until(async move { waiting.wait_for_others().await }).await;
    let waited = began.elapsed();
    assert!((8..9).contains(&waited.as_secs()), "{waited:?}");
    assert!(!ledger.borrow().is_far_ahead(0));
    // Where the others answer nothing, it goes on.
    a.record("3", Kind::Lasting, object(&body), None);
    let began = Instant::now();
    a.wait_for_others().await;
    assert!((5..6).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn many_objects_beside_a_dead_node_take_one_wait() {
    let ([a, b], _) = nodes();
    let body = Bytes::from(vec![0; 50 << 20]);
    for n in 0..3 {
        a.record(&n.to_string(), Kind::Lasting, object(&body), None);
    }
    let began = Instant::now();
    for _ in 0..100 {
        a.wait_for_others().await;
    }
    assert!((5..6).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    // The other goes on, and stops again.
    b.record("0", Kind::Lasting, object(&body), None);
    a.record("3", Kind::Lasting, object(&body), None);
    let began = Instant::now();
    for _ in 0..100 {
        a.wait_for_others().await;
    }
    assert!((5..6).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_new_object_is_not_behind_others_that_wait() {
    let ([a, _], _) = nodes();
    let body = Bytes::from(vec![0; 50 << 20]);
    for n in 0..3 {
        a.record(&n.to_string(), Kind::Lasting, object(&body), None);
    }
    let wanted = |n: u32, is_new| {
        let url = a.url.resolve(&format!("{n}.m4s")).unwrap();
        Wanted { url, range: None, is_new }
    };
    let began = Instant::now();
    let local = LocalSet::new();
    let ended = async {
        for n in 0..40 {
            a.want(wanted(n, false));
        }
        a.want(wanted(40, true));
        // Nobody listens at the node's port, so what was asked for is a trouble.
        while a.troubles().0 == 0 {
            sleep(LOOKS).await;
        }
        assert_eq!(a.under_way.get(), 40, "{:?}", began.elapsed());
        assert!(began.elapsed() < WAITS, "{:?}", began.elapsed());
        a.finish().await;
    };
    local.run_until(ended).await;
    assert_eq!(a.troubles().0, 41);
    // All together have waited once.
    assert!(began.elapsed() < 2 * WAITS, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_silent_at_the_end_is_given_up() {
    let ([a, _], _) = nodes();
    a.under_way.set(2);
    let local = LocalSet::new();
    let node = Rc::clone(&a);
    local.spawn_local(async move {
        // One good answer comes.
        sleep(Duration::from_secs(20)).await;
        node.answered.set(Instant::now());
        node.under_way.set(1);
        while !node.is_given_up.get() {
            sleep(LOOKS).await;
        }
        node.under_way.set(0);
    });
    let began = Instant::now();
    local.run_until(async { a.finish().await }).await;
    assert_eq!(began.elapsed().as_secs(), 50);
}

#[test]
fn names_lead_back() {
    for (name, range) in [("v0/1.m4s", None), ("x?a=b", Some((0, 99)))] {
        assert_eq!(parse_name(&object_name(name, range)), (name, range));
    }
}
