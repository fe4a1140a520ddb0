//! Tables and figures of the runs that `run` has recorded: one page, and Markdown with figures
//! beside it.
//!
//! ```text
//! runs: run folders ─▶ table, figure ─▶ document ─┬─▶ html, svg ─────▶ index.html
//!                                                 └─▶ markdown, svg ─▶ report.md, figures/*.svg
//! ```
//!
//! - `samples` reads the meter's samples and histograms in run folders.
//! - `table` and `figure` do what the scenario says; `inflexion` finds where a line crosses a
//!   threshold.
//! - `plot` is the content of a plot, `svg` draws it, with help from `axis`, `label` and `style`.
//! - `verdict` compares servers over all studies, in the cases that `contest` finds.
//! - `warnings` groups warnings by their reason.
//! - `html`, `markdown` and `csv` write a [`document`]; `into` puts tables into a foreign document.
//!
//! All input comes from outside. It is bounded when it is read, and escaped when it is written.

mod axis;
mod contest;
mod csv;
pub mod document;
pub mod figure;
mod html;
mod inflexion;
mod into;
mod label;
mod markdown;
mod plot;
mod samples;
mod style;
mod svg;
pub mod table;
pub mod verdict;
pub mod warnings;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;

use crate::progress::Steps;
use crate::{Exit, files, runs};
use document::Document;

/// Tables and figures of recorded runs: index.html, one page that needs nothing else, and report.md
/// with figures beside it
#[derive(Debug, Args)]
pub struct Arguments {
    /// Folders that `run` wrote. Those of one scenario at one scale are combined
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// Where to write; by default to the folder `report` in the first DIR
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Also write the scenarios' headline tables into this document, between
    /// <!-- streamgauge:begin --> and <!-- streamgauge:end -->
    #[arg(long, value_name = "FILE.md")]
    into: Option<PathBuf>,
    /// One document on standard output, docs/schema/report.schema.json
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Makes the report.
    ///
    /// # Errors
    /// A folder cannot be read or is damaged, or the report cannot be written.
    pub fn run(&self) -> anyhow::Result<Exit> {
        let folder = match (&self.output, self.folders.first()) {
            (Some(folder), _) => folder.clone(),
            (None, Some(first)) => first.join("report"),
            (None, None) => anyhow::bail!("no folder"),
        };
        let studies = runs::read(&self.folders, &Steps::new(self.folders.len() as u64))?;
        let figures: usize = studies.iter().map(|study| study.scenario.figures.len()).sum();
        let progress = Steps::new(figures as u64);
        let document = Document::make(&studies, folder.display().to_string(), &progress)?;
        drop(progress);
        let into = self.into.as_deref().map(|path| new_text(path, &document)).transpose()?;
        write(&folder, &document)?;
        if let (Some(path), Some(text)) = (&self.into, &into) {
            files::replace(path, text)?;
        }
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &document)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", folder.join("index.html").display())?;
            writeln!(out, "{}", folder.join("report.md").display())?;
            if let Some(path) = &self.into {
                writeln!(out, "{}", path.display())?;
            }
        }
        Ok(Exit::Success)
    }
}

/// Returns a document with the headline tables in it.
fn new_text(path: &Path, document: &Document) -> anyhow::Result<String> {
    let part = markdown::headlines(document);
    ensure!(!part.is_empty(), "no table of these scenarios has headline = true, or figures for it");
    into::replaced(path, &part)
}

fn write(folder: &Path, document: &Document) -> anyhow::Result<()> {
    let figures = folder.join("figures");
    fs::create_dir_all(&figures).with_context(|| figures.display().to_string())?;
    clear(&figures)?;
    for figure in document.figures() {
        for panel in &figure.panels {
            let drawn = html::draw(figure, panel, "plot", true).into_string();
            let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{drawn}\n");
            files::replace(&folder.join(&panel.file), &text)?;
        }
    }
    files::replace(&folder.join("report.md"), &markdown::report(document))?;
    files::replace(&folder.join("index.html"), &html::page(document))
}

/// Removes the figures of an earlier report.
fn clear(figures: &Path) -> anyhow::Result<()> {
    let name = || figures.display().to_string();
    for entry in fs::read_dir(figures).with_context(name)? {
        let entry = entry.with_context(name)?;
        let file = entry.file_name();
        let file = file.to_string_lossy();
        if file.starts_with("figure-") && file.ends_with(".svg") {
            fs::remove_file(entry.path()).with_context(|| entry.path().display().to_string())?;
        }
    }
    Ok(())
}
