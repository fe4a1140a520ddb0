use std::future::poll_fn;

use live::cursor::Cursor;
use live::{Part, PublisherInfo, Registry, Segment, Settings};
use media::Sample;
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::JoinHandle;

use super::*;

const LIMITS: Limits = Limits { queue: u64::MAX, patience: Duration::from_secs(10) };

/// Bytes of a part: a few parts fill a small socket.
const SIZE: usize = 10_000;

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
    subscriptions: usize,
    /// How often its subscription ended with unsent bytes.
    full: usize,
}

impl Broadcasts<Told> {
    fn subscribers(&self) -> usize {
        let broadcasts = self.broadcasts.borrow();
        let subscribers = |broadcast: Rc<Broadcast>| {
            broadcast
                .subscribers
                .borrow()
                .iter()
                .filter(|(_, subscriber)| subscriber.off.is_none())
                .count()
        };
        broadcasts.values().filter_map(Weak::upgrade).map(subscribers).sum()
    }
}

/// A viewer's task, up to the stream's end.
async fn view(
    broadcasts: Rc<Broadcasts<Told>>,
    stream: Arc<Stream>,
    socket: TcpStream,
    leaves: bool,
) -> Course {
    let mut course = Course::default();
    let (socket, meter) = (Rc::new(socket), Meter::default());
    let mut follower = Box::new(Follower::new(Cursor::new(&stream, LIMITS).unwrap()));
    loop {
        follower = match broadcasts.join(&stream, follower, (&socket, &meter)) {
            Ok(subscription) => {
                course.subscriptions += 1;
                let mut waits = usize::from(leaves);
                // A viewer that leaves by itself may do so at any time.
                poll_fn(|cx| {
                    if subscription.poll_left(cx).is_ready() || waits == 2 {
                        return Poll::Ready(());
                    }
                    if waits > 0 {
                        waits += 1;
                        cx.waker().wake_by_ref();
                    }
                    Poll::Pending
                })
                .await;
                let (unsent, follower) = subscription.leave(LIMITS).unwrap();
                course.full += usize::from(!unsent.is_empty());
                send(&socket, unsent).await;
                if leaves {
                    yield_now().await;
                }
                Box::new(follower)
            }
            Err(follower) => follower,
        };
        let mut out = Vec::new();
        match follower.cursor.poll(UnixMicros::default()) {
            None if stream.state().status == live::Status::Ended => return course,
            // It may be subscribed at the next turn.
            None => yield_now().await,
            Some(Next::Part { track, segment, part }) => {
                let part = (track, &*segment, &*part);
                follower.write(&Told, part, |piece| out.push(piece)).unwrap();
            }
            Some(next) => panic!("{next:?}"),
        }
        for piece in out {
            send(&socket, piece).await;
        }
    }
}

async fn send(socket: &TcpStream, mut bytes: Bytes) {
    while !bytes.is_empty() {
        socket.writable().await.unwrap();
        match socket.try_write(&bytes) {
            Ok(written) => drop(bytes.split_to(written)),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
}

/// Reads everything. Pauses after each `every` bytes unless that is 0.
async fn listen(mut socket: TcpStream, every: usize) -> String {
    let (mut text, mut buffer) = (String::new(), vec![0; every.max(4096)]);
    loop {
        match socket.read(&mut buffer).await.unwrap() {
            0 => return text,
            read => text.push_str(std::str::from_utf8(&buffer[..read]).unwrap()),
        }
        if every > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Viewers that come one after the other while the stream is published. Returns what each was sent,
/// and what happened to it.
async fn crowd(interval: Duration, kinds: &[(usize, bool)]) -> Vec<(String, Course)> {
    let mut source = Source::new();
    let stream = source.stream();
    let broadcasts = Broadcasts::new(Told, interval);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut viewers: Vec<(JoinHandle<String>, JoinHandle<Course>)> = Vec::new();
    for &(every, leaves) in kinds {
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (sending, _) = listener.accept().await.unwrap();
        if every > 0 {
            SockRef::from(&socket).set_recv_buffer_size(16 << 10).unwrap();
            SockRef::from(&sending).set_send_buffer_size(16 << 10).unwrap();
        }
        let view = view(Rc::clone(&broadcasts), Arc::clone(&stream), sending, leaves);
        viewers.push((spawn_local(listen(socket, every)), spawn_local(view)));
        source.publish(7);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // Publishes bursts that some sockets do not take at once. Before each burst, all viewers have
    // caught up, except those that leave all the time.
    let stay = kinds.iter().filter(|(_, leaves)| !leaves).count();
    for _ in 0..4 {
        let began = Instant::now();
        while broadcasts.subscribers() < stay {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "{} subscribed",
                broadcasts.subscribers()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        source.publish(60);
        tokio::time::sleep(Duration::from_millis(10)).await;
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

fn is_off(subscription: &Subscription) -> bool {
    subscription.poll_left(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.unwrap().block_on(test)
}

#[test]
fn whatever_sockets_take_each_part_comes_once_and_in_order() {
    for interval in [0, 7] {
        // Viewers that read at once, gradually, and slowly; and viewers that leave all the time.
        let kinds = [(0, false), (20_000, false), (5000, false), (0, true), (15_000, true)];
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
        let sum =
            |of: fn(&Course) -> usize| all.iter().map(|(_, course)| of(course)).sum::<usize>();
        assert!(sum(|course| course.full) > 0, "no socket was ever full");
        assert!(sum(|course| course.subscriptions) > 2 * all.len(), "nobody was subscribed again");
    }
}

#[test]
fn one_that_reads_nothing_is_put_off_and_others_go_on() {
    run(async {
        let mut source = Source::new();
        let stream = source.stream();
        let broadcasts = Broadcasts::new(Told, Duration::ZERO);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connect = async || {
            let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            (socket, Rc::new(listener.accept().await.unwrap().0))
        };
        let at_edge = || {
            let mut follower = Follower::new(Cursor::new(&stream, LIMITS).unwrap());
            while let Some(Next::Part { track, segment, part }) =
                follower.cursor.poll(UnixMicros::default())
            {
                follower.write(&Told, (track, &segment, &part), |_| {}).unwrap();
            }
            Box::new(follower)
        };
        let (_deaf, sending) = connect().await;
        SockRef::from(&*sending).set_send_buffer_size(4096).unwrap();
        let deaf = broadcasts.join(&stream, at_edge(), (&sending, &Meter::default())).ok().unwrap();
        let (mut heard, sending) = connect().await;
        let attentive =
            broadcasts.join(&stream, at_edge(), (&sending, &Meter::default())).ok().unwrap();
        let mut buffer = vec![0; 64 << 10];
        let mut read = 0;
        // More bytes than the kernel takes for a viewer that reads nothing.
        while read < 8 << 20 {
            source.publish(6);
            read += heard.read(&mut buffer).await.unwrap();
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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut subscriptions = Vec::new();
        let mut peers = Vec::new();
        let meter = Meter::default();
        for _ in 0..2 {
            let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let socket = Rc::new(listener.accept().await.unwrap().0);
            let mut follower = Follower::new(Cursor::new(&stream, LIMITS).unwrap());
            while follower.cursor.poll(UnixMicros::default()).is_some() {}
            subscriptions.push(
                broadcasts.join(&stream, Box::new(follower), (&socket, &meter)).ok().unwrap(),
            );
            peers.push(peer);
        }
        let gone = subscriptions.remove(0);
        SockRef::from(&peers[0]).set_linger(Some(Duration::ZERO)).unwrap();
        peers.remove(0);
        while !is_off(&gone) {
            source.publish(6);
            yield_now().await;
        }
        assert!(gone.leave(LIMITS).is_err());
        let stays = subscriptions.remove(0);
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

/// A viewer's task, up to the stream's end. Returns how often it was subscribed.
async fn watch(broadcasts: Rc<Broadcasts<Room>>, stream: Arc<Stream>, line: Rc<Looked>) -> usize {
    let mut follower = Box::new(Follower::new(Cursor::new(&stream, LIMITS).unwrap()));
    let (mut subscriptions, meter) = (0, Meter::default());
    loop {
        follower = match broadcasts.join(&stream, follower, (&line, &meter)) {
            Ok(subscription) => {
                subscriptions += 1;
                poll_fn(|cx| subscription.poll_left(cx)).await;
                let (unsent, follower) = subscription.leave(LIMITS).unwrap();
                line.try_write(&unsent).unwrap();
                Box::new(follower)
            }
            Err(follower) => follower,
        };
        match follower.cursor.next(UnixMicros::default).await {
            Next::Part { track, segment, part } => {
                let part = (track, &*segment, &*part);
                let write = |piece: Bytes| assert_eq!(line.try_write(&piece).unwrap(), piece.len());
                follower.write(broadcasts.container(), part, write).unwrap();
            }
            Next::Ended => return subscriptions,
            next => panic!("{next:?}"),
        }
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
        let watch = |line| watch(Rc::clone(&broadcasts), Arc::clone(&stream), Rc::clone(line));
        let viewers: Vec<_> = lines.iter().map(|line| spawn_local(watch(line))).collect();
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
            assert!(viewer.await.unwrap() > 2, "it was not subscribed again");
            let text = String::from_utf8(line.taken.take()).unwrap();
            let told: Vec<_> = text.lines().map(str::trim).collect();
            assert!(told[0].starts_with("header") && told.len() > 41);
            assert_eq!(told[1..], parts[parts.len() - (told.len() - 1)..]);
        }
    });
}

/// Takes everything, counts looks, and makes its viewer leave at the second.
#[derive(Default)]
struct Looked {
    is_watched: bool,
    looks: Cell<u32>,
    taken: RefCell<Vec<u8>>,
}

impl Line for Looked {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
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
        let join = |line: &Rc<Looked>| {
            let mut follower = Follower::new(Cursor::new(&stream, LIMITS).unwrap());
            while follower.cursor.poll(UnixMicros::default()).is_some() {}
            broadcasts.join(&stream, Box::new(follower), (line, &Meter::default())).ok().unwrap()
        };
        let others = Rc::new(Looked::default());
        let watched = Rc::new(Looked { is_watched: true, ..Looked::default() });
        let (stays, leaves) = (join(&others), join(&watched));
        while !is_off(&leaves) {
            source.publish(6);
            yield_now().await;
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
