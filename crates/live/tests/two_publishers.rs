//! A stream and its two publishers: no frame twice, numbers and names that go on, and a discontinuity each time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use live::backup::{Role, Seat, Seats, Times};
use live::{PublishError, PublisherInfo, Refused, Registry, Settings, Status, UnixMicros};
use media::codec::{aac, avc};
use media::{Codec, Sample};

/// Time between two frames, in milliseconds, and frames between two keyframes.
const FRAME: u64 = 40;
const KEYFRAMES: u64 = 25;

fn at(millis: u64) -> UnixMicros {
    UnixMicros(1_700_000_000_000_000).after(Duration::from_millis(millis))
}

fn seats() -> Arc<Seats> {
    let times = Times {
        after: Duration::from_secs(1),
        steady: Duration::from_secs(3),
        silence: Duration::from_secs(10),
    };
    Arc::new(Seats::new(Arc::new(Registry::new(Settings::default())), times))
}

/// An encoder. It writes its mark and the frame's number into each frame.
struct Encoder {
    seat: Seat,
    mark: u8,
    /// When its clock began. Each encoder has its own.
    began: u64,
    /// Its numbers for video and audio. Each protocol has its own.
    sources: [u32; 2],
}

impl Encoder {
    fn enter(seats: &Arc<Seats>, role: Role, mark: u8, millis: u64) -> Result<Self, PublishError> {
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let seat = seats.enter("x", (role, info), None, at(millis))?;
        let mut encoder = Self { seat, mark, began: millis, sources: [0, 256] };
        encoder.configure(31, millis).unwrap();
        Ok(encoder)
    }

    fn configure(&mut self, level: u8, millis: u64) -> Result<(), Refused> {
        let video = Codec::Avc(avc::Config::parse(testkit::avc_record(level).into()).unwrap());
        let audio = Codec::Aac(aac::Config::parse([0x11, 0x90].to_vec().into()).unwrap());
        self.seat.track(self.sources[0], video, 1000, *b"und", at(millis))?;
        self.seat.track(self.sources[1], audio, 48_000, *b"und", at(millis))
    }

    /// Sends the frame of this time, and the audio that belongs to it.
    fn send(&mut self, millis: u64) -> Result<(), Refused> {
        let since = millis - self.began;
        let number = since / FRAME;
        let mut data = vec![self.mark; 60];
        data[4..8].copy_from_slice(&u32::try_from(number).unwrap().to_be_bytes());
        let dts = i64::try_from(since).unwrap() + i64::from(self.mark) * 1_000_000;
        let sync = number.is_multiple_of(KEYFRAMES);
        let video = Sample { dts, cts: 0, duration: 0, sync, data: data.clone().into() };
        self.seat.sample(self.sources[0], video, at(millis))?;
        for unit in 0..2 {
            let dts = dts * 48 + unit * 960;
            let audio =
                Sample { dts, cts: 0, duration: 960, sync: true, data: data.clone().into() };
            self.seat.sample(self.sources[1], audio, at(millis))?;
        }
        Ok(())
    }
}

/// Encoders send for some time, each at its own moments.
fn send(encoders: &mut [&mut Encoder], millis: std::ops::Range<u64>) {
    for millis in millis.step_by(FRAME as usize) {
        for encoder in encoders.iter_mut() {
            encoder.send(millis).unwrap();
        }
    }
}

/// The runs of frames in a stream's video: whose they are, and the first and last frame of each.
fn runs(seats: &Seats) -> Vec<(u8, u32, u32)> {
    let window = seats.registry().stream("x").unwrap().track("v0").unwrap().window();
    let numbers: Vec<_> = window.all().map(|segment| segment.msn).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    let mut runs: Vec<(u8, u32, u32)> = Vec::new();
    let mut end = None;
    for segment in window.all() {
        for (index, part) in segment.parts.iter().enumerate() {
            let begins = index == 0 && segment.discontinuity;
            let is_next = |end: i64| part.start == end || part.start > end && begins;
            assert!(end.is_none_or(is_next), "{} is not at {end:?}", part.start);
            end = Some(part.start + i64::from(part.duration));
            for sample in &part.samples {
                let frame = part.sample(sample);
                let number = u32::from_be_bytes(*frame[4..].first_chunk().unwrap());
                match runs.last_mut() {
                    Some((mark, _, last)) if *mark == frame[0] => {
                        assert_eq!(number, *last + 1, "of {mark}");
                        *last = number;
                    }
                    _ => {
                        let is_told = runs.is_empty() || begins;
                        assert!(is_told && sample.sync, "frame {number} of {}", frame[0]);
                        runs.push((frame[0], number, number));
                    }
                }
            }
        }
    }
    runs
}

#[test]
fn viewers_get_one_publisher_after_the_other() {
    let seats = seats();
    let mut primary = Encoder::enter(&seats, Role::Primary, 1, 0).unwrap();
    send(&mut [&mut primary], 0..400);
    let mut backup = Encoder::enter(&seats, Role::Backup, 2, 400).unwrap();
    send(&mut [&mut primary, &mut backup], 400..4000);
    let stream = seats.registry().stream("x").unwrap();
    assert_eq!(runs(&seats).len(), 1);
    assert_eq!(seats.presence("x", at(4000)).waiting.len(), 1);

    // The primary pauses. The last of its frames came at 3960; the backup's keyframes are at 4400, 5400 and so on.
    send(&mut [&mut backup], 4000..9000);
    let presence = seats.presence("x", at(9000));
    assert_eq!((presence.live, presence.waiting.len()), (Some(Role::Backup), 0));
    let seen = runs(&seats);
    assert_eq!(seen[0], (1, 0, 99), "what came before the pause");
    assert_eq!((seen.len(), seen[1].0, seen[1].1), (2, 2, 125), "the keyframe at 5400");

    // The primary goes on: its frames are used from its keyframe at 12,000 on, three seconds after it returned.
    send(&mut [&mut primary, &mut backup], 9000..15_000);
    let presence = seats.presence("x", at(15_000));
    assert_eq!((presence.live, presence.waiting.len()), (Some(Role::Primary), 1));
    let seen = runs(&seats);
    assert_eq!((seen.len(), seen[1].2, seen[2].0, seen[2].1), (3, 289, 1, 300));
    let switches = seats.switches();
    assert_eq!((switches.to_backup, switches.to_primary), (1, 1));
    let tracks: Vec<_> = stream.state().tracks.iter().map(|track| track.name.clone()).collect();
    assert_eq!(tracks, ["v0", "a0"]);

    // A backup that waits disturbs nobody when it leaves. When the primary leaves as well, the stream waits.
    drop(backup);
    send(&mut [&mut primary], 15_000..16_000);
    assert_eq!(runs(&seats).len(), 3);
    assert!(!primary.seat.is_replaced());
    drop(primary);
    assert_eq!(stream.state().status, Status::Offline);
    assert_eq!(seats.presence("x", at(16_000)), live::backup::Presence::default());
}

#[test]
fn the_backup_goes_on_with_its_next_keyframe_when_the_primary_leaves() {
    let seats = seats();
    let mut primary = Encoder::enter(&seats, Role::Primary, 1, 0).unwrap();
    let mut backup = Encoder::enter(&seats, Role::Backup, 2, 0).unwrap();
    send(&mut [&mut primary, &mut backup], 0..4400);
    drop(primary);
    send(&mut [&mut backup], 4400..6000);
    let seen = runs(&seats);
    assert_eq!((seen[0], seen[1].0, seen[1].1), ((1, 0, 109), 2, 125));

    // The primary's encoder reconnects. A second backup and a second primary are refused.
    let mut primary = Encoder::enter(&seats, Role::Primary, 3, 6000).unwrap();
    send(&mut [&mut primary, &mut backup], 6000..6400);
    for role in Role::ALL {
        let refused = Encoder::enter(&seats, role, 4, 6400).map(|_| ()).unwrap_err();
        assert!(matches!(refused, PublishError::InUse(_)), "{refused}");
    }
    send(&mut [&mut primary, &mut backup], 6400..10_000);
    let seen = runs(&seats);
    assert_eq!((seen[1].2, seen[2].0, seen[2].1), (224, 3, 75), "{seen:?}");
}

#[test]
fn the_configuration_of_who_takes_over_counts() {
    let seats = seats();
    let mut primary = Encoder::enter(&seats, Role::Primary, 1, 0).unwrap();
    let mut backup = Encoder::enter(&seats, Role::Backup, 2, 0).unwrap();
    send(&mut [&mut primary, &mut backup], 0..2000);
    // It changes while its publisher waits.
    backup.configure(40, 2000).unwrap();
    drop(primary);
    send(&mut [&mut backup], 2000..6000);
    let runs = runs(&seats);
    assert_eq!((runs.len(), runs[1].1), (2, 50), "{runs:?}");
    let window = seats.registry().stream("x").unwrap().track("v0").unwrap().window();
    let levels: Vec<_> = window
        .all()
        .map(|segment| (segment.discontinuity, segment.header.track.codec.rfc6381().into_owned()))
        .collect();
    assert_eq!(levels.first().unwrap().1, "avc1.42c01f");
    let change = levels.iter().position(|(_, codec)| codec == "avc1.42c028").unwrap();
    assert!(levels[change].0, "{levels:?}");
}

#[test]
fn a_backup_by_another_protocol_goes_on_with_the_same_tracks() {
    let seats = seats();
    let mut primary = Encoder::enter(&seats, Role::Primary, 1, 0).unwrap();
    let mut backup = Encoder::enter(&seats, Role::Backup, 2, 0).unwrap();
    backup.seat.end_track(0, at(0));
    backup.seat.end_track(256, at(0));
    backup.sources = [1, 0];
    backup.configure(31, 0).unwrap();
    send(&mut [&mut primary, &mut backup], 0..2000);
    drop(primary);
    send(&mut [&mut backup], 2000..4000);
    let state = seats.registry().stream("x").unwrap().state();
    let tracks: Vec<_> = state.tracks.iter().map(|track| &*track.name).collect();
    assert_eq!((runs(&seats).len(), tracks), (2, vec!["v0", "a0"]));
}

#[test]
fn a_track_that_ended_while_its_publisher_waited_may_go_on_later() {
    let seats = seats();
    let mut primary = Encoder::enter(&seats, Role::Primary, 1, 0).unwrap();
    let mut backup = Encoder::enter(&seats, Role::Backup, 2, 0).unwrap();
    send(&mut [&mut primary, &mut backup], 0..2000);
    let audio = backup.sources[1];
    backup.seat.end_track(audio, at(2000));
    drop(primary);
    // It goes on without audio.
    let video = |dts: u64, sync| Sample {
        dts: i64::try_from(dts).unwrap(),
        cts: 0,
        duration: 0,
        sync,
        data: vec![2; 60].into(),
    };
    for millis in (2000..3000).step_by(40) {
        backup.seat.sample(0, video(millis, millis == 2000), at(millis)).unwrap();
    }
    assert_eq!(seats.presence("x", at(3000)).live, Some(Role::Backup));
    // Then it has audio again.
    for millis in (3000..5000_u64).step_by(20) {
        let dts = i64::try_from(millis * 48).unwrap();
        let data = vec![2; 60].into();
        let sample = Sample { dts, cts: 0, duration: 960, sync: true, data };
        backup.seat.sample(audio, sample, at(millis)).unwrap();
        if millis % 40 == 0 {
            backup.seat.sample(0, video(millis, millis % 1000 == 0), at(millis)).unwrap();
        }
    }
    let track = seats.registry().stream("x").unwrap().track("a0").unwrap();
    let window = track.window();
    let parts = window.all().flat_map(|segment| &segment.parts);
    let units = parts.flat_map(|part| part.samples.iter().map(|sample| part.sample(sample)[0]));
    assert!(units.filter(|mark| *mark == 2).count() > 50);
}

#[test]
fn a_rendition_has_no_backup_and_a_name_is_checked() {
    let seats = seats();
    let enter = |name: &str, rendition: Option<&str>| {
        let rendition = rendition.map(str::to_owned);
        let info = PublisherInfo { peer: None, protocol: "test", rendition };
        seats.enter(name, (Role::Backup, info), None, at(0)).map(|_| ())
    };
    assert_eq!(enter("x", Some("low")).unwrap_err(), PublishError::BackupOfRendition);
    assert!(matches!(enter("/", None), Err(PublishError::BadName(_))));
    enter("x", None).unwrap();
    assert!(seats.waiting(at(0)).is_empty());
}

#[test]
fn a_primary_that_flaps_leaves_the_backup_on_air() {
    let seats = seats();
    let mut backup = Encoder::enter(&seats, Role::Backup, 2, 0).unwrap();
    send(&mut [&mut backup], 0..2000);
    let mut millis = 2000;
    while millis < 62_000 {
        let mut primary = Encoder::enter(&seats, Role::Primary, 1, millis).unwrap();
        send(&mut [&mut primary, &mut backup], millis..millis + 4000);
        drop(primary);
        millis += 4000;
        send(&mut [&mut backup], millis..millis + 1000);
        millis += 1000;
    }
    // It was let back after three seconds twice. The third time takes six, for which it never stays.
    let switches = seats.switches();
    assert_eq!((switches.to_backup, switches.to_primary), (2, 2));
    let seen = runs(&seats);
    assert_eq!(seen.last().map(|run| (run.0, run.2)), Some((2, 1549)), "{seen:?}");

    let mut primary = Encoder::enter(&seats, Role::Primary, 3, millis).unwrap();
    send(&mut [&mut primary, &mut backup], millis..millis + 6000);
    assert_eq!(seats.presence("x", at(millis + 6000)).live, Some(Role::Backup));
    send(&mut [&mut primary, &mut backup], millis + 6000..millis + 7000);
    assert_eq!(seats.presence("x", at(millis + 7000)).live, Some(Role::Primary));
}

#[test]
fn a_primary_that_always_reconnects_at_once_leaves_the_backup_on_air() {
    let seats = seats();
    let mut primary = Encoder::enter(&seats, Role::Primary, 1, 0).unwrap();
    send(&mut [&mut primary], 0..400);
    let mut backup = Encoder::enter(&seats, Role::Backup, 2, 400).unwrap();
    send(&mut [&mut primary, &mut backup], 400..2000);
    for millis in (2000..62_000).step_by(1000) {
        drop(primary);
        primary = Encoder::enter(&seats, Role::Primary, 3, millis).unwrap();
        send(&mut [&mut primary, &mut backup], millis..millis + 1000);
    }
    assert_eq!(seats.presence("x", at(62_000)).live, Some(Role::Backup));
    let switches = seats.switches();
    assert_eq!((switches.to_backup, switches.to_primary), (1, 0));
    assert_eq!(runs(&seats).last().map(|run| (run.0, run.2)), Some((2, 1539)));
}

#[test]
fn who_takes_turns_too_often_is_held_up() {
    let seats = seats();
    // The two never send at the same time, so there is nothing better. Nobody can make players begin anew without end.
    let (mut millis, mut accepted) = (0, 0);
    while millis < 60_000 {
        for role in Role::ALL {
            match Encoder::enter(&seats, role, 1 + role as u8, millis) {
                Ok(mut encoder) => {
                    send(&mut [&mut encoder], millis..millis + 1000);
                    accepted += 1;
                }
                Err(error) => assert_eq!(error, PublishError::TooOften),
            }
            millis += 1000;
        }
    }
    assert_eq!(accepted, 21, "the first, and 20 periods after that");
    // The next minute, somebody goes on.
    let mut backup = Encoder::enter(&seats, Role::Backup, 2, millis + 60_000).unwrap();
    send(&mut [&mut backup], millis + 60_000..millis + 65_000);
    assert_eq!(seats.presence("x", at(millis + 65_000)).live, Some(Role::Backup));
}

#[test]
fn a_silent_publisher_keeps_its_seat_when_the_next_is_refused() {
    let seats = seats();
    let mut primary = Encoder::enter(&seats, Role::Primary, 1, 0).unwrap();
    send(&mut [&mut primary], 0..2000);
    // Renditions come from the same address, and the next publisher from another.
    let info = |peer: &str, rendition: Option<&str>| PublisherInfo {
        peer: Some(peer.parse().unwrap()),
        protocol: "test",
        rendition: rendition.map(str::to_owned),
    };
    let seat = |info: PublisherInfo| seats.enter("y", (Role::Primary, info), None, at(0)).unwrap();
    primary.seat = seat(info("192.0.2.1:1", None));
    let _low = seat(info("192.0.2.1:2", Some("low")));
    primary.configure(31, 0).unwrap();
    send(&mut [&mut primary], 2000..4000);
    let stranger = info("192.0.2.2:1", None);
    let refused = seats.enter("y", (Role::Primary, stranger), None, at(14_000)).map(|_| ());
    assert_eq!(refused, Err(PublishError::Foreign));
    send(&mut [&mut primary], 14_000..15_000);
    assert_eq!(seats.presence("y", at(15_000)).live, Some(Role::Primary));
}

#[test]
fn a_backup_at_another_address_goes_on_beside_a_rendition() {
    for leaves in [false, true] {
        let seats = seats();
        let info = |peer: &str, rendition: Option<&str>| PublisherInfo {
            peer: Some(peer.parse().unwrap()),
            protocol: "test",
            rendition: rendition.map(str::to_owned),
        };
        let encoder = |role, mark, info: PublisherInfo| {
            let seat = seats.enter("x", (role, info), None, at(0)).unwrap();
            let mut encoder = Encoder { seat, mark, began: 0, sources: [0, 256] };
            encoder.configure(31, 0).unwrap();
            encoder
        };
        let mut primary = encoder(Role::Primary, 1, info("192.0.2.1:1", None));
        let mut low = encoder(Role::Primary, 3, info("192.0.2.1:2", Some("low")));
        let mut backup = encoder(Role::Backup, 2, info("192.0.2.2:1", None));
        send(&mut [&mut primary, &mut low, &mut backup], 0..4000);
        let period = |seats: &Seats| {
            let track = seats.registry().stream("x").unwrap().track("v0").unwrap();
            let window = track.window();
            window.all().filter(|segment| segment.discontinuity).count()
        };
        let before = period(&seats);
        let kept = (!leaves).then_some(primary);
        send(&mut [&mut low, &mut backup], 4000..9000);
        assert_eq!(seats.presence("x", at(9000)).live, Some(Role::Backup), "{leaves}");
        assert_eq!(period(&seats), before + 1, "{leaves}");
        let marks: Vec<_> = runs(&seats).iter().map(|run| run.0).collect();
        assert_eq!(marks, [1, 2], "{leaves}");
        drop(kept);
    }
}
