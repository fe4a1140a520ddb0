//! A scenario: a study in a form that can be repeated (docs/scenarios.md).
//!
//! This module only reads the file: its media, its loads (`load`), and its tables and figures
//! (`shown`). `plan` decides which trials it has, and `report` how tables and figures look.

mod load;
mod shown;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::source;
use super::template::{Template, Unknown, is_name};

pub use load::{Background, LinkChange, Load, Publish, Publisher, Scale, Tool, Until};
pub use shown::{Better, Figure, Kind, Only, Published, Shown, Table};

/// The content of a scenario's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of the file without its ending.
    #[serde(skip)]
    pub name: String,
    /// Path of the file.
    #[serde(skip)]
    pub path: PathBuf,
    /// Text of the file.
    #[serde(skip)]
    pub text: String,
    /// Title in headings.
    pub title: String,
    /// Where the study was published.
    #[serde(default)]
    pub source: String,
    /// The question of the study, what is repeated exactly, and what differs here.
    #[serde(default)]
    pub about: String,
    /// Files for servers or publishers, by name.
    #[serde(default)]
    pub media: BTreeMap<String, Media>,
    /// The loads on servers.
    #[serde(rename = "load")]
    pub loads: Vec<Load>,
    /// Tables of the report.
    #[serde(default, rename = "table")]
    pub tables: Vec<Table>,
    /// Figures of the report.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
}

/// A file that is made once, `[media.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Media {
    /// Program and arguments that write the file to `{out}`. Templates.
    pub make: Vec<String>,
    /// Path below a server's `{root}`. A path that ends in a slash is a folder.
    pub path: String,
}

impl Media {
    /// Fills in the command so that it writes to `out`.
    ///
    /// # Errors
    /// The command uses another variable.
    pub(super) fn command(&self, out: &str) -> Result<Vec<String>, Unknown> {
        let value = |name: &str| (name == "out").then(|| out.to_owned());
        self.make.iter().map(|argument| Template::new(argument).fill(value)).collect()
    }
}

impl Scenario {
    /// Reads a scenario's file.
    ///
    /// # Errors
    /// The file cannot be read or understood. The error names file, line and key.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = source::text(path)?;
        let mut scenario: Self = source::parse(&text, path)?;
        scenario.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        scenario.path = path.to_owned();
        scenario.text = text;
        scenario.check().with_context(|| path.display().to_string())?;
        Ok(scenario)
    }

    /// The load with this name.
    pub fn load(&self, name: &str) -> Option<&Load> {
        self.loads.iter().find(|load| load.name == name)
    }

    /// Checks the rules that types do not express.
    fn check(&self) -> anyhow::Result<()> {
        for (name, media) in &self.media {
            ensure!(!media.make.is_empty(), "media {name:?}: make is empty");
            ensure!(is_below(&media.path), "media {name:?}: path is not one below a root");
            let asks = |argument: &String| Template::new(argument).variables().any(|v| v == "out");
            ensure!(media.make.iter().any(asks), "media {name:?}: make does not write {{out}}");
            media.command("").with_context(|| format!("media {name:?}: make"))?;
            ensure!(is_name(name), "media {name:?}: no template can ask for it by that name");
        }
        for (index, load) in self.loads.iter().enumerate() {
            load.check().with_context(|| format!("load {:?}", load.name))?;
            let twice = self.loads[..index].iter().any(|before| before.name == load.name);
            ensure!(!twice, "load {:?}: there are two of that name", load.name);
        }
        let tables = self.tables.iter().map(|table| ("table", &table.title, &table.load));
        let figures = self.figures.iter().map(|figure| ("figure", &figure.title, &figure.load));
        for (what, title, load) in tables.chain(figures) {
            ensure!(self.load(load).is_some(), "{what} {title:?}: there is no load {load:?}");
        }
        for table in &self.tables {
            table.check().with_context(|| format!("table {:?}", table.title))?;
            let is_steady = self.load(&table.load).is_some_and(|load| load.link_changes.is_empty());
            ensure!(
                !table.limits || is_steady,
                "table {:?}: limits: the link of its load changes",
                table.title
            );
        }
        for figure in &self.figures {
            figure.check().with_context(|| format!("figure {:?}", figure.title))?;
        }
        Ok(())
    }
}

/// Whether a path stays below the folder that it is joined to.
fn is_below(path: &str) -> bool {
    let path = PathBuf::from(path);
    let mut parts = path.components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, std::path::Component::Normal(_)))
}
