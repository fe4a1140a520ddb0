use super::*;

const START: UnixMicros = UnixMicros(1_700_000_000_000_000);

fn announce(node: &str, streams: &[(&str, u64)]) -> Announcement {
    let streams = streams.iter().map(|&(name, epoch)| (name.to_owned(), epoch, true)).collect();
    let announcement = Announcement {
        node: node.to_owned(),
        address: format!("http://{node}"),
        zone: "eu".to_owned(),
        viewers: 0,
        ready: true,
        message: (0, 1),
        streams,
        seats: Vec::new(),
        report: None,
    };
    Announcement::read(&announcement.write().unwrap()).unwrap()
}

fn at(millis: u64) -> UnixMicros {
    START.after(Duration::from_millis(millis))
}

#[test]
fn the_newest_lease_counts_and_who_is_silent_has_nothing() {
    let mut directory = Directory::default();
    let holder = |directory: &Directory, millis| {
        directory.holder("x", at(millis)).map(|holder| (holder.node, holder.epoch))
    };
    assert_eq!(holder(&directory, 0), None);
    directory.hear(announce("a", &[("x", 5), ("y", 6)]), at(0));
    assert_eq!(holder(&directory, 9_999), Some(("a".to_owned(), 5)));
    // It moved, and the old node does not know that yet.
    directory.hear(announce("b", &[("x", 9)]), at(1000));
    directory.hear(announce("a", &[("x", 5)]), at(2000));
    assert_eq!(holder(&directory, 2000), Some(("b".to_owned(), 9)));
    assert_eq!(holder(&directory, 11_000), Some(("a".to_owned(), 5)));
    assert!(directory.knows("a", at(11_999)) && !directory.knows("a", at(12_000)));
    directory.forget("a");
    assert!(!directory.knows("a", at(11_000)));
    assert_eq!(holder(&directory, 11_000), None);
    directory.hear(announce("b", &[]), at(20_000));
    let [known] = &directory.nodes()[..] else { panic!("{:?}", directory.nodes()) };
    assert_eq!((&*known.node, known.heard, known.streams.len()), ("b", at(20_000), 0));
}

#[test]
fn a_publisher_that_waits_is_known_and_its_node_does_not_have_the_stream() {
    let mut directory = Directory::default();
    let mut announcement = announce("a", &[("x", 5), ("y", 5)]);
    let live = Seats { live: Some(Role::Backup), waits: None };
    announcement.seats.push(("y".to_owned(), live));
    directory.hear(Announcement::read(&announcement.write().unwrap()).unwrap(), at(0));
    let mut announcement = announce("b", &[]);
    let waits = Seats { waits: Some(Role::Backup), ..Seats::default() };
    announcement.seats.push(("x".to_owned(), waits));
    directory.hear(announcement, at(0));
    let holder = |name| directory.holder(name, at(1)).map(|it| (it.publisher, it.node));
    assert_eq!(holder("x"), Some((Some(Role::Primary), "a".to_owned())));
    assert_eq!(holder("y"), Some((Some(Role::Backup), "a".to_owned())));
    let waits = |role, here| directory.waits("x", role, here, at(1));
    assert_eq!([waits(Role::Backup, "a"), waits(Role::Backup, "c")], [Some("b"); 2]);
    assert_eq!([waits(Role::Backup, "b"), waits(Role::Primary, "a")], [None; 2]);
    assert_eq!(directory.waits("x", Role::Backup, "a", at(20_000)), None);
    // Its node does not answer.
    directory.forget_waiting("b", "x");
    directory.forget_waiting("b", "z");
    directory.forget_waiting("c", "x");
    assert_eq!(directory.waits("x", Role::Backup, "a", at(1)), None);
    assert_eq!(directory.holder("x", at(1)).map(|it| it.node), Some("a".to_owned()));
}

#[test]
fn viewers_go_to_the_nearest_node_with_the_fewest() {
    let mut directory = Directory::default();
    assert_eq!(directory.route(None, START), None);
    for (node, zone, viewers, ready) in
        [("a", "eu", 3, true), ("b", "us", 2, true), ("c", "us", 0, false), ("d", "us", 5, true)]
    {
        let mut announcement = announce(node, &[]);
        (announcement.zone, announcement.viewers) = (zone.to_owned(), viewers);
        announcement.ready = ready;
        directory.hear(announcement, START);
    }
    let mut route = |zone| directory.route(zone, START).unwrap();
    assert_eq!(route(Some("eu")), "http://a");
    // In the United States, d has more than b until b has as many.
    let us: Vec<_> = (0..5).map(|_| route(Some("us"))).collect();
    assert_eq!(us, ["http://b", "http://b", "http://b", "http://b", "http://d"]);
    // Nobody is in Asia, and a has four by now.
    assert_eq!(route(Some("asia")), "http://a");
    assert_eq!(directory.route(None, START.after(FORGOTTEN)), None);
}

#[test]
fn an_announcement_of_many_streams_comes_in_several_messages() {
    let mut announcement = announce("a", &[]);
    let names = (0..2 * A_MESSAGE + 5).map(|number| (format!("s{number}"), 7, true));
    announcement.streams = names.collect();
    let messages = announcement.split();
    assert_eq!(messages.len(), 3);
    let mut directory = Directory::default();
    let count = |directory: &Directory| directory.nodes()[0].streams.len();
    let [first, second, third] = &messages[..] else { panic!("{messages:?}") };
    for message in [first, second] {
        assert!(message.write().unwrap().len() < 1 << 20);
        directory.hear(message.clone(), START);
        assert_eq!(count(&directory), 0);
    }
    directory.hear(third.clone(), START);
    assert_eq!(count(&directory), 2 * A_MESSAGE + 5);
    // Of the next, a message is lost: what was known stays until one comes whole.
    for message in [first, third] {
        directory.hear(message.clone(), START);
        assert_eq!(count(&directory), 2 * A_MESSAGE + 5);
    }
    directory.hear(announce("a", &[("x", 8)]), START);
    assert_eq!(count(&directory), 1);
}

#[test]
fn hostile_announcements_are_refused() {
    assert!(Announcement::read(&[]).is_err());
    let sealed = |rest: &[u8]| wire::seal([&[0; 4], rest].concat());
    let newer = [wire::FORMAT + 1, 1, b'a', 0, 0, 0, 0, 0, 1, 0];
    for bytes in [&[wire::FORMAT, 255, 255, 255, 255, 15], &newer[..]] {
        assert!(Announcement::read(&sealed(bytes)).is_err());
    }
    let damaged: Vec<_> = announce("a", &[]).write().unwrap().iter().map(|b| b ^ 1).collect();
    assert!(matches!(Announcement::read(&damaged), Err(wire::Error::Damaged)));
    let mut directory = Directory::default();
    for number in 0..MOST_NODES + 5 {
        directory.hear(announce(&format!("n{number}"), &[]), START);
    }
    assert_eq!(directory.nodes().len(), MOST_NODES);

    let mut directory = Directory::default();
    directory.hear(announce(&"n".repeat(LONGEST + 1), &[]), START);
    directory.hear(announce("n", &[(&"s".repeat(LONGEST + 1), 1)]), START);
    assert_eq!(directory.nodes(), []);
    for node in 0..12 {
        let mut announcement = announce(&format!("n{node}"), &[]);
        let names = (0..MOST_STREAMS + 5).map(|number| (format!("s{number}"), 7, true));
        announcement.streams = names.collect();
        directory.hear(announcement, START);
    }
    let counts: Vec<_> = directory.nodes().iter().map(|known| known.streams.len()).collect();
    assert_eq!(counts.iter().max(), Some(&MOST_STREAMS));
    assert_eq!(counts.iter().sum::<usize>(), 10 * MOST_STREAMS);
}

#[test]
fn a_report_may_be_missing_and_a_reader_may_pass_over_it() {
    let mut announcement = announce("a", &[("x", 5)]);
    let without = announcement.write().unwrap();
    announcement.report = Some(Report { load: 250, copies: vec![("y".to_owned(), 40)] });
    let with = announcement.write().unwrap();
    assert_eq!(Announcement::read(&with).unwrap(), announcement);
    assert_eq!(Announcement::read(&without).unwrap().report, None);
    // A node that knows nothing of reports reads the beginning, after the checksum.
    assert_eq!(with[4..without.len()], without[4..]);
    let cut = wire::seal(with[..with.len() - 1].to_vec());
    assert!(matches!(Announcement::read(&cut), Err(wire::Error::Format(_))));
}

#[test]
fn people_see_where_a_stream_is_and_how_far_its_copies_are() {
    let mut directory = Directory::default();
    let hear = |directory: &mut Directory, node, has: &[(&str, u64)], copies: &[(&str, u32)]| {
        let mut announcement = announce(node, has);
        let copies = copies.iter().map(|&(name, millis)| (name.to_owned(), millis)).collect();
        announcement.report = Some(Report { load: 250, copies });
        directory.hear(announcement, START);
    };
    hear(&mut directory, "a", &[("x", 5)], &[]);
    hear(&mut directory, "b", &[("x", 9), ("y", 3)], &[("z", 7000)]);
    hear(&mut directory, "c", &[], &[("x", 100), ("y", 200)]);
    let nodes = directory.nodes();
    assert_eq!(nodes[0].load, Some(250));
    let (shared, more) = streams(&nodes, 2);
    let x = Shared { name: "x", holder: Some(("b", true)), copies: vec![("c", 100)] };
    let y = Shared { name: "y", holder: Some(("b", true)), copies: vec![("c", 200)] };
    assert_eq!((shared, more), (vec![x, y], 1));
    let (shared, more) = streams(&nodes, 9);
    let z = Shared { name: "z", holder: None, copies: vec![("b", 7000)] };
    assert_eq!((shared.last(), more), (Some(&z), 0));
}

#[test]
fn a_node_that_has_gone_is_remembered_for_a_while() {
    let mut directory = Directory::default();
    let names = |nodes: Vec<Known>| nodes.into_iter().map(|known| known.node).collect::<Vec<_>>();
    directory.hear(announce("a", &[("x", 5)]), at(0));
    directory.hear(announce("b", &[]), at(5000));
    directory.expire(at(10_000));
    assert_eq!(
        (names(directory.nodes()), names(directory.gone())),
        (vec!["b".into()], vec!["a".into()])
    );
    let quiet = |directory: &Directory, millis| directory.quiet(Duration::from_secs(2), at(millis));
    assert_eq!((quiet(&directory, 6999), quiet(&directory, 7000)), (vec![], vec!["b".into()]));
    assert!(directory.has_gone("a") && !directory.has_gone("b") && !directory.has_gone("c"));
    directory.forget("b");
    assert!(directory.has_gone("b") && quiet(&directory, 7000).is_empty());
    assert_eq!(names(directory.gone()), ["a", "b"]);
    assert_eq!(directory.gone()[0].streams.len(), 0);
    // One that is back is not gone.
    directory.hear(announce("b", &[]), at(11_000));
    assert!(!directory.has_gone("b"));
    assert_eq!(
        (names(directory.nodes()), names(directory.gone())),
        (vec!["b".into()], vec!["a".into()])
    );
    directory.expire(START.after(REMEMBERED));
    assert_eq!(names(directory.gone()), ["b"]);
    for number in 0..MOST_GONE + 5 {
        let name = format!("n{number}");
        directory.hear(announce(&name, &[]), START.after(REMEMBERED));
        directory.forget(&name);
    }
    assert_eq!(directory.gone().len(), MOST_GONE);
}

#[test]
fn copies_are_split_and_bounded_like_streams() {
    let mut announcement = announce("a", &[("x", 5)]);
    let copies = (0..MOST_STREAMS + 5).map(|number| (format!("{number:0>128}"), 1)).collect();
    announcement.report = Some(Report { load: 1, copies });
    let mut directory = Directory::default();
    let messages = announcement.split();
    assert_eq!(messages.len(), 5);
    for message in messages {
        let bytes = message.write().unwrap();
        assert!(bytes.len() < 1 << 20);
        directory.hear(Announcement::read(&bytes).unwrap(), START);
    }
    let [known] = &directory.nodes()[..] else { panic!("{:?}", directory.nodes()) };
    assert_eq!((known.streams.len(), known.copies.len()), (1, MOST_STREAMS));
}
