//! The command `headwater doctor`: what on this machine stands in the way of serving many viewers, and what to do.
//!
//! Each file beside this one looks at one subject. What it finds is read from files below a folder, which tests replace,
//! or is an argument of a pure function that judges it. Nothing on the machine is changed, and each look has a time limit.

mod access;
mod clock;
mod cluster;
mod descriptors;
mod ffmpeg;
mod files;
mod kernel;
mod kernel_clock;
mod memory;
mod network;
mod ports;
mod tls;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::timeout;

use crate::config::Config;

/// How long one look at something that may not answer takes at most.
const PATIENCE: Duration = Duration::from_secs(10);

/// What `doctor` prints with `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(title = "Document")]
pub struct Report {
    /// How many checks are problems. With any, the exit status is 1.
    pub problems: usize,
    /// How many checks are warnings.
    pub warnings: usize,
    /// What was looked at. What is not configured is not looked at.
    pub checks: Vec<Check>,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// What was looked at: an option of the configuration, or a word for a part of the machine.
    pub name: String,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// Why this matters, unless all is well.
    pub why: Option<String>,
    /// The command or the option that mends it, unless all is well.
    pub remedy: Option<String>,
}

/// How bad what was found is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing has to be done.
    Ok,
    /// The server runs, but worse or for fewer viewers than it could.
    Warning,
    /// The server does not start, or does not do what the configuration says.
    Problem,
}

impl Check {
    fn ok(name: &str, found: impl fmt::Display) -> Self {
        let (found, why, remedy) = (found.to_string(), None, None);
        Self { name: name.to_owned(), level: Level::Ok, found, why, remedy }
    }

    fn warning(
        name: &str,
        found: impl fmt::Display,
        why: impl fmt::Display,
        remedy: impl fmt::Display,
    ) -> Self {
        let (why, remedy) = (Some(why.to_string()), Some(remedy.to_string()));
        Self { level: Level::Warning, why, remedy, ..Self::ok(name, found) }
    }

    fn problem(
        name: &str,
        found: impl fmt::Display,
        why: impl fmt::Display,
        remedy: impl fmt::Display,
    ) -> Self {
        Self { level: Level::Problem, ..Self::warning(name, found, why, remedy) }
    }
}

/// One line. What others wrote, such as the text of an error, breaks no line.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        let mut line = format!("{level:8} {}: {}", self.name, self.found);
        if let Some(why) = &self.why {
            line += &format!(". {why}");
        }
        if let Some(remedy) = &self.remedy {
            line += &format!(". Do: {remedy}");
        }
        f.write_str(&line.replace(char::is_control, " "))
    }
}

impl From<Vec<Check>> for Report {
    fn from(checks: Vec<Check>) -> Self {
        let count = |level| checks.iter().filter(|check| check.level == level).count();
        Self { problems: count(Level::Problem), warnings: count(Level::Warning), checks }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            writeln!(f, "{check}")?;
        }
        let counted = |count, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let (problems, warnings) = (self.problems, self.warnings);
        write!(f, "{}, {}", counted(problems, "problem"), counted(warnings, "warning"))
    }
}

/// The files by which the kernel tells of the machine.
#[derive(Debug)]
struct Machine {
    root: PathBuf,
}

impl Machine {
    /// The text of a file, without blanks around it. `None` if there is none: a container may not see it.
    fn text(&self, path: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// The last number of a file.
    fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.split_ascii_whitespace().next_back()?.parse().ok()
    }
}

/// Looks at everything that the configuration needs.
pub async fn run(config: &Config) -> Report {
    let machine = Machine { root: PathBuf::from("/") };
    let mut checks = vec![
        descriptors::check(&machine, config),
        memory::check(&machine, config),
        memory::check_processors(&machine, config),
    ];
    checks.extend(kernel::check(&machine, config));
    checks.extend(network::check(&machine, config));
    checks.push(clock::check_source(&machine));
    checks.push(clock::check_time(kernel_clock::read()));
    checks.extend(ports::check(&machine, config));
    checks.extend(tls::check(config, now()));
    let (files, programs, keys, cluster) = tokio::join!(
        files::check(config),
        ffmpeg::check(config),
        access::check(config),
        cluster::check(config)
    );
    checks.extend(files.into_iter().chain(programs).chain(keys).chain(cluster));
    Report::from(checks)
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Does on another thread what may block for ever, such as a look at a file of a server that has gone. `None` if it
/// takes too long.
async fn in_time<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    timeout(PATIENCE, tokio::task::spawn_blocking(look)).await.ok()?.ok()
}

/// Tells of a file with a secret that others of this machine can read.
fn exposed(name: &str, path: &Path) -> Option<Check> {
    use std::os::unix::fs::PermissionsExt;
    let mode = path.metadata().ok()?.permissions().mode();
    (mode & 0o007 != 0).then(|| {
        let path = path.display();
        let found = format!("{path} has the mode {:03o}", mode & 0o777);
        Check::warning(name, found, "Every user of this machine may use the secret in it", {
            format!("chmod o= {path}")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these files.
    pub(super) fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = crate::machine::tests::folder(files);
        let root = folder.path().to_owned();
        (folder, Machine { root })
    }

    #[test]
    fn a_check_is_one_line_whatever_was_found() {
        let check = Check::problem("x", "a\nb\u{1b}[31m", "Because", "sysctl -w a=b");
        assert_eq!(check.to_string(), "problem  x: a b [31m. Because. Do: sysctl -w a=b");
        assert_eq!(Check::ok("x", "well").to_string(), "ok       x: well");
    }

    #[test]
    fn a_report_counts_and_names_what_it_counts() {
        let warning = || Check::warning("x", "y", "z", "w");
        let report = Report::from(vec![Check::ok("x", "y"), warning(), warning()]);
        assert_eq!((report.problems, report.warnings), (0, 2));
        assert!(report.to_string().ends_with("\n0 problems, 2 warnings"), "{report}");
        let report = Report::from(vec![Check::problem("x", "y", "z", "w")]);
        assert!(report.to_string().ends_with("\n1 problem, 0 warnings"), "{report}");
    }

    #[test]
    fn the_published_schema_is_that_of_the_document() {
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(Report)).unwrap() + "\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/doctor.schema.json");
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            std::fs::write(path, &schema).unwrap();
        }
        let published = std::fs::read_to_string(path).unwrap_or_default();
        assert!(published == schema, "run the tests once with UPDATE_SCHEMAS=1");
    }
}
