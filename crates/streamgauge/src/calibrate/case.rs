//! The cases of a calibration: what is done to each player, and what its report must then say.

use std::ops::Range;
use std::time::Duration;

use viewer::{Kind, Report, seconds};

use super::check::{Check, Lags, Unit};
use super::injection::Injection;
use super::player::{Player, SEGMENT};
use super::script::{Loss, Outage, Script};
use super::stream::SIZE;
use crate::selfwatch::LAG;
use crate::summary::bit_rate;

/// Delay of the first byte.
const DELAY: Duration = Duration::from_secs(1);
/// Time from capture to delivery.
const HELD: Duration = Duration::from_secs(2);
/// Bits per second of a link: half of the stream's bit rate.
const RATE: u32 = 400_000;
/// Duration of an outage.
const OUTAGE: Duration = Duration::from_secs(3);
/// Frames that never come: two segments.
const HOLE: Range<u32> = 50..100;
/// The frame with a wrong byte.
const WRONG: u32 = 60;
/// Frames that lose a packet once, and a frame that never comes.
/// That frame is no keyframe: parameter sets have packets of their own.
const LOST: Loss = Loss { once: 40..60, always: 101 };

/// Bound of a time, in seconds: an event loop may wake this late before a run counts as saturated.
const PROMPT: f64 = LAG.as_secs_f64();
/// How much later a player may poll than once a second, in seconds, over all of a case. It counts from when the answer
/// before came.
const POLLING: f64 = 0.05;
/// How long ICE and DTLS may take before the first packet of WHEP, in seconds.
const HANDSHAKE: f64 = 0.25;
/// Bits of a frame.
const BITS: f64 = SIZE as f64 * 8.0;
/// Bound of a bit rate, as a share of it: the heads of messages, and what comes before the first byte of media.
const SHARE: f64 = 0.02;
/// Bound of a percentile, as a share of it: a player keeps one exact digit of each time.
const DIGIT: f64 = 0.07;
/// Bound of the duration of a hole, in seconds: FLV's times are in whole milliseconds, and RTP's in ticks.
const ROUNDING: f64 = 0.002;

/// Packets of a frame by WHEP that is no keyframe: one for the stamp, and four for the slice of 4,000 bytes.
const PACKETS: usize = 5;

/// Frames of the streams of all cases: 6 s.
pub(super) const PICTURES: u32 = 150;

/// A case.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) player: Player,
    pub(super) injection: Injection,
    pub(super) script: Script,
}

impl Case {
    /// Makes the case of a player and an injection.
    pub(super) fn new(player: Player, injection: Injection) -> Self {
        let live = Script::live(player, PICTURES);
        let finished = Script::finished(player, PICTURES);
        let script = match injection {
            Injection::Delay => Script { delay: DELAY, ..finished },
            Injection::Latency => Script { held: HELD, ..live },
            Injection::ServerClock => Script { held: HELD, is_stamped: false, ..live },
            // 8 s of a link for 4 s of media.
            Injection::Rate => Script { rate: Some(RATE), ..Script::finished(player, 100) },
            Injection::Outage => {
                // A second after zero, when the playhead has moved.
                let from = player.backlog() + SEGMENT;
                Script { outage: Some(Outage { from, length: OUTAGE }), ..live }
            }
            Injection::Hole => Script { hole: HOLE, ..finished },
            Injection::Corruption => Script { wrong: Some(WRONG), ..finished },
            Injection::Loss => Script { loss: Some(LOST), ..live },
        };
        Self { player, injection, script }
    }

    /// Compares the report of the case's viewer with the truth. `None`: the viewer did not report.
    pub(super) fn checks(&self, report: Option<&Report>, lags: Lags) -> Vec<Check> {
        let Self { player, injection, script } = self;
        let check = |figure: &str, unit: Unit, injected: f64, bound: f64, reported: Option<f64>| {
            Check::new((*player, *injection), (figure, unit), (injected, bound), reported, lags)
        };
        let time = |figure: &str, injected: f64, bound: f64, reported: Option<f64>| {
            check(figure, Unit::Seconds, injected, bound, reported)
        };
        let last = player.last_picture().as_secs_f64();
        let prompt = PROMPT + if *player == Player::Hls { POLLING } else { 0.0 };
        let handshake = if *player == Player::Whep { HANDSHAKE } else { 0.0 };
        match injection {
            Injection::Delay => {
                let (delay, bound) = (script.delay.as_secs_f64(), PROMPT + handshake);
                vec![
                    time("first_media", delay, bound, report.and_then(|report| report.first_media)),
                    time("startup", delay, bound, report.and_then(|report| report.startup)),
                ]
            }
            Injection::Latency | Injection::ServerClock => {
                let (delivery, behind) =
                    (seconds(script.delivery()), seconds(script.behind_live()));
                let of = |latency: fn(&Report) -> Option<viewer::Latency>| {
                    report.and_then(latency).map(|latency| latency.mean)
                };
                let percentile = |figure: &str, percent, of: fn(&Report) -> Option<f64>| {
                    let delivered = seconds(script.delivered(percent));
                    time(figure, delivered, prompt + DIGIT * delivered, report.and_then(of))
                };
                vec![
                    time("delivery", delivery, prompt, of(|report| report.delivery)),
                    percentile("delivery_p50", 50, |report| report.delivery_p50),
                    percentile("delivery_p99", 99, |report| report.delivery_p99),
                    time("behind_live", behind, prompt, of(|report| report.behind_live)),
                ]
            }
            Injection::Rate => {
                let bits = f64::from(script.rate.unwrap_or_default());
                // The viewer watches from when it joins, and the link is busy only after the handshake.
                let busy = f64::from(script.pictures) * BITS / bits;
                let (rate, share) = (bits / 1e6, SHARE + handshake / busy);
                let reported = report.and_then(bit_rate);
                vec![check("bit_rate", Unit::MegabitsPerSecond, rate, rate * share, reported)]
            }
            Injection::Outage => {
                let stalls = report.map(|report| f64::from(report.stalls));
                let stalled = report.map(|report| report.stalled);
                let late = report.and_then(|report| report.late).map(|late| late.max);
                let outage = script.outage.map_or(0.0, |outage| outage.length.as_secs_f64());
                let mut checks = vec![
                    check("stalls", Unit::Count, 1.0, 0.0, stalls),
                    time("stalled", seconds(script.stalled()), prompt + last, stalled),
                ];
                // A file comes as fast as the link is, so what comes first is later than what comes next.
                if *player != Player::File {
                    checks.push(time("late.max", outage, prompt + last, late));
                }
                checks
            }
            Injection::Hole => {
                let holes = report.map(|report| f64::from(report.holes));
                let missing = report.map(|report| report.missing);
                let longest = report.map(|report| report.longest_hole);
                let received = report.map(|report| report.received);
                let verified = report.and_then(|report| report.verified);
                let units = verified.map(|verified| count(verified.missing));
                vec![
                    check("holes", Unit::Count, 1.0, 0.0, holes),
                    time("missing", seconds(script.missing()), ROUNDING + last, missing),
                    time("longest_hole", seconds(script.missing()), ROUNDING + last, longest),
                    // The last frame before the hole, and the last of all.
                    time("received", seconds(script.received()), ROUNDING + 2.0 * last, received),
                    check(
                        "verified.missing",
                        Unit::Count,
                        f64::from(HOLE.end - HOLE.start),
                        0.0,
                        units,
                    ),
                ]
            }
            Injection::Corruption => {
                let is_found = |report: &Report| {
                    report.error.as_ref().is_some_and(|error| error.kind == Kind::Corrupt)
                };
                let ended = report.map(|report| f64::from(u8::from(is_found(report))));
                let verified = report.and_then(|report| report.verified);
                let before = verified.map(|verified| count(verified.matched));
                vec![
                    check("errors.corrupt", Unit::Count, 1.0, 0.0, ended),
                    check("verified.matched", Unit::Count, f64::from(WRONG), 0.0, before),
                ]
            }
            Injection::Loss => {
                let rtp = report.and_then(|report| report.rtp);
                let packets = |figure: &str, injected: usize, of: fn(&viewer::Rtp) -> u64| {
                    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
                    let injected = injected as f64;
                    check(figure, Unit::Count, injected, 0.0, rtp.map(|rtp| count(of(&rtp))))
                };
                vec![
                    packets("rtp.recovered", LOST.once.len(), |rtp| rtp.recovered),
                    packets("rtp.lost", PACKETS, |rtp| rtp.lost),
                ]
            }
        }
    }
}

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn count(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use viewer::{Clock, Failure, Lane, Latency, Options, Totals, Verified, Viewer};

    use super::*;

    const LAGS: Lags = Lags { viewer: 0.0, server: 0.0 };

    /// The report of a viewer to which a script was done, and who saw it without any error.
    fn report(script: &Script) -> Report {
        let lane = Lane::new(Clock::start(), Options::default(), Totals::default().into());
        let mut report = Viewer::join(&lane, (0, 0), true, None).leave(None).report();
        let exactly = |value| Some(Latency { min: value, mean: value, max: value });
        report.first_media = Some(script.delay.as_secs_f64());
        report.startup = report.first_media;
        report.delivery = exactly(seconds(script.delivery()));
        report.behind_live = exactly(seconds(script.behind_live()));
        report.watched = 8.0;
        report.media_bytes = u64::from(script.rate.unwrap_or(800_000));
        report.delivery_p50 = Some(seconds(script.delivered(50)));
        report.delivery_p99 = Some(seconds(script.delivered(99)));
        report.stalls = u32::from(script.outage.is_some());
        report.stalled = seconds(script.stalled());
        report.late = exactly(script.outage.map_or(0.0, |outage| outage.length.as_secs_f64()));
        report.holes = u32::from(!script.hole.is_empty());
        report.missing = seconds(script.missing());
        report.longest_hole = report.missing;
        report.received = seconds(script.received());
        report.rtp = script.loss.as_ref().map(|loss| viewer::Rtp {
            lost: PACKETS as u64,
            recovered: loss.once.len() as u64,
            ..viewer::Rtp::default()
        });
        report.verified = Some(Verified {
            missing: script.hole.len() as u64,
            matched: script.wrong.unwrap_or(PICTURES).into(),
            ..Verified::default()
        });
        report.error = script.wrong.map(|_| Failure {
            kind: Kind::Corrupt,
            what: String::new(),
            place: String::new(),
        });
        report
    }

    fn cases() -> impl Iterator<Item = Case> {
        let of = |injection: Injection| {
            let concerned =
                Player::ALL.into_iter().filter(move |player| injection.concerns(*player));
            concerned.map(move |player| Case::new(player, injection))
        };
        Injection::ALL.into_iter().flat_map(of)
    }

    #[test]
    fn a_report_of_what_was_done_passes_every_check() {
        for case in cases() {
            let checks = case.checks(Some(&report(&case.script)), LAGS);
            assert!(!checks.is_empty() && checks.iter().all(|check| check.passed), "{checks:#?}");
        }
    }

    #[test]
    fn a_report_of_something_else_fails_every_case() {
        for case in cases() {
            let other = Script {
                delay: Duration::from_millis(1400),
                held: Duration::from_millis(2200),
                rate: Some(370_000),
                outage: None,
                hole: 50..99,
                wrong: Some(59),
                loss: Some(Loss { once: 40..59, always: 101 }),
                ..case.script.clone()
            };
            let checks = case.checks(Some(&report(&other)), LAGS);
            assert!(checks.iter().any(|check| !check.passed), "{checks:#?}");
        }
    }

    #[test]
    fn a_viewer_without_a_report_fails_every_check() {
        for case in cases() {
            assert!(case.checks(None, LAGS).iter().all(|check| !check.passed), "{case:#?}");
        }
    }
}
