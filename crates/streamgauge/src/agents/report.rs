//! What a run says of its agents.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::clock::Offset;

/// A machine of a run.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// Version of its program.
    pub version: String,
    /// Number of its processors.
    pub cores: u32,
    /// How many processes it ran.
    pub processes: u32,
    /// Its clock, compared with that of the machine on which the verb was started.
    pub clock: Option<Clocks>,
    /// Whether it was the limit of the measurement.
    pub saturated: bool,
    /// Why it was the limit.
    pub reasons: Vec<String>,
    /// Set if it was lost in the run.
    pub lost: Option<Lost>,
}

/// Two clocks of the time of day. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Clocks {
    /// How far the agent's clock was ahead at the start of the run. Latencies since capture are
    /// corrected by this.
    pub ahead: f64,
    /// The most by which that is wrong: half of the shortest round trip before the run.
    pub uncertainty: f64,
    /// The shortest round trip before the run.
    pub round_trip: f64,
    /// How much further ahead the agent's clock was at the end.
    pub drift: f64,
}

impl Clocks {
    /// `used` was known at the start and used for the run; `best` is known at the end.
    pub(super) fn new(used: &Offset, best: &Offset) -> Self {
        Self {
            ahead: viewer::seconds(used.ahead()),
            uncertainty: used.uncertainty().as_secs_f64(),
            round_trip: used.round_trip.as_secs_f64(),
            drift: viewer::seconds(best.ahead().saturating_sub(used.ahead())),
        }
    }
}

impl Agent {
    /// Writes a line for people.
    ///
    /// # Errors
    /// The line cannot be written.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let Self { name, processes, cores, clock, lost, .. } = self;
        write!(to, "agent        {name}: {processes} processes, {cores} processors")?;
        if let Some(Clocks { ahead, uncertainty, drift, .. }) = clock {
            write!(
                to,
                ", clock {:+.3} ms (± {:.3}), {:+.3} ms in the run",
                ahead * 1e3,
                uncertainty * 1e3,
                drift * 1e3
            )?;
        }
        if let Some(Lost { at, why }) = lost {
            write!(to, "; LOST after {at:.1} s: {why}")?;
        }
        writeln!(to)
    }
}

/// An agent that was lost.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Lost {
    /// Seconds from the start of the run until it was given up.
    pub at: f64,
    /// Why it was given up.
    pub why: String,
}
