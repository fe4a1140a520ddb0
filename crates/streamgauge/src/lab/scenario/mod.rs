//! A scenario: a study written down, so that it can be repeated (docs/scenarios.md).
//!
//! Only the file is read here: its media, its loads (`load`), and the tables and figures that they
//! end in (`shown`). What its trials are is decided in `plan`, what tables and figures look like in
//! `report`.

mod load;
mod shown;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::source;
use super::template::{Template, Unknown, is_name};

pub use load::{Background, Load, Publish, Publisher, Scale, Tool, Until};
pub use shown::{Better, Figure, Kind, Only, Published, Shown, Table};

/// A scenario's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    /// The file.
    #[serde(skip)]
    pub path: PathBuf,
    /// Its text, as it was read.
    #[serde(skip)]
    pub text: String,
    /// As headings have it.
    pub title: String,
    /// Where the study was published.
    #[serde(default)]
    pub source: String,
    /// What it asks, what is repeated exactly, and what differs here.
    #[serde(default)]
    pub about: String,
    /// Files that servers have or publishers send, by name.
    #[serde(default)]
    pub media: BTreeMap<String, Media>,
    /// What is done to servers.
    #[serde(rename = "load")]
    pub loads: Vec<Load>,
    /// What is reported in tables.
    #[serde(default, rename = "table")]
    pub tables: Vec<Table>,
    /// What is reported in figures.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
}

/// A file made once, `[media.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Media {
    /// Program and arguments that write it to `{out}`; templates.
    pub make: Vec<String>,
    /// Where it is below a server's `{root}`; one that ends in a slash is a folder.
    pub path: String,
}

impl Media {
    /// Program and arguments that write it to `out`.
    ///
    /// # Errors
    /// They ask for something else.
    pub(super) fn command(&self, out: &str) -> Result<Vec<String>, Unknown> {
        let value = |name: &str| (name == "out").then(|| out.to_owned());
        self.make.iter().map(|argument| Template::new(argument).fill(value)).collect()
    }
}

impl Scenario {
    /// Reads a scenario's file.
    ///
    /// # Errors
    /// It cannot be read or understood; the message names file, line and key.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = source::text(path)?;
        let mut scenario: Self = source::parse(&text, path)?;
        scenario.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        scenario.path = path.to_owned();
        scenario.text = text;
        scenario.check().with_context(|| path.display().to_string())?;
        Ok(scenario)
    }

    /// One of its loads.
    pub fn load(&self, name: &str) -> Option<&Load> {
        self.loads.iter().find(|load| load.name == name)
    }

    /// What the types do not say.
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
