//! Paces an MP4 that is sent as one long response. A viewer who watches it while it arrives may
//! never watch the rest, and other viewers should not wait for those bytes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Body, FileVersion, Method, OpenFile, Piece, Request, Response};
use vod::{Reach, Title};

use super::media_type;
use super::opened::Found;
use crate::Origin;
use crate::deliver::recent::Recent;
use crate::deliver::unfold::unfold;
use crate::pace::{Hand, Pace, Plan, Schedule, Share};

/// Media sent at once.
const STEP: Duration = Duration::from_millis(250);

/// Fewest bytes to send at once, however long they play.
const LEAST: u64 = 4 << 10;

/// Paces a response with an MP4 from some place to its end, however the request asked for it,
/// unless its URL asks for it fast. A request for less is not paced: the client knows which bytes
/// it needs.
pub(super) fn pace(
    request: &Request,
    origin: &Arc<Origin>,
    titles: &Recent,
    (path, found): (&str, &Found),
    response: Response,
) -> Response {
    let asked = request.parameter("pace").and_then(|name| Pace::named(&name));
    let plan = origin.config.vod.plan(asked);
    let has_media = matches!(response.status(), 200 | 206);
    let is_mp4 = matches!(media_type::of(path), "video/mp4" | "audio/mp4" | "video/quicktime");
    if plan.pace == Pace::Fast || request.method() != Method::Get || !has_media || !is_mp4 {
        return response;
    }
    response.map_body(|body| match body {
        Body::Pieces(pieces) => match pieces.as_slice() {
            [Piece::File { range, version, .. }] if range.end == found.metadata.len => {
                let range = range.clone();
                let download = Download {
                    origin: Arc::clone(origin),
                    titles: titles.clone(),
                    path: path.to_owned(),
                    file: Arc::clone(&found.file),
                    version: *version,
                    plan,
                    at: range.start,
                    end: range.end,
                    has_begun: false,
                    pacing: None,
                };
                // When the server drains, this response has the same time as any other. If it is
                // cut short then, the client can ask another server for the rest.
                let body = unfold(download, false, Download::next);
                Body::Sized(range.end - range.start, Box::new(body))
            }
            _ => Body::Pieces(pieces),
        },
        body => body,
    })
}

/// A paced response in progress.
struct Download {
    origin: Arc<Origin>,
    titles: Recent,
    path: String,
    file: Arc<OpenFile>,
    version: Option<FileVersion>,
    plan: Plan,
    /// The range of the file's bytes still to send.
    at: u64,
    end: u64,
    has_begun: bool,
    /// Set once the download has begun, if the MP4 can be read.
    pacing: Option<Pacing>,
}

struct Pacing {
    title: Arc<Title>,
    /// The movie's time at which the response begins.
    began: Duration,
    schedule: Schedule,
    hand: Hand,
    place: Share,
}

impl Download {
    /// Waits until the next piece is due and returns it. By then everything before is in the
    /// kernel.
    async fn next(mut self) -> io::Result<Option<(Vec<Piece>, Self)>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let least = self.at.saturating_add(LEAST);
        let until = if self.has_begun {
            if self.pacing.is_none() {
                self.pacing = self.begin().await;
            }
            match &mut self.pacing {
                // The file's timing is not known.
                None => self.end,
                Some(pacing) => pacing.next(&self.origin, self.at).await.max(least),
            }
        } else {
            // Reading the file's index may take a while, and the first bytes do not wait for this.
            self.has_begun = true;
            least
        };
        let until = until.min(self.end);
        let (file, version) = (Arc::clone(&self.file), self.version);
        let piece = Piece::File { file, range: self.at..until, version };
        self.at = until;
        Ok(Some((vec![piece], self)))
    }

    async fn begin(&self) -> Option<Pacing> {
        let found = self.titles.look_up(&self.origin, &self.path).await;
        let title = found.ok().filter(|title| !title.reach.is_empty())?;
        let now = self.origin.now();
        Some(Pacing {
            began: time_at(&title.reach, self.at),
            title,
            schedule: Schedule::new(self.plan, now),
            hand: Hand::new(now),
            place: Share::new(&self.origin.balance),
        })
    }
}

impl Pacing {
    /// Waits until the bytes from `at` on are due. Returns up to where they may be sent.
    async fn next(&mut self, origin: &Origin, at: u64) -> u64 {
        let reach = &self.title.reach;
        let time = time_at(reach, at);
        let position = time.saturating_sub(self.began);
        let now = origin.now();
        self.hand.deliver(position, now);
        self.place.taken(now);
        while let Some(wait) = self.place.due(&self.schedule, &self.hand, position, origin.now()) {
            tokio::time::sleep(wait).await;
        }
        self.place.offer(&self.hand, origin.now());
        match reach.last() {
            // The bytes behind the media are not played.
            Some(last) if time + STEP >= last.until => u64::MAX,
            _ => offset_at(reach, time + STEP),
        }
    }
}

/// The time up to which the movie plays with its first `offset` bytes. Within a segment, bytes
/// count evenly.
fn time_at(reach: &[Reach], offset: u64) -> Duration {
    let (from, to) = around(reach, |reach| reach.offset <= offset);
    let bytes = to.offset.saturating_sub(from.offset);
    if bytes == 0 {
        return from.until;
    }
    let part = offset.saturating_sub(from.offset) as f64 / bytes as f64;
    from.until + to.until.saturating_sub(from.until).mul_f64(part.min(1.0))
}

/// The number of bytes needed to play up to `time`.
fn offset_at(reach: &[Reach], time: Duration) -> u64 {
    let (from, to) = around(reach, |reach| reach.until <= time);
    let span = to.until.saturating_sub(from.until).as_secs_f64();
    if span == 0.0 {
        return from.offset;
    }
    let part = time.saturating_sub(from.until).as_secs_f64() / span;
    let bytes = to.offset.saturating_sub(from.offset) as f64 * part.min(1.0);
    // At most the difference of two offsets, so the cast is safe.
    from.offset.saturating_add(bytes as u64)
}

/// The last point that is `before` and the first that is not. Behind the last point, returns that
/// point twice.
fn around(reach: &[Reach], before: impl Fn(&Reach) -> bool) -> (Reach, Reach) {
    let next = reach.partition_point(before);
    let beginning = Reach { until: Duration::ZERO, offset: 0 };
    let from = next.checked_sub(1).and_then(|last| reach.get(last)).copied().unwrap_or(beginning);
    (from, reach.get(next).copied().unwrap_or(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_times_and_times_bytes() {
        let second = Duration::from_secs(1);
        let point = |seconds, offset| Reach { until: seconds * second, offset };
        // Two seconds need 1,000 bytes, the next two need none more, and one more second needs 500.
        let reach = [point(2, 1000), point(4, 1000), point(5, 1500)];
        for (offset, millis) in [(0, 0), (500, 1000), (1000, 4000), (1250, 4500), (9000, 5000)] {
            assert_eq!(time_at(&reach, offset), Duration::from_millis(millis), "{offset}");
        }
        for (millis, offset) in [(0, 0), (1000, 500), (3000, 1000), (4500, 1250), (9000, 1500)] {
            assert_eq!(offset_at(&reach, Duration::from_millis(millis)), offset, "{millis}");
        }
        assert_eq!((time_at(&[], 5), offset_at(&[], second)), (Duration::ZERO, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_bytes_of_a_file_go_out_when_they_are_played() {
        let mut config = crate::config::Config::default();
        config.vod.root = testkit::media_dir();
        let origin = Arc::new(Origin::new(config));
        let path = "mp4/two-minutes.mp4";
        let file = std::fs::File::open(testkit::clip(path)).unwrap();
        let end = file.metadata().unwrap().len();
        let plan = origin.config.vod.plan(None);
        let mut download = Download {
            origin: Arc::clone(&origin),
            titles: Recent::default(),
            path: path.to_owned(),
            file: Arc::new(file.into()),
            version: None,
            plan,
            at: 0,
            end,
            has_begun: false,
            pacing: None,
        };
        let reach = &origin.titles.title(path).unwrap().reach;
        let all = async {
            let (began, mut sent) = (tokio::time::Instant::now(), 0);
            while let Some((pieces, rest)) = download.next().await.unwrap() {
                // The first bytes do not wait for the file's index.
                let due = plan.delay(time_at(reach, sent).saturating_sub(time_at(reach, LEAST)));
                // The pace counts in whole microseconds.
                let late = (began.elapsed() + Duration::from_micros(1)).checked_sub(due);
                let is_on_time = late.is_some_and(|late| late < Duration::from_millis(5));
                assert!(is_on_time, "{sent}: {:?}, not {due:?}", began.elapsed());
                sent += http::length(&pieces);
                download = rest;
            }
            assert_eq!(sent, end);
        };
        tokio::task::LocalSet::new().run_until(all).await;
    }
}
