//! `streamgauge calibrate`: what each player reports of delays, rates, stalls and losses that are known.
//!
//! A bundled server does known things to a viewer. The viewer is run as `viewers` runs it: by [`crate::fleet`], over
//! real sockets. Server and viewer have an event loop each, so that no case delays another. The viewer's report is
//! compared with what follows from what the server did.
//!
//! ```text
//! case: player × injection ─┬─▶ script: what comes when ─▶ server ─▶ sockets ─▶ fleet: a viewer ─▶ report ─┐
//!                           └─▶ the true figures ──────────────────────────────────────────▶ check ◀──────┘
//! ```
//!
//! - `stream` has the frames, `script` says when each comes, and what follows from that.
//! - `server` publishes over every delivery, by the script of its case.
//! - `case` says what an `injection` does and what a `player` must report, `check` compares, [`document`] is the result.

mod case;
mod check;
pub mod document;
mod injection;
mod player;
mod script;
mod server;
mod stream;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use viewer::{Options, Report, RequestTimes};

use self::case::{Case, PICTURES};
pub use self::check::{Check, Lags, Unit};
use self::document::Document;
pub use self::injection::Injection;
pub use self::player::Player;
use self::server::Server;
use self::stream::Stream;
use crate::fleet::{self, Observer, Original, Outcome, Plan, Verify};
use crate::record::Tick;
use crate::selfwatch::{Generator, LoopReport};
use crate::{Exit, text};

/// How long a viewer may take. All streams are shorter.
const LONGEST: Duration = Duration::from_secs(20);

/// What each player reports of delays, rates, stalls and losses that are known
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only this player; may be given several times
    #[arg(long = "player", value_name = "PLAYER", value_enum)]
    players: Vec<Player>,
    /// Only what is reported of this; may be given several times
    #[arg(long = "injection", value_name = "WHAT", value_enum)]
    injections: Vec<Injection>,
    /// One document on standard output, docs/schema/calibrate.schema.json
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Calibrates the players. Prints the document, or a table for people, to standard output.
    ///
    /// # Errors
    /// The server or a viewer cannot start.
    pub fn run(&self) -> anyhow::Result<Exit> {
        let document = calibrate(
            &chosen(&self.players, &Player::ALL),
            &chosen(&self.injections, &Injection::ALL),
        )?;
        if self.json {
            text::json(&document)?;
        } else {
            document::write(&document, &mut std::io::stdout().lock())?;
        }
        Ok(document.exit())
    }
}

/// What was chosen, in the order of all, or all if nothing was.
fn chosen<T: Copy + PartialEq>(given: &[T], all: &[T]) -> Vec<T> {
    let is_chosen = |one: &T| given.is_empty() || given.contains(one);
    all.iter().copied().filter(is_chosen).collect()
}

/// Does one thing after the other to the players, each to all of them at once.
fn calibrate(players: &[Player], injections: &[Injection]) -> anyhow::Result<Document> {
    let concerns = |injection: &Injection| players.iter().any(|player| injection.concerns(*player));
    ensure!(
        injections.iter().any(concerns),
        "none of the chosen injections concerns one of the chosen players"
    );
    let begun = Instant::now();
    let stream = Arc::new(Stream::new(PICTURES)?);
    let (reference, _file) = stream.reference()?;
    let (mut checks, mut reasons, mut interrupted) = (Vec::new(), Vec::new(), false);
    for injection in injections {
        if interrupted {
            break;
        }
        let concerned = players.iter().filter(|player| injection.concerns(**player));
        let cases: Vec<_> = concerned.map(|player| Case::new(*player, *injection)).collect();
        for (case, watched) in cases.iter().zip(watch(&cases, &stream, &reference)?) {
            checks.extend(watched.checks(case));
            reasons.extend(watched.reasons(case));
            interrupted |= watched.outcome.interrupted;
        }
    }
    let failed = checks.iter().filter(|check| !check.passed).count();
    Ok(Document {
        verb: "calibrate".to_owned(),
        elapsed: begun.elapsed().as_secs_f64(),
        interrupted,
        passed: failed == 0 && !interrupted,
        failed,
        checks,
        reasons,
    })
}

/// Runs cases at the same time.
fn watch(
    cases: &[Case],
    stream: &Arc<Stream>,
    reference: &Original,
) -> anyhow::Result<Vec<Watched>> {
    thread::scope(|scope| {
        let run = |case| scope.spawn(move || Watched::run(case, Arc::clone(stream), reference));
        let threads: Vec<_> = cases.iter().map(run).collect();
        let end = |thread: thread::ScopedJoinHandle<'_, anyhow::Result<Watched>>| {
            thread.join().map_err(|_| anyhow!("a viewer has failed"))?
        };
        threads.into_iter().map(end).collect()
    })
}

/// What came of a case.
struct Watched {
    /// The viewer's report.
    report: Option<Report>,
    outcome: Outcome,
    server: LoopReport,
}

impl Watched {
    /// Runs the viewer of a case against its server.
    fn run(case: &Case, stream: Arc<Stream>, reference: &Original) -> anyhow::Result<Self> {
        let server = Server::start(case.script.clone(), stream)?;
        let mut one = One(None);
        let plan = plan(case, &case.player.url(server.addresses), reference)?;
        let outcome = fleet::run(&plan, None, LONGEST, &mut one)?;
        Ok(Self { report: one.0, outcome, server: server.stop()? })
    }

    fn checks(&self, case: &Case) -> Vec<Check> {
        let loops = &self.outcome.generator.loops;
        let lags = Lags {
            viewer: loops.iter().map(|each| each.lag_max).fold(0.0, f64::max),
            server: self.server.lag_max,
        };
        case.checks(self.report.as_ref(), lags)
    }

    /// Why the figures of a case cannot be trusted.
    fn reasons(&self, case: &Case) -> Vec<String> {
        let of = format!("{}, {}", case.player.name(), case.injection.name());
        let server = Generator::judge(vec![self.server], 0);
        let [viewer, server] = [("viewer", &self.outcome.generator), ("server", &server)]
            .map(|(whose, judged)| judged.reasons.iter().map(move |reason| (whose, reason)));
        let reasons = viewer.chain(server);
        reasons.map(|(whose, reason)| format!("{of}, {whose}: {reason}")).collect()
    }
}

/// The run of a case: one viewer.
fn plan(case: &Case, url: &str, reference: &Original) -> anyhow::Result<Plan> {
    let is_compared = case.injection.is_compared();
    Ok(Plan {
        target: url.parse().with_context(|| url.to_owned())?,
        options: Options { low_latency: case.player != Player::Hls, ..Options::default() },
        batches: 1,
        batch_size: 1,
        interval: Duration::ZERO,
        duration: LONGEST,
        together: false,
        verify: if is_compared { Verify::Full } else { Verify::None },
        reference: is_compared.then(|| reference.clone()),
        loops: 1,
        processes: Some(1),
    })
}

/// Takes the report of the only viewer.
struct One(Option<Report>);

impl Observer for One {
    fn tick(&mut self, _: &Tick) {}

    fn report(&mut self, report: Report) -> anyhow::Result<()> {
        self.0 = Some(report);
        Ok(())
    }

    fn requests(&mut self, _: &RequestTimes) {}
}
