//! A player of a file. It gets blocks of a title, each when the block is due.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use live::UnixMicros;

use crate::Origin;
use crate::pace::{self, Hand, Plan, Schedule};
use crate::titles::blocks::Requests;
use crate::titles::flv::{Error, FlvTitle, Own, Position};

/// The state of one player.
///
/// Call [`next`](Self::next) again only after [`sent`](Self::sent) was told that nothing is left.
pub(super) struct Play {
    flv_title: Arc<FlvTitle>,
    /// Starts anew where the player began or last sought.
    schedule: Schedule,
    hand: Hand,
    place: pace::Share,
    /// Time at which the player began or last sought, in milliseconds.
    began: i64,
    /// The next block to send; `None` at the end.
    next: Option<Position>,
    /// Waits for that block.
    requests: Requests,
    /// Where the player stops, if before the title's end, and the base of its timestamps.
    own: Own,
    /// Whether the decoder configurations must be sent before the next block.
    unprepared: bool,
    /// The block that is being sent: its start and end in milliseconds, and its size in bytes.
    sending: Option<(i64, i64, usize)>,
    paused: bool,
    /// Whether everything was sent and [`Next::Complete`] was returned.
    complete: bool,
}

/// What comes next for a player.
pub(super) enum Next {
    /// Bytes to send.
    Media(Vec<Bytes>),
    /// Everything was sent.
    Complete,
}

impl Play {
    /// Plays from `start` for `duration`, both in milliseconds. Without a duration it plays to the
    /// end.
    pub(super) fn new(
        origin: &Origin,
        flv_title: Arc<FlvTitle>,
        plan: Plan,
        start: f64,
        duration: Option<f64>,
    ) -> Self {
        let now = origin.now();
        let mut play = Self {
            flv_title,
            schedule: Schedule::new(plan, now),
            hand: Hand::new(now),
            place: pace::Share::new(&origin.balance),
            began: 0,
            next: None,
            requests: Requests::default(),
            own: Own::default(),
            unprepared: true,
            sending: None,
            paused: false,
            complete: false,
        };
        let began = play.seek(start, now);
        // A duration of 0 means a single frame (7.2.2.1). The cast saturates.
        play.own.until = duration
            .map(|duration| ((start.max(0.0) + duration) as i64).max(began.saturating_add(1)));
        // A player that begins in the middle gets timestamps from 0, as from Adobe's server.
        // Clients that ask for a start position (librtmp) add that position themselves.
        play.own.base = if start > 0.0 { began } else { 0 };
        play
    }

    /// Path of the title below the VOD root.
    pub(super) fn path(&self) -> &str {
        self.flv_title.path()
    }

    /// Goes on at the last keyframe at or before `milliseconds`, and returns that keyframe's time.
    /// The pace starts anew.
    pub(super) fn seek(&mut self, milliseconds: f64, now: UnixMicros) -> i64 {
        self.next = self.flv_title.seek(milliseconds);
        self.requests.forget();
        self.own.base = 0;
        self.began = self.next.map_or(0, |next| next.time);
        self.schedule = Schedule::new(self.schedule.plan(), now);
        self.hand = Hand::new(now);
        self.place.leave();
        // The player has no more use for the block that is being sent.
        self.sending = None;
        self.unprepared = true;
        self.complete = false;
        if std::mem::take(&mut self.paused) {
            self.pause(true, now);
        }
        self.began
    }

    /// Pauses or resumes. A paused player gets nothing, and resumes where it stopped.
    pub(super) fn pause(&mut self, paused: bool, now: UnixMicros) {
        if std::mem::replace(&mut self.paused, paused) == paused {
            return;
        }
        if paused {
            self.schedule.pause(now);
            self.hand.pause(now);
            self.place.leave();
        } else {
            self.schedule.resume(now);
            self.hand.resume(now);
        }
    }

    /// Whether the player gets nothing until it asks: it is paused, or it has everything.
    pub(super) fn is_at_rest(&self) -> bool {
        self.paused || self.complete
    }

    /// Waits until the next block is due and returns it. Stays pending when there is nothing more
    /// to send. Cancel safe.
    pub(super) async fn next(&mut self, origin: &Origin) -> Result<Next, Error> {
        loop {
            if self.paused || self.complete {
                return std::future::pending().await;
            }
            let over = |place: &Position| self.own.until.is_some_and(|until| place.time >= until);
            let Some(place) = self.next.filter(|place| !over(place)) else {
                self.place.leave();
                self.complete = true;
                return Ok(Next::Complete);
            };
            let now = origin.now();
            let position = self.position(place.time);
            let wait = self.place.due(&self.schedule, &self.hand, position, now);
            if let Some(wait) = wait {
                tokio::time::sleep(wait).await;
                continue;
            }
            let (flv_titles, flv_title) = (&origin.flv_titles, &self.flv_title);
            let block = self.requests.block(flv_titles, flv_title, place, self.own).await?;
            let Some(block) = block else {
                self.next = None;
                continue;
            };
            let mut out = Vec::with_capacity(4);
            if self.unprepared {
                out = self.flv_title.headers(place, self.own)?;
                self.unprepared = false;
            }
            self.next = block.next;
            self.sending = Some((place.time, block.end, block.bytes.len()));
            out.push(block.bytes.clone());
            return Ok(Next::Media(out));
        }
    }

    /// Notes that all but `left` bytes of the last block are in the kernel. If `left` is not 0, the
    /// kernel takes no more for now. Returns when the caller must call this again, at the latest.
    pub(super) fn sent(&mut self, left: usize, now: UnixMicros) -> Option<Duration> {
        let (from, to, size) = self.sending?;
        let sent = size.saturating_sub(left);
        // A block is a quarter of a second and a few megabytes, so this does not overflow.
        let part = (to - from).max(0) as u64 * sent as u64 / size.max(1) as u64;
        self.hand.deliver(self.position(from.saturating_add_unsigned(part)), now);
        if left == 0 {
            self.sending = None;
            return None;
        }
        if self.paused { None } else { self.place.wait(&self.hand, now) }
    }

    fn position(&self, milliseconds: i64) -> Duration {
        let since = milliseconds.saturating_sub(self.began);
        Duration::from_millis(u64::try_from(since).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::pace::Pace;

    const TITLE: &str = "mp4/two-minutes.mp4";

    /// Plays the title at `pace`. Returns for each block: the time since the start, the bytes sent
    /// before and after the block, and the position reached.
    async fn sent(
        origin: &Origin,
        flv_title: &Arc<FlvTitle>,
        pace: Pace,
    ) -> Vec<(Duration, [usize; 2], i64)> {
        let plan = origin.config.vod.plan(Some(pace));
        let began = origin.now();
        let mut play = Play::new(origin, Arc::clone(flv_title), plan, 0.0, None);
        let (mut log, mut bytes) = (Vec::new(), 0);
        while let Next::Media(pieces) = play.next(origin).await.unwrap() {
            // The headers come once and do not count as part of the title.
            let size = pieces.last().unwrap().len();
            let (_, end, _) = play.sending.unwrap();
            log.push((origin.now().since(began), [bytes, bytes + size], end));
            bytes += size;
            play.sent(0, origin.now());
        }
        log
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_follow_the_plan() {
        let mut config = Config::default();
        config.vod.root = testkit::media_dir();
        let origin = Origin::new(config);
        let flv_title = origin.flv_titles.of(origin.titles.title(TITLE).unwrap()).unwrap();
        let whole = sent(&origin, &flv_title, Pace::Fast).await;
        assert!(whole.iter().all(|(at, ..)| at.is_zero()));
        let total = whole.last().unwrap().1[1];
        // Bytes up to a position. The bytes of a block are spread evenly over its time.
        let up_to = |position: f64| {
            let mut from = (0.0, 0.0);
            for (_, [_, bytes], end) in &whole {
                let to = (*end as f64 / 1000.0, *bytes as f64);
                if to.0 > position {
                    return from.1 + (to.1 - from.1) * (position - from.0) / (to.0 - from.0);
                }
                from = to;
            }
            total as f64
        };
        for (pace, burst, rate) in [(Pace::Burst, 10.0, 1.25), (Pace::Realtime, 0.0, 1.0)] {
            let log = sent(&origin, &flv_title, pace).await;
            assert_eq!(log.last().unwrap().1[1], total);
            for (at, [before, after], _) in log {
                let planned = up_to(burst + rate * at.as_secs_f64());
                // In real time, the large first keyframe weighs too much in the first seconds.
                if planned < up_to(10.0) {
                    continue;
                }
                // Blocks that are due at the start go out as fast as the player takes them.
                let kept = at.is_zero() || before as f64 > 0.95 * planned;
                assert!(kept, "{pace:?} {at:?}: {before} of {planned}");
                assert!((after as f64) < 1.05 * planned, "{pace:?} {at:?}: {after} of {planned}");
            }
        }
    }

    /// Plays blocks up to one that ends at `position` or later. Returns when that block is due, as
    /// media time.
    async fn play_to(play: &mut Play, origin: &Origin, position: i64) -> Duration {
        loop {
            let Next::Media(_) = play.next(origin).await.unwrap() else { panic!("the end") };
            let (from, end, _) = play.sending.unwrap();
            play.sent(0, origin.now());
            if end >= position {
                return play.position(from);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_holds_the_pace_and_a_seek_begins_it_anew() {
        let mut config = Config::default();
        config.vod.root = testkit::media_dir();
        let origin = Origin::new(config);
        let flv_title = origin.flv_titles.of(origin.titles.title(TITLE).unwrap()).unwrap();
        let plan = origin.config.vod.plan(Some(Pace::Realtime));
        let mut play = Play::new(&origin, flv_title, plan, 0.0, None);
        let pause = Duration::from_secs(60);
        let mut began = origin.now();
        let is_on_time = |since: UnixMicros, due: Duration| {
            let late = origin.now().since(since).checked_sub(due);
            late.is_some_and(|late| late < Duration::from_millis(5))
        };
        let due = play_to(&mut play, &origin, 10_000).await;
        assert!(is_on_time(began, due), "{due:?}");
        play.pause(true, origin.now());
        assert!(tokio::time::timeout(pause, play.next(&origin)).await.is_err());
        play.pause(false, origin.now());
        began = began.after(pause);
        let due = play_to(&mut play, &origin, 20_000).await;
        assert!(is_on_time(began, due), "{due:?}");
        let keyframe = play.seek(90_000.0, origin.now());
        began = origin.now();
        for position in [keyframe, keyframe + 10_000] {
            let due = play_to(&mut play, &origin, position).await;
            assert!(is_on_time(began, due), "{due:?}");
        }
    }

    /// Polls for what comes next, as a connection does whose peer then sends something. Other tasks
    /// have their turns meanwhile.
    async fn ask(play: &mut Play, origin: &Origin) {
        tokio::select! {
            biased;
            _ = play.next(origin) => panic!("no thread makes blocks"),
            () = async {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
            } => {}
        }
    }

    #[test]
    fn one_thread_makes_blocks_for_a_player_whatever_it_asks_for() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            // The second player has blocks of its own.
            for start in [0.0, 30_000.0] {
                let mut config = Config::default();
                config.vod.root = testkit::media_dir();
                let origin = Origin::new(config);
                let flv_title = origin.flv_titles.of(origin.titles.title(TITLE).unwrap()).unwrap();
                let plan = origin.config.vod.plan(Some(Pace::Fast));
                let mut play = Play::new(&origin, Arc::clone(&flv_title), plan, start, None);
                // The only thread waits for the test.
                let (go_on, held) = std::sync::mpsc::channel::<()>();
                let thread = tokio::task::spawn_blocking(move || held.recv());
                ask(&mut play, &origin).await;
                // Each job of a thread has the title.
                let jobs = Arc::strong_count(&flv_title);
                for _ in 0..50 {
                    ask(&mut play, &origin).await;
                }
                assert_eq!(Arc::strong_count(&flv_title), jobs);
                for at in 0..50 {
                    play.seek(f64::from(at) * 2000.0, origin.now());
                    ask(&mut play, &origin).await;
                }
                assert_eq!(Arc::strong_count(&flv_title), jobs);
                drop(go_on);
                assert!(matches!(play.next(&origin).await, Ok(Next::Media(_))));
                assert!(thread.await.unwrap().is_err());
            }
        });
    }
}
