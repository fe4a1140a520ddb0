use super::*;

const TIMES: Times = Times {
    after: Duration::from_secs(1),
    steady: Duration::from_secs(3),
    silence: Duration::from_secs(10),
};

const PRIMARY: Claim = Claim { role: Role::Primary, takes_back: true };
const BACKUP: Claim = Claim { role: Role::Backup, takes_back: false };

fn at(millis: u64) -> UnixMicros {
    UnixMicros(1_700_000_000_000_000).after(Duration::from_millis(millis))
}

fn info() -> PublisherInfo {
    PublisherInfo { peer: None, protocol: "test", rendition: None }
}

/// The rules of a name, and the publishers that they have let in.
struct Scene {
    rules: Rules,
    ids: [u64; 2],
}

impl Scene {
    fn new() -> Self {
        Self { rules: Rules::new(TIMES), ids: [0, 0] }
    }

    /// Both publish. The primary's media go on.
    fn of_both() -> Self {
        let mut scene = Self::new();
        scene.enter(Role::Primary, 0);
        scene.enter(Role::Backup, 0);
        assert!(!scene.begin(Role::Primary, 0));
        scene
    }

    fn enter(&mut self, role: Role, millis: u64) {
        self.ids[role as usize] = self.rules.enter(role, info(), at(millis)).unwrap().0;
    }

    fn standing(&self, role: Role) -> Standing {
        self.rules.standing(role, self.ids[role as usize])
    }

    /// A publisher sends a frame each 40 ms.
    fn send(&mut self, role: Role, millis: std::ops::Range<u64>) {
        for millis in millis.step_by(40) {
            self.rules.hear(role, self.ids[role as usize], at(millis));
        }
    }

    fn begin(&mut self, role: Role, millis: u64) -> bool {
        self.rules.begin(role, at(millis))
    }

    fn may_begin(&self, role: Role, millis: u64) -> bool {
        self.rules.may_begin(role, at(millis))
    }
}

#[test]
fn the_backup_goes_on_when_the_primary_is_silent_and_the_primary_when_it_is_steady_again() {
    let mut scene = Scene::of_both();
    scene.send(Role::Primary, 0..2000);
    scene.send(Role::Backup, 0..2000);
    assert!(!scene.may_begin(Role::Backup, 2000), "the primary sends");
    assert!(!scene.may_begin(Role::Backup, 2959));
    assert!(scene.may_begin(Role::Backup, 2960), "the last frame came at 1960");
    assert!(scene.begin(Role::Backup, 2960), "it is in place of the other");
    assert_eq!(scene.standing(Role::Backup), Standing::Live);
    assert_eq!(scene.standing(Role::Primary), Standing::Waits);

    scene.send(Role::Backup, 2000..12_000);
    scene.send(Role::Primary, 4000..6000);
    // A pause of half a second and more is none of a steady publisher.
    scene.send(Role::Primary, 6500..9500);
    assert!(!scene.may_begin(Role::Primary, 9499));
    assert!(scene.may_begin(Role::Primary, 9500));
    assert!(scene.begin(Role::Primary, 9500));
    assert_eq!(scene.standing(Role::Backup), Standing::Waits);
}

#[test]
fn who_leaves_makes_room_at_once_and_a_backup_goes_on_alone() {
    let mut scene = Scene::of_both();
    scene.rules.leave(Role::Backup, scene.ids[1]);
    assert_eq!(scene.standing(Role::Primary), Standing::Live);
    scene.enter(Role::Backup, 100);
    scene.rules.leave(Role::Primary, scene.ids[0]);
    assert!(scene.may_begin(Role::Backup, 100));
    assert!(scene.begin(Role::Backup, 100));
    // A primary that comes is let in, and waits until it is steady.
    scene.enter(Role::Primary, 200);
    scene.send(Role::Backup, 200..4000);
    scene.send(Role::Primary, 240..4000);
    assert!(!scene.may_begin(Role::Primary, 3239));
    assert!(scene.may_begin(Role::Primary, 3240));

    let mut alone = Scene::new();
    alone.enter(Role::Backup, 0);
    assert!(alone.may_begin(Role::Backup, 0));
    assert!(!alone.begin(Role::Backup, 0), "there was no other");
    alone.rules.leave(Role::Backup, alone.ids[1]);
    assert!(alone.rules.is_empty());
}

#[test]
fn a_third_publisher_is_refused_and_a_silent_one_replaced() {
    let mut scene = Scene::of_both();
    for role in Role::ALL {
        let refused = scene.rules.enter(role, info(), at(900)).unwrap_err();
        assert!(matches!(refused, PublishError::InUse(_)), "{refused}");
    }
    // One that waits and is silent is replaced sooner than one whose media were in use last.
    assert!(scene.rules.enter(Role::Primary, info(), at(9999)).is_err());
    let before = scene.ids[1];
    scene.enter(Role::Backup, 1000);
    assert_eq!(scene.rules.standing(Role::Backup, before), Standing::Replaced);
    assert_eq!(scene.rules.hear(Role::Backup, before, at(1001)), Standing::Replaced);
    scene.rules.leave(Role::Backup, before);
    assert_eq!(scene.standing(Role::Backup), Standing::Waits, "it has not lost its seat");
    scene.enter(Role::Primary, 10_000);
    assert!(scene.may_begin(Role::Primary, 10_000), "it is there in place of the silent one");
}

#[test]
fn a_stream_at_another_machine_is_claimed_and_not_begun() {
    let mut scene = Scene::new();
    scene.enter(Role::Backup, 0);
    scene.rules.place(Some((Role::Primary, 7)), at(0));
    scene.send(Role::Backup, 0..5000);
    assert!(!scene.may_begin(Role::Backup, 5000));
    assert_eq!(scene.rules.claims(false, at(5000)), None);
    assert_eq!(scene.rules.claims(true, at(5000)), Some(BACKUP));
    assert_eq!(scene.rules.claims(true, at(6000)), None, "it is silent itself");
    scene.rules.granted(7);
    // The other machine has not told yet that it gave the stream away.
    scene.rules.place(Some((Role::Primary, 7)), at(5000));
    assert!(scene.may_begin(Role::Backup, 5000));
    // The primary took it back, with a new lease.
    scene.rules.place(Some((Role::Primary, 8)), at(5100));
    assert!(!scene.may_begin(Role::Backup, 5100));
    // Nobody has it any more.
    scene.rules.place(None, at(5200));
    assert!(scene.may_begin(Role::Backup, 5200));

    let mut scene = Scene::new();
    scene.enter(Role::Primary, 0);
    scene.rules.place(Some((Role::Backup, 7)), at(0));
    scene.send(Role::Primary, 0..3040);
    assert_eq!(scene.rules.claims(false, at(2999)), None);
    // What this machine thinks of the other's publisher is not enough.
    let unsteady = Claim { takes_back: false, ..PRIMARY };
    assert_eq!(scene.rules.claims(true, at(2999)), Some(unsteady));
    assert_eq!(scene.rules.claims(false, at(3000)), Some(PRIMARY), "it is steady");
}

#[test]
fn a_stream_is_ceded_to_whom_it_belongs() {
    let both = || {
        let mut scene = Scene::of_both();
        scene.send(Role::Primary, 0..2000);
        scene.send(Role::Backup, 0..2000);
        scene
    };
    let mut scene = both();
    assert!(!scene.rules.cede(BACKUP, at(2000)), "the primary sends");
    assert!(scene.rules.cede(BACKUP, at(3000)));
    assert_eq!((scene.rules.live(), scene.standing(Role::Primary)), (None, Standing::Waits));
    // The other machine needs a moment to say that it has the stream.
    scene.rules.place(None, at(4000));
    assert!(!scene.may_begin(Role::Primary, 4000));
    scene.rules.place(None, at(8000));
    assert!(scene.may_begin(Role::Primary, 8000), "it has not gone on with it");

    let mut scene = both();
    scene.begin(Role::Backup, 2000);
    assert!(!scene.rules.cede(BACKUP, at(2000)), "another backup");
    let unsteady = Claim { takes_back: false, ..PRIMARY };
    assert!(!scene.rules.cede(unsteady, at(2000)), "the backup sends");
    assert!(scene.rules.cede(PRIMARY, at(2000)));
    assert_eq!(scene.standing(Role::Backup), Standing::Waits);
    // There is one backup in a cluster.
    scene.rules.place(Some((Role::Backup, 9)), at(2100));
    assert_eq!(scene.standing(Role::Backup), Standing::Replaced);
}

#[test]
fn a_stream_that_was_given_away_is_remembered_without_a_publisher() {
    let mut rules = Rules::new(TIMES);
    assert!(rules.cede(BACKUP, at(0)));
    assert!(rules.cede(BACKUP, at(100)), "it asks again");
    assert!(!rules.cede(PRIMARY, at(100)), "the other has it");
    rules.expire(at(4999));
    assert!(!rules.is_empty());
    rules.enter(Role::Primary, info(), at(4999)).unwrap();
    assert!(rules.place(None, at(4999)), "no machine has announced it");
    assert!(!rules.may_begin(Role::Primary, at(4999)));
    rules.leave(Role::Primary, 1);
    rules.expire(at(5100));
    assert!(rules.is_empty());
}

#[test]
fn a_stream_that_was_taken_over_is_not_given_back_before_the_next_keyframe() {
    let mut scene = Scene::new();
    scene.enter(Role::Backup, 0);
    scene.rules.place(Some((Role::Primary, 7)), at(0));
    scene.send(Role::Backup, 0..2000);
    scene.rules.granted(7);
    assert!(!scene.rules.cede(BACKUP, at(2000)));
    assert!(scene.rules.cede(PRIMARY, at(2000)), "the primary is steady again");
}

#[test]
fn a_primary_that_flaps_must_be_steady_for_longer() {
    let mut scene = Scene::of_both();
    scene.send(Role::Backup, 0..60_000);
    scene.begin(Role::Backup, 2000);
    scene.send(Role::Primary, 5000..8000);
    assert!(scene.may_begin(Role::Primary, 8000));
    scene.begin(Role::Primary, 8000);
    scene.begin(Role::Backup, 10_000);
    // It came back within a minute, so the next time takes six seconds.
    scene.send(Role::Primary, 12_000..18_000);
    assert!(!scene.may_begin(Role::Primary, 17_999));
    assert!(scene.may_begin(Role::Primary, 18_000));
    // Without a backup that sends, nobody is better off if it waits.
    scene.rules.leave(Role::Backup, scene.ids[1]);
    assert!(scene.may_begin(Role::Primary, 17_000));
}

#[test]
fn a_primary_that_flaps_leaves_the_next_turn_to_the_backup() {
    let mut scene = Scene::of_both();
    for millis in [1000, 2000] {
        scene.send(Role::Backup, millis - 1000..millis);
        scene.rules.leave(Role::Primary, scene.ids[0]);
        scene.enter(Role::Primary, millis);
        assert_eq!(scene.may_begin(Role::Primary, millis), millis == 1000, "{millis}");
        if millis == 1000 {
            scene.begin(Role::Primary, millis);
        }
    }
    // A backup that sends no keyframe does not keep it out for longer than usual.
    scene.send(Role::Backup, 2000..5000);
    scene.send(Role::Primary, 2000..5000);
    assert!(!scene.may_begin(Role::Primary, 4999));
    assert!(scene.may_begin(Role::Primary, 5000));
}

#[test]
fn a_primary_that_flaps_at_other_machines_must_ask_for_longer() {
    let mut scene = Scene::new();
    scene.enter(Role::Backup, 0);
    scene.rules.place(Some((Role::Primary, 1)), at(0));
    scene.send(Role::Backup, 0..60_000);
    scene.rules.granted(1);
    scene.begin(Role::Backup, 4000);
    assert!(scene.rules.cede(PRIMARY, at(10_000)), "it failed once");
    scene.rules.place(Some((Role::Primary, 2)), at(10_500));
    scene.rules.granted(2);
    scene.begin(Role::Backup, 12_000);
    // Its machine lets it ask after three seconds. A machine that asks no more begins anew.
    assert!(!scene.rules.cede(PRIMARY, at(16_000)));
    assert!(!scene.rules.cede(PRIMARY, at(17_500)));
    assert!(!scene.rules.cede(PRIMARY, at(20_000)));
    for millis in (20_250..23_000).step_by(250) {
        assert!(!scene.rules.cede(PRIMARY, at(millis)), "{millis}");
    }
    assert!(scene.rules.cede(PRIMARY, at(23_000)));
}
