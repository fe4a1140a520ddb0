//! The report as a single page that needs nothing else: no foreign script, font or frame.

mod table;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use super::document::{Document, Listing, Occasion, Part};
use super::figure::{Figure, Panel};
use super::svg::{self, Frame};
use super::verdict::Verdict;
use super::warnings::Warnings;

const STYLE: &str = include_str!("style.css");
/// Sorts tables. The page is whole without it.
const SCRIPT: &str = include_str!("sort.js");

/// Sizes of plots: of a single one, and of several next to each other.
const ALONE: (f64, f64) = (760.0, 420.0);
const TOGETHER: (f64, f64) = (460.0, 320.0);

/// Makes the page.
pub(super) fn page(document: &Document) -> String {
    let titles: Vec<&str> = document.studies.iter().map(|part| part.title.as_str()).collect();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(policy());
                title { (titles.join(" · ")) " — streamgauge" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { h1 { "Servers measured by streamgauge" } }
                main {
                    @if let Some(verdict) = &document.verdict { (self::verdict(verdict)) }
                    (contents(document))
                    @for (index, part) in document.studies.iter().enumerate() { (study(part, index + 1)) }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// Only our own script may run, whatever a run's folder contains.
fn policy() -> String {
    let hash = BASE64_STANDARD.encode(Sha256::digest(SCRIPT));
    format!("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'")
}

fn contents(document: &Document) -> Markup {
    html! {
        nav aria-label="Contents" {
            @for (index, part) in document.studies.iter().enumerate() {
                p { a href=(format!("#study-{}", index + 1)) { (part.title) } }
                ul {
                    @for table in &part.tables {
                        li { a href=(format!("#table-{}", table.number)) { "Table " (table.number) } " " (table.title) }
                    }
                    @for figure in &part.figures {
                        li { a href=(format!("#figure-{}", figure.number)) { "Figure " (figure.number) } " " (figure.title) }
                    }
                    @if !part.commands.is_empty() {
                        li { a href=(format!("#commands-{}", index + 1)) { "Commands" } }
                    }
                }
            }
        }
    }
}

fn verdict(verdict: &Verdict) -> Markup {
    html! {
        section id="verdict" {
            h2 { "Verdict" }
            @for paragraph in &verdict.compared { p { (paragraph) } }
            dl.rulings {
                @for ruling in &verdict.rulings {
                    dt { b { (ruling.delivery) } br; (ruling.case) }
                    dd { @for sentence in &ruling.sentences { p { (sentence) } } }
                }
            }
            (table::table(&verdict.table))
            (figure(&verdict.figure))
        }
    }
}

fn study(part: &Part, index: usize) -> Markup {
    html! {
        section id=(format!("study-{index}")) {
            h2 { (part.title) }
            @if !part.source.is_empty() { p.source { (part.source) } }
            @if let Some(words) = part.scale_in_words() {
                div.scale { p { strong { (words) } } @for line in &part.scaled { p { (line) } } }
            }
            @for paragraph in &part.about { p { (paragraph) } }
            (conditions(part))
            (warnings(&part.warnings))
            @if !part.tables.is_empty() { h3 { "Tables" } @for table in &part.tables { (table::table(table)) } }
            @if !part.figures.is_empty() { h3 { "Figures" } @for figure in &part.figures { (self::figure(figure)) } }
            @if !part.commands.is_empty() {
                h3 id=(format!("commands-{index}")) { "Commands" }
                p { "One trial of each load and server; every trial’s own are in its trial.json." }
                @for listing in &part.commands { (self::listing(listing)) }
            }
            @if !part.profiles.is_empty() {
                h3 { "Where servers spent their time" }
                @for listing in &part.profiles { (self::listing(listing)) }
            }
        }
    }
}

/// The conditions of the measurement.
fn conditions(part: &Part) -> Markup {
    html! {
        h3 { "Conditions" }
        @for run in &part.runs { (occasion(run)) }
        dl {
            dt { "trials" } dd { (part.trials) }
            @for peer in &part.peers {
                dt { (peer.title) } dd { (peer.versions.join("; ")) }
            }
            @for (peer, why) in &part.absent {
                dt { (peer) } dd { em { "not measured: " } (why) }
            }
        }
    }
}

fn occasion(run: &Occasion) -> Markup {
    html! {
        dl {
            dt { "measured" }
            dd {
                time datetime=(run.began) { (run.began) }
                @if let Some(ended) = &run.ended { " to " time datetime=(ended) { (ended) } }
                @else { " (not finished)" }
            }
            @for (name, value) in &run.machine { dt { (name) } dd { (value) } }
            @if !run.command.is_empty() { dt { "command" } dd { code { (run.command) } } }
        }
    }
}

/// The warnings: their number in a line, all else folded.
fn warnings(groups: &[Warnings]) -> Markup {
    let count: usize = groups.iter().map(|group| group.count).sum();
    html! {
        @if count > 0 {
            details.warnings {
                summary {
                    strong { (count) (if count == 1 { " warning" } else { " warnings" }) }
                    @if groups.len() > 1 { " for " (groups.len()) " reasons" }
                }
                @for group in groups { (warnings_of(group)) }
            }
        }
    }
}

fn warnings_of(group: &Warnings) -> Markup {
    let more = group.count.saturating_sub(group.first.len());
    html! {
        details {
            summary { (group.count) " × " (group.reason) }
            ul { @for warning in &group.first { li { (warning) } } }
            @if more > 0 { p { "And " (more) " more, in the trials’ files." } }
        }
    }
}

fn listing(listing: &Listing) -> Markup {
    html! {
        details {
            summary { (listing.title) }
            pre { code { @for line in &listing.lines { (line) "\n" } } }
        }
    }
}

fn figure(figure: &Figure) -> Markup {
    let alone = figure.panels.len() == 1;
    html! {
        figure.plots id=(format!("figure-{}", figure.number)) {
            div class=(if alone { "alone" } else { "grid" }) {
                @for (index, panel) in figure.panels.iter().enumerate() {
                    div.scroll {
                        (draw(figure, panel, &format!("plot-{}-{}", figure.number, index + 1), !alone))
                    }
                }
            }
            figcaption {
                b { "Figure " (figure.number) "." } " " (figure.title) "."
                @for note in &figure.notes { " " (note) }
            }
        }
    }
}

/// Draws a panel as SVG. It has a title above it unless it stands under a caption.
pub(super) fn draw(figure: &Figure, panel: &Panel, id: &str, heading: bool) -> Markup {
    let (width, height) = if figure.panels.len() == 1 { ALONE } else { TOGETHER };
    let title = if heading && !panel.title.is_empty() {
        panel.title.clone()
    } else {
        figure.panel_title(panel)
    };
    let description = &panel.description;
    svg::draw(&panel.plot, &Frame { id, title: &title, heading, description, width, height })
}
