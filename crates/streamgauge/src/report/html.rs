//! The report as a single page that needs nothing else: no foreign script, font or frame.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::document::{Document, Listing, Occasion, Part};
use super::figure::{Figure, Panel};
use super::svg::{self, Frame};
use super::table::{Aspect, Cell, Row, Table};

const STYLE: &str = include_str!("style.css");

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
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'";
                title { (titles.join(" · ")) " — streamgauge" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Servers measured by streamgauge" }
                    (contents(document))
                }
                main { @for (index, part) in document.studies.iter().enumerate() { (study(part, index + 1)) } }
            }
        }
    }
    .into_string()
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
            (warnings(part))
            @if !part.tables.is_empty() { h3 { "Tables" } @for table in &part.tables { (self::table(table)) } }
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

fn warnings(part: &Part) -> Markup {
    html! {
        @if !part.warnings.is_empty() {
            h3 { "Warnings" }
            ul.warnings { @for warning in &part.warnings { li { (warning) } } }
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

fn table(table: &Table) -> Markup {
    let label = format!("table-{}-caption", table.number);
    html! {
        figure.table id=(format!("table-{}", table.number)) {
            figcaption id=(label) {
                b { "Table " (table.number) "." } " " (table.title)
                @if !table.quantity.is_empty() { " — " (table.quantity) }
            }
            div.scroll role="region" tabindex="0" aria-labelledby=(label) {
                table aria-labelledby=(label) {
                    thead { (head(table)) }
                    tbody { @for (index, row) in table.rows.iter().enumerate() { (self::row(table, row, index)) } }
                }
            }
            @if !table.notes.is_empty() { p.note { (table.notes.join(" ")) } }
        }
    }
}

/// Makes the headings of columns. Equal neighbours are joined.
fn head(table: &Table) -> Markup {
    let levels = table.columns.iter().map(Vec::len).max().unwrap_or(0);
    html! {
        @for level in 0..levels {
            tr {
                @if level == 0 {
                    @for name in &table.stub { th scope="col" rowspan=(levels) { (name) } }
                }
                @for (text, span) in spans(table, level) {
                    th.over[level + 1 < levels] scope=(if span > 1 { "colgroup" } else { "col" })
                        colspan=[(span > 1).then_some(span)] { (text) }
                }
            }
        }
    }
}

fn spans(table: &Table, level: usize) -> Vec<(&str, usize)> {
    let mut spans: Vec<(&[String], usize)> = Vec::new();
    let innermost = table.columns.iter().all(|column| column.len() == level + 1);
    for column in &table.columns {
        let path = &column[..column.len().min(level + 1)];
        match spans.last_mut() {
            Some((last, span)) if !innermost && *last == path => *span += 1,
            _ => spans.push((path, 1)),
        }
    }
    spans.into_iter().map(|(path, span)| (path.last().map_or("", String::as_str), span)).collect()
}

fn row(table: &Table, row: &Row, index: usize) -> Markup {
    let begins = |level: usize, at: usize| {
        at == 0 || table.rows[at].heads[..=level] != table.rows[at - 1].heads[..=level]
    };
    let last = row.heads.len().saturating_sub(1);
    let span = |level: usize| {
        let rest = (index + 1..table.rows.len()).take_while(|at| !begins(level, *at));
        1 + rest.count()
    };
    let all = row.cells.iter().flatten();
    let kinds: Vec<Aspect> = all.map(|cell| cell.kind).collect();
    let alike = kinds.first().filter(|first| kinds.iter().all(|kind| kind == *first));
    let begins_group = (last > 0 && begins(0, index)).then_some("begins");
    let classes: Vec<&str> =
        alike.map(|kind| kind_class(*kind)).into_iter().chain(begins_group).collect();
    html! {
        tr class=[(!classes.is_empty()).then(|| classes.join(" "))] {
            @for (level, head) in row.heads.iter().enumerate() {
                @if level == last {
                    th scope="row" { (head) }
                } @else if begins(level, index) {
                    th scope="rowgroup" rowspan=[Some(span(level)).filter(|span| *span > 1)] { (head) }
                }
            }
            @for cell in &row.cells { (self::cell(cell.as_ref())) }
        }
    }
}

fn kind_class(kind: Aspect) -> &'static str {
    match kind {
        Aspect::Measured => "measured",
        Aspect::Published => "published",
        Aspect::Ratio => "ratio",
    }
}

fn cell(cell: Option<&Cell>) -> Markup {
    let Some(cell) = cell else { return html! { td.none { "–" } } };
    html! {
        td class=(kind_class(cell.kind)) {
            @if cell.best { b { (cell.text) } } @else { (cell.text) }
            @if !cell.marks.is_empty() { sup { (cell.marks) } }
            @if let Some(spread) = &cell.spread_text { small { (spread) } }
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
