//! The clip as a low-latency HLS stream, one part for each fragment and one segment for two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Act, AudioClip, ok, status};

/// Parts in the first playlist.
pub(crate) const BEFORE: u64 = 12;
/// Parts in the last playlist.
pub(crate) const PARTS: u64 = 24;
/// Duration of a part.
pub(crate) const PART: Duration = Duration::from_millis(512);

/// The stream. By itself it grows when the player asks for more. So it does not matter how long
/// anybody takes.
pub(crate) struct Stream {
    clip: AudioClip,
    /// How many parts there are. If more than `PARTS`, the stream has ended.
    made: AtomicU64,
    hints: bool,
    /// When a part is there, and the time since 1970 when it was captured.
    times: Option<Box<Times>>,
}

type Times = dyn Fn(u64) -> (Instant, Duration) + Send + Sync;

impl Stream {
    pub(crate) fn new(hints: bool) -> Self {
        let clip = AudioClip::new(PARTS as u32);
        Self { clip, made: AtomicU64::new(BEFORE), hints, times: None }
    }

    /// The same stream, which answers about a part only once that is there.
    pub(crate) fn timed(
        self,
        times: impl Fn(u64) -> (Instant, Duration) + Send + Sync + 'static,
    ) -> Self {
        Self { times: Some(Box::new(times)), ..self }
    }

    /// Makes the part after the next, and those before it.
    pub(crate) fn make_next(&self) {
        self.make(self.made.load(Ordering::Acquire) + 1);
    }

    /// Makes the parts before this one, and this one.
    fn make(&self, part: u64) {
        self.made.fetch_max(part + 1, Ordering::AcqRel);
    }

    fn playlist(&self, skip: bool) -> String {
        let made = self.made.load(Ordering::Acquire);
        let parts = made.min(PARTS);
        let segments = parts / 2;
        // A player on a busy machine may ask for a delta update late.
        let mut text = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-PART-INF:PART-TARGET=0.512\n\
            #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.536,CAN-SKIP-UNTIL=120\n\
            #EXT-X-MEDIA-SEQUENCE:0\n"
            .to_owned();
        let first = if skip { segments.saturating_sub(4) } else { 0 };
        if first > 0 {
            text += &format!("#EXT-X-SKIP:SKIPPED-SEGMENTS={first}\n");
        } else {
            text += "#EXT-X-MAP:URI=\"init.mp4\"\n";
        }
        let part =
            |part: u64| format!("#EXT-X-PART:DURATION=0.512,URI=\"p{part}.m4s\",INDEPENDENT=YES\n");
        for segment in first..segments {
            text += &self.date(segment);
            if segment + 3 >= segments {
                text += &part(2 * segment);
                text += &part(2 * segment + 1);
            }
            text += &format!("#EXTINF:1.024,\n{segment}.m4s\n");
        }
        if parts % 2 == 1 {
            text += &self.date(segments);
            text += &part(parts - 1);
        }
        if made > PARTS {
            text += "#EXT-X-ENDLIST\n";
        } else if self.hints {
            text += &format!("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"p{parts}.m4s\"\n");
        }
        text
    }

    /// The answer to a request for `/media.m3u8` or a file that it names.
    pub(crate) fn answer(&self, target: &str) -> Vec<Act> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let of = |name: &str| -> Option<u64> {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        };
        let asked = of("_HLS_msn").map(|msn| 2 * msn + of("_HLS_part").unwrap_or(1));
        let name = path.rsplit('/').next().unwrap();
        let part = name.strip_prefix('p').and_then(|name| name.strip_suffix(".m4s")?.parse().ok());
        let mut acts = Vec::new();
        if let Some(wanted) = asked.or(part) {
            self.make(wanted);
            acts.extend(self.times.as_ref().map(|times| Act::WaitUntil(times(wanted).0)));
        }
        acts.extend(match (name, part) {
            ("media.m3u8", _) => ok(self.playlist(query.contains("_HLS_skip=YES")).as_bytes()),
            ("init.mp4", _) => ok(&self.clip.header()),
            (_, Some(part)) if part < PARTS => ok(&self.fragment(part)),
            (_, Some(_)) => status("404 Not Found"),
            (name, None) => {
                let segment: u64 = name.strip_suffix(".m4s").unwrap().parse().unwrap();
                ok(&[2 * segment, 2 * segment + 1].map(|part| self.fragment(part)).concat())
            }
        });
        acts
    }

    fn fragment(&self, part: u64) -> Vec<u8> {
        self.clip.fragment(u32::try_from(part).unwrap())
    }

    /// The tag that says when this segment was captured.
    fn date(&self, segment: u64) -> String {
        let Some(times) = &self.times else { return String::new() };
        let captured = super::date(times(2 * segment).1);
        format!("#EXT-X-PROGRAM-DATE-TIME:{captured}\n")
    }
}
