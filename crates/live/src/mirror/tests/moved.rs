//! Streams that another machine goes on with, and that come back.

use super::*;

/// A publisher of a rendition comes to the machine that goes on, before the stream's own publisher.
#[test]
fn whoever_comes_first_to_another_machine_begins_a_period() {
    let mut scene = Scene::new(3);
    (0..100).for_each(|_| {
        scene.publish(25, true);
        scene.carry(0);
    });
    let before = scene.other.stream("x").unwrap().track("v0").unwrap().window();
    let before = before.newest().unwrap();
    let copy = scene.move_on(PublisherInfo { rendition: Some("low".to_owned()), ..info() });
    (0..60).for_each(|_| scene.publish(25, false));
    let window = copy.track("v1").expect("the rendition").window();
    assert_eq!(window.all().next().unwrap().period, before.period + 1);
    // The stream's own publisher finds its place in that period. It does not continue what the first machine cut.
    let own = scene.other.publish("x", info(), scene.now).unwrap();
    let rendition = scene.publisher.replace(own);
    scene.announce();
    scene.frame = 0;
    (0..60).for_each(|_| scene.publish(25, true));
    for name in ["v0", "a0"] {
        let window = copy.track(name).expect("it is back").window();
        let first = window.all().find(|segment| segment.period > before.period).expect(name);
        assert_eq!((first.period, first.discontinuity), (before.period + 1, true), "{name}");
    }
    drop(rendition);
}

#[test]
fn whoever_goes_on_offers_what_another_machine_withheld() {
    let mut scene = Scene::new(9);
    (0..100).for_each(|_| scene.publish(25, true));
    scene.stream.offer(&scene.stream.track("v0").unwrap(), false);
    scene.carry(0);
    let copy = scene.other.stream("x").unwrap();
    assert!(!copy.track("v0").unwrap().is_present());
    scene.move_on(info());
    assert!(copy.track("v0").unwrap().is_present());
}

/// What is made of a stream's media ends where the stream becomes a copy, and changes nothing of it.
#[test]
fn nothing_is_made_here_of_a_stream_that_became_a_copy() {
    let mut scene = Scene::new(11);
    let mut derived = scene.stream.derive("low", Duration::ZERO, scene.now).unwrap();
    let low = avc::Config::parse(testkit::avc_record(10).into()).unwrap();
    derived.configure(Codec::Avc(low)).unwrap();
    (0..100).for_each(|_| scene.publish(25, true));
    let source = scene.stream.track("v0").unwrap().window();
    let segment = source.all().next().unwrap();
    let place = crate::SegmentId { period: segment.period, msn: segment.msn };
    let sample = |at: i64| Sample {
        dts: segment.start + at * 3600,
        cts: 0,
        duration: 0,
        sync: at == 0,
        data: Bytes::from_static(&[2; 8]),
    };
    (0..8).for_each(|at| drop(derived.sample(sample(at), place, scene.now).unwrap()));
    scene.publisher = None;
    assert!(scene.stream.become_copy());
    let refused = derived.sample(sample(8), place, scene.now);
    assert!(matches!(refused, Err(crate::Refused::Replaced)), "{refused:?}");
    let seen = || {
        let low = scene.stream.track("v1").unwrap().window();
        (scene.stream.state().version, low.version, low.newest().unwrap().parts.len())
    };
    let before = seen();
    drop(derived);
    assert_eq!(seen(), before);
}

/// The backup at another machine gives the stream back, and the primary needs a while until its next keyframe.
#[test]
fn a_stream_that_was_given_away_and_comes_back_waits_for_its_publisher() {
    let mut scene = Scene::new(12);
    (0..100).for_each(|_| scene.publish(25, true));
    scene.publisher = None;
    scene.registry.sweep(scene.now);
    assert!(scene.stream.become_copy());
    scene.now.0 += 60_000_000;
    assert!(scene.registry.adopt("x", scene.now));
    scene.registry.sweep(scene.now);
    assert_eq!(scene.stream.state().status, crate::Status::Offline);
    scene.publisher = Some(scene.registry.publish("x", info(), scene.now).unwrap());
    assert!(Arc::ptr_eq(scene.publisher.as_ref().unwrap().stream(), &scene.stream));
}

/// Where memory is short, a copy keeps three of the longest segments that the stream may have.
#[test]
fn a_copy_knows_how_long_segments_of_the_stream_may_be() {
    let mut scene = Scene::new(13);
    (0..600).for_each(|_| {
        scene.publish(250, true);
        scene.carry(0);
    });
    assert_eq!(scene.stream.target_duration(), Duration::from_secs(10));
    let longest = |stream: &Stream| -> Vec<_> {
        stream.lock().tracks.iter().map(|track| track.packager.longest_segment()).collect()
    };
    let copy = scene.other.stream("x").unwrap();
    assert_eq!(longest(&copy), [900_000, 480_000]);
    assert_eq!(longest(&copy), longest(&scene.stream));
}

/// Two streams whose publishers left were given to another machine. What follows needs more memory than there is.
#[test]
fn streams_that_were_given_away_give_way_like_other_copies() {
    let small = Registry::with_memory(Settings::default(), 4 << 20);
    let mut given: Vec<_> = ["x", "y"]
        .into_iter()
        .map(|name| {
            let mut scene = Scene::new(14);
            let settings = Settings { window: Duration::from_mins(2), ..Settings::default() };
            scene.other = Registry::new(settings);
            let publisher = small.publish(name, info(), scene.now).unwrap();
            let stream = Arc::clone(publisher.stream());
            scene.publisher = Some(publisher);
            scene.announce();
            (0..50).for_each(|_| scene.publish(25, true));
            scene.publisher = None;
            // The other machine has a copy, and goes on with it.
            let mut changes = Changes::new(&stream);
            let Some(Change::Stream(of)) = changes.take() else { panic!("no description") };
            let mut copy = scene.other.mirror(name, &of, scene.now).unwrap();
            copy.apply(&Change::Stream(of), scene.now).unwrap();
            while let Some(change) = changes.take() {
                assert_eq!(copy.apply(&change, scene.now).unwrap(), Taken::Yes);
            }
            assert!(stream.become_copy() && scene.other.adopt(name, scene.now));
            scene.publisher = Some(scene.other.publish(name, info(), scene.now).unwrap());
            scene.announce();
            scene.frame = 0;
            let mirror = small.resume_mirror(name).expect("it is a copy");
            let changes = Changes::since(copy.stream(), mirror.places());
            (scene, changes, mirror)
        })
        .collect();
    for _ in 0..4000 {
        for (scene, changes, mirror) in &mut given {
            scene.publish(25, true);
            while let Some(change) = changes.take() {
                assert_ne!(mirror.apply(&change, scene.now).unwrap(), Taken::Missing);
            }
        }
    }
    let memory = small.memory();
    assert!(memory.given_up > 5 && memory.used <= memory.limit, "{memory:?}");
}

/// The segment after the first one is foretold by it, so it must last as long as it is shown.
#[test]
fn the_first_segment_of_another_machine_lasts_as_long_as_it_is_shown() {
    let mut scene = Scene::new(7);
    (0..100).for_each(|_| {
        scene.publish(25, true);
        scene.carry(0);
    });
    let copy = scene.move_on(info());
    (0..200).for_each(|_| scene.publish(25, true));
    let window = copy.track("v0").unwrap().window();
    let period = window.newest().unwrap().period;
    let segments: Vec<_> = window.all().filter(|segment| segment.period == period).collect();
    assert!(segments.len() > 3 && segments[0].discontinuity);
    for pair in segments.windows(2) {
        let shown = u64::try_from(pair[1].presents - pair[0].presents).unwrap();
        assert_eq!(pair[0].duration, shown, "{}", pair[0].msn);
    }
}

/// A copy that was begun just now has parts of the tracks, but has shown none of them, when it becomes the stream. Another
/// copy, which has seen many versions, still shows what comes.
#[test]
fn versions_grow_where_a_young_copy_goes_on() {
    let mut scene = Scene::new(5);
    (0..10_000).for_each(|_| {
        scene.publish(25, true);
        scene.carry(0);
    });
    let old = scene.other.stream("x").unwrap();
    let version = |stream: &Stream, name| stream.track(name).expect(name).window().version;
    assert!(version(&old, "v0") > 1100 && version(&old, "a0") > 1100, "many versions");

    let third = Registry::new(Settings::default());
    let mut changes = Changes::new(&scene.stream);
    let Some(Change::Stream(of)) = changes.take() else { panic!("no description") };
    let mut young = third.mirror("x", &of, scene.now).unwrap();
    young.apply(&Change::Stream(of), scene.now).unwrap();
    while let Some(change) = changes.take() {
        if matches!(change, Change::Part(_)) {
            assert_eq!(young.apply(&change, scene.now).unwrap(), Taken::Yes);
        }
    }
    let stream = third.stream("x").unwrap();
    assert_eq!(version(&stream, "v0"), 0, "nothing is shown");
    assert!(third.adopt("x", scene.now));
    drop(young);

    scene.now.0 += 1_000_000;
    scene.publisher = Some(third.publish("x", info(), scene.now).unwrap());
    scene.announce();
    scene.frame = 0;
    (0..100).for_each(|_| scene.publish(25, true));
    let mut mirror = scene.mirror.take().expect("a copy");
    let mut changes = Changes::since(&stream, mirror.places());
    while let Some(change) = changes.take() {
        mirror.apply(&change, scene.now).unwrap();
    }
    for name in ["v0", "a0"] {
        assert_eq!(version(&old, name), version(&stream, name), "{name}");
        let newest = |stream: &Stream| {
            let window = stream.track(name).expect(name).window();
            window.newest().map(|newest| (newest.msn, newest.parts.len()))
        };
        assert_eq!(newest(&old), newest(&stream), "{name}");
    }
}
