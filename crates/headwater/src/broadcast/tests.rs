use std::future::poll_fn;

use live::cursor::Cursor;
use live::{Part, PublisherInfo, Registry, Segment, Settings};
use media::Sample;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::double::{ALL, Double};

const LIMITS: Limits = Limits { queue: u64::MAX, patience: Duration::from_secs(10) };

/// Bytes of a part: a few parts fill a small socket.
const SIZE: usize = 10_000;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Writes the number of each part, after a header.
struct Told;

impl Container for Told {
    fn header(
        &self,
        _: &Cursor,
        segment: &Segment,
        _: &Part,
    ) -> Result<Option<Bytes>, media::Error> {
        Ok(Some(format!("header {}\n", segment.header.msn).into()))
    }

    fn part(
        &self,
        segment: &Segment,
        part: &Part,
        out: &mut Vec<Bytes>,
    ) -> Result<bool, media::Error> {
        out.push(format!("{:<SIZE$}\n", format!("{} {}", segment.msn, part.start)).into());
        Ok(true)
    }
}

fn codec() -> media::Codec {
    media::Codec::Avc(media::codec::avc::Config::parse(testkit::avc_record(31).into()).unwrap())
}

/// A stream of frames, published as fast as the test calls it.
struct Source {
    registry: Registry,
    publisher: live::Publisher,
    now: UnixMicros,
    frames: i64,
}

impl Source {
    fn new() -> Self {
        let registry = Registry::new(Settings::default());
        let now = UnixMicros(1_700_000_000_000_000);
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = registry.publish("x", info, now).unwrap();
        publisher.track(0, codec(), 1000, *b"und", now).unwrap();
        let mut source = Self { registry, publisher, now, frames: 0 };
        source.publish(60);
        source
    }

    /// Publishes `frames` frames with a keyframe every second.
    fn publish(&mut self, frames: i64) {
        for _ in 0..frames {
            self.now.0 += 33_333;
            let data = Bytes::from_static(&[0; 64]);
            let (dts, sync) = (self.frames * 100 / 3, self.frames % 30 == 0);
            let sample = Sample { dts, cts: 0, duration: 0, sync, data };
            self.publisher.sample(0, sample, self.now).unwrap();
            self.frames += 1;
        }
    }

    fn stream(&self) -> Arc<Stream> {
        self.registry.stream("x").unwrap()
    }

    fn end(self) {
        drop(self.publisher);
        self.registry.sweep(self.now);
        self.registry.sweep(self.now.after(Duration::from_secs(31)));
    }
}

/// What happened to a viewer.
#[derive(Debug, Default)]
struct Course {
    subscriptions: u32,
    /// How often its subscription ended with unsent bytes.
    full: u32,
    /// How often it was subscribed with parts that the broadcast had yet to write.
    ahead: u32,
}

impl Subscription {
    fn is_ahead(&self) -> bool {
        let subscribers = self.broadcast.subscribers.borrow();
        subscribers[self.key.unwrap()].ahead.is_some()
    }
}

/// A viewer's task, up to the stream's end. `stay` counts the viewers that are subscribed and do not
/// leave by themselves; a viewer without it leaves at any time.
async fn view<C: Container + 'static>(
    broadcasts: Rc<Broadcasts<C>>,
    stream: Arc<Stream>,
    line: Rc<impl Line + 'static>,
    stay: Option<Rc<Cell<usize>>>,
) -> Course {
    let (mut course, meter) = (Course::default(), Meter::default());
    let mut follower = Box::new(Follower::new(Cursor::new(&stream, LIMITS).unwrap()));
    loop {
        follower = match broadcasts.join(&stream, follower, (&line, &meter)) {
            Ok(subscription) => {
                course.subscriptions += 1;
                course.ahead += u32::from(subscription.is_ahead());
                let left = poll_fn(|cx| subscription.poll_left(cx));
                if let Some(stay) = &stay {
                    stay.set(stay.get() + 1);
                    left.await;
                    stay.set(stay.get() - 1);
                } else {
                    let _ = timeout(MILLISECOND * (course.subscriptions % 3), left).await;
                }
                let (unsent, follower) = subscription.leave(LIMITS).unwrap();
                course.full += u32::from(!unsent.is_empty());
                send(&*line, unsent).await;
                Box::new(follower)
            }
            Err(follower) => follower,
        };
        // It may be subscribed later though no part comes.
        match timeout(MILLISECOND, follower.cursor.next(UnixMicros::default)).await {
            Err(_) => {}
            Ok(Next::Ended) => return course,
            Ok(Next::Part { track, segment, part }) => {
                let (part, mut pieces) = ((track, &*segment, &*part), Vec::new());
                follower.write(broadcasts.container(), part, |piece| pieces.push(piece)).unwrap();
                for piece in pieces {
                    send(&*line, piece).await;
                }
            }
            Ok(next) => panic!("{next:?}"),
        }
    }
}

async fn send(line: &impl Line, mut bytes: Bytes) {
    while !bytes.is_empty() {
        match line.try_write(&bytes) {
            Ok(written) => drop(bytes.split_to(written)),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                sleep(MILLISECOND).await;
            }
        }
    }
}

/// Reads everything, at most `most` bytes each millisecond.
async fn listen(socket: Double, most: usize) -> String {
    while !socket.is_closed() || socket.unacknowledged() != Some(0) {
        sleep(MILLISECOND).await;
        socket.take(most);
    }
    String::from_utf8(socket.taken()).unwrap()
}

/// Viewers that come one after the other while the stream is published. Returns what each was sent,
/// and what happened to it.
async fn crowd(interval: Duration, kinds: &[(usize, bool)]) -> Vec<(String, Course)> {
    let mut source = Source::new();
    let stream = source.stream();
    let broadcasts = Broadcasts::new(Told, interval);
    let subscribed = Rc::new(Cell::new(0));
    let mut viewers: Vec<(JoinHandle<String>, JoinHandle<Course>)> = Vec::new();
    for &(most, leaves) in kinds {
        let socket = Double::new(most.max(32 << 10));
        let line = Rc::new(socket.clone());
        let stay = (!leaves).then(|| Rc::clone(&subscribed));
        let view = view(Rc::clone(&broadcasts), Arc::clone(&stream), line, stay);
        viewers.push((spawn_local(listen(socket, most)), spawn_local(view)));
        source.publish(7);
        sleep(2 * MILLISECOND).await;
    }
    // Publishes bursts that some sockets do not take at once. Before each burst, all viewers have
    // caught up, except those that leave all the time.
    let stay = kinds.iter().filter(|(_, leaves)| !leaves).count();
    for _ in 0..4 {
        let began = Instant::now();
        while subscribed.get() < stay {
            assert!(began.elapsed() < Duration::from_secs(30), "{} subscribed", subscribed.get());
            sleep(MILLISECOND).await;
        }
        source.publish(60);
        sleep(10 * MILLISECOND).await;
    }
    source.end();
    let mut out = Vec::new();
    for (text, course) in viewers {
        let course = course.await.unwrap();
        out.push((text.await.unwrap(), course));
    }
    assert!(broadcasts.broadcasts.borrow().is_empty(), "a broadcast outlives its subscribers");
    out
}

/// Subscribes a viewer at the live edge, which has no header yet.
fn subscribe(
    broadcasts: &Rc<Broadcasts<Told>>,
    stream: &Arc<Stream>,
    line: &Rc<impl Line + 'static>,
) -> Subscription {
    let mut follower = Follower::new(Cursor::new(stream, LIMITS).unwrap());
    while follower.cursor.poll(UnixMicros::default()).is_some() {}
    broadcasts.join(stream, Box::new(follower), (line, &Meter::default())).ok().unwrap()
}

fn is_off(subscription: &Subscription) -> bool {
    subscription.poll_left(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Runs a test by a clock that goes on only while all tasks wait.
fn run<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = Builder::new_current_thread();
    runtime.enable_time().start_paused(true);
    runtime.build_local(LocalOptions::default()).unwrap().block_on(test)
}

#[test]
fn whatever_sockets_take_each_part_comes_once_and_in_order() {
    for interval in [0, 7] {
        // Viewers that read at once, gradually, and slowly; and viewers that leave all the time.
        let kinds = [(ALL, false), (20_000, false), (5000, false), (ALL, true), (15_000, true)];
        let kinds = kinds.repeat(3);
        let all = run(crowd(Duration::from_millis(interval), &kinds));
        let whole = &all[0].0;
        let header = whole.split_inclusive('\n').next().unwrap();
        for (index, (text, course)) in all.iter().enumerate() {
            let media = text.strip_prefix(header).expect("a header first");
            assert!(
                media.len() > 30 * SIZE && whole.ends_with(media),
                "viewer {index}: {course:?}"
            );
            assert!(course.subscriptions > 0, "viewer {index} was never subscribed");
        }
        let sum = |of: fn(&Course) -> u32| all.iter().map(|(_, course)| of(course)).sum::<u32>();
        assert!(sum(|course| course.full) > 0, "no socket was ever full");
        assert!(sum(|course| course.ahead) > 0, "nobody was subscribed ahead of a broadcast");
        assert!(
            sum(|course| course.subscriptions) > 2 * all.len() as u32,
            "nobody was subscribed again"
        );
    }
}

#[test]
fn one_that_reads_nothing_is_put_off_and_others_go_on() {
    run(async {
        let mut source = Source::new();
        let stream = source.stream();
        let broadcasts = Broadcasts::new(Told, Duration::ZERO);
        let sockets @ [_, heard] = &[4096, ALL].map(Double::new);
        let lines = sockets.each_ref().map(|socket| Rc::new(socket.clone()));
        let [deaf, attentive] = lines.each_ref().map(|line| subscribe(&broadcasts, &stream, line));
        let mut read = 0;
        // More bytes than the connection takes of a viewer that reads nothing.
        while read < 1 << 20 {
            source.publish(6);
            heard.carry(ALL).await;
            read += heard.taken().len();
        }
        assert!(is_off(&deaf) && !is_off(&attentive));
        let (unsent, _) = deaf.leave(LIMITS).unwrap();
        assert!(!unsent.is_empty());
    });
}

#[test]
fn subscribers_learn_that_a_stream_is_over_and_that_a_peer_has_gone() {
    run(async {
        let mut source = Source::new();
        let stream = source.stream();
        let broadcasts = Broadcasts::new(Told, Duration::ZERO);
        let lines = [true, false].map(|is_gone| Rc::new(Looked { is_gone, ..Looked::default() }));
        let [gone, stays] = lines.each_ref().map(|line| subscribe(&broadcasts, &stream, line));
        while !is_off(&gone) {
            source.publish(6);
            yield_now().await;
        }
        assert!(gone.leave(LIMITS).is_err());
        assert!(!is_off(&stays));
        source.end();
        poll_fn(|cx| stays.poll_left(cx)).await;
        assert!(stays.leave(LIMITS).is_ok());
    });
}

/// Writes the same as [`Told`], while there is room.
struct Room(Rc<Cell<bool>>);

impl Container for Room {
    fn header(
        &self,
        cursor: &Cursor,
        segment: &Segment,
        part: &Part,
    ) -> Result<Option<Bytes>, media::Error> {
        Told.header(cursor, segment, part)
    }

    fn part(
        &self,
        segment: &Segment,
        part: &Part,
        out: &mut Vec<Bytes>,
    ) -> Result<bool, media::Error> {
        Ok(self.0.get() && Told.part(segment, part, out)?)
    }
}

#[test]
fn while_there_is_no_room_for_parts_viewers_wait_and_then_get_each() {
    run(async {
        let mut source = Source::new();
        let stream = source.stream();
        let room = Rc::new(Cell::new(true));
        let broadcasts = Broadcasts::new(Room(Rc::clone(&room)), Duration::ZERO);
        let lines: Vec<_> = (0..3).map(|_| Rc::new(Looked::default())).collect();
        let view = |line| {
            view(Rc::clone(&broadcasts), Arc::clone(&stream), Rc::clone(line), Some(Rc::default()))
        };
        let viewers: Vec<_> = lines.iter().map(|line| spawn_local(view(line))).collect();
        let mut lengths = Vec::new();
        for turn in 0..40 {
            room.set(turn / 4 % 2 == 0);
            source.publish(6);
            for _ in 0..20 {
                yield_now().await;
            }
            lengths.push(lines[0].taken.borrow().len());
        }
        assert_eq!(lengths[3], lengths[7], "without room nothing is sent");
        room.set(true);
        source.publish(6);
        for _ in 0..20 {
            yield_now().await;
        }
        let window = stream.track("v0").unwrap().window();
        let parts = window.all().flat_map(|segment| {
            segment.parts.iter().map(|part| format!("{} {}", segment.msn, part.start))
        });
        let parts: Vec<_> = parts.collect();
        source.end();
        for (viewer, line) in viewers.into_iter().zip(lines) {
            assert!(viewer.await.unwrap().subscriptions > 2, "it was not subscribed again");
            let text = String::from_utf8(line.taken.take()).unwrap();
            let told: Vec<_> = text.lines().map(str::trim).collect();
            assert!(told[0].starts_with("header") && told.len() > 41);
            assert_eq!(told[1..], parts[parts.len() - (told.len() - 1)..]);
        }
    });
}

/// Takes everything unless its peer has gone, counts looks, and makes its viewer leave at the second.
#[derive(Default)]
struct Looked {
    is_gone: bool,
    is_watched: bool,
    looks: Cell<u32>,
    taken: RefCell<Vec<u8>>,
}

impl Line for Looked {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_gone {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        self.taken.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn is_watched(&self) -> bool {
        self.is_watched
    }

    fn look(&self) -> bool {
        self.looks.set(self.looks.get() + 1);
        self.looks.get() == 2
    }
}

#[test]
fn only_who_is_watched_is_looked_at_and_gets_off_with_all_that_is_due() {
    run(async {
        let mut source = Source::new();
        let stream = source.stream();
        let broadcasts = Broadcasts::new(Told, Duration::ZERO);
        let others = Rc::new(Looked::default());
        let watched = Rc::new(Looked { is_watched: true, ..Looked::default() });
        let [stays, leaves] = [&others, &watched].map(|line| subscribe(&broadcasts, &stream, line));
        while !is_off(&leaves) {
            source.publish(6);
            sleep(200 * MILLISECOND).await;
        }
        assert_eq!((watched.looks.get(), others.looks.get()), (2, 0));
        assert!(!is_off(&stays));
        let (unsent, _) = leaves.leave(LIMITS).unwrap();
        let mut all = watched.taken.take();
        all.extend_from_slice(&unsent);
        assert!(!unsent.is_empty() && *others.taken.borrow() == all);
    });
}

#[test]
fn each_share_of_the_subscribers_is_looked_at_about_twice_a_second() {
    for (chunk, most) in [(40, 1), (200, 5), (2000, SHARES)] {
        let times: Vec<_> = (0..100).map(|turn| Duration::from_millis(turn * chunk)).collect();
        let due: Vec<_> = times.windows(2).map(|pair| due(pair[0], pair[1])).collect();
        assert!(due.iter().all(|shares| shares.count_ones() <= most), "{chunk} ms: {due:?}");
        for share in 0..SHARES {
            let looks = due.iter().filter(|&shares| shares >> share & 1 == 1).count() as u128;
            let wanted = times[99].as_millis() / LOOKS.as_millis().max(u128::from(chunk));
            assert!(looks.abs_diff(wanted) <= 1, "{chunk} ms, {share}: {looks} of {wanted}");
        }
    }
}
