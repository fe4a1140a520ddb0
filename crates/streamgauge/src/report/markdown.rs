//! The report as Markdown with figures beside it, and tables for other documents.

use std::fmt::Write;

use super::document::{Document, Part};
use super::figure::Figure;
use super::table::{Cell, Table};
use super::verdict::{Ruling, Verdict};
use super::warnings::Warnings;

/// Writes the report.
pub(super) fn report(document: &Document) -> String {
    let mut out = String::from("# Servers measured by streamgauge\n");
    if let Some(verdict) = &document.verdict {
        self::verdict(&mut out, verdict);
    }
    for part in &document.studies {
        study(&mut out, part);
    }
    out
}

/// Writes the tables that belong to a summary, with their origin.
pub(super) fn headlines(document: &Document) -> String {
    let mut out = String::new();
    for part in &document.studies {
        let mut any = false;
        for table in part.tables.iter().filter(|table| table.headline) {
            let quantity = quantity(table);
            line(&mut out, &format!("**{}{quantity}**", escaped(&table.title)));
            self::table(&mut out, table);
            any = true;
        }
        if any {
            line(&mut out, &origin(part));
        }
    }
    out
}

/// Describes the origin of the figures in a few lines.
fn origin(part: &Part) -> String {
    let mut words = vec![format!("{}.", escaped(&part.title))];
    if let Some(scale) = part.scale_in_words() {
        words.push(format!("**{}**", escaped(&scale)));
    }
    for run in &part.runs {
        let machine = run.machine.iter().find(|(name, _)| name == "processor");
        let machine = machine.map_or("", |(_, value)| value);
        words.push(format!("Measured {} on {}", escaped(run.date()), escaped(machine)));
        if !run.command.is_empty() {
            words.push(format!("by {}", code(&run.command)));
        }
    }
    let version = |peer: &super::document::Measured| {
        format!("{} ({})", escaped(&peer.title), escaped(&peer.versions.join("; ")))
    };
    let versions: Vec<String> = part.peers.iter().map(version).collect();
    words.push(format!("of {}.", versions.join(", ")));
    words.join(" ")
}

fn study(out: &mut String, part: &Part) {
    line(out, &format!("## {}", escaped(&part.title)));
    if !part.source.is_empty() {
        line(out, &format!("*{}*", escaped(&part.source)));
    }
    if let Some(scale) = part.scale_in_words() {
        line(out, &format!("> **{}**", escaped(&scale)));
        list(out, part.scaled.iter().map(|text| escaped(text)));
    }
    for paragraph in &part.about {
        line(out, &escaped(paragraph));
    }
    line(out, "### Conditions");
    for run in &part.runs {
        let ended =
            run.ended.as_ref().map_or(" (not finished)".to_owned(), |ended| format!(" to {ended}"));
        let measured = format!("measured: {}", escaped(&(run.began.clone() + &ended)));
        let machine = run
            .machine
            .iter()
            .map(|(name, value)| format!("{}: {}", escaped(name), escaped(value)));
        let command = (!run.command.is_empty()).then(|| format!("command: {}", code(&run.command)));
        list(out, [measured].into_iter().chain(machine).chain(command));
    }
    let peers = part
        .peers
        .iter()
        .map(|peer| format!("{}: {}", escaped(&peer.title), escaped(&peer.versions.join("; "))));
    let absent = part
        .absent
        .iter()
        .map(|(peer, why)| format!("{}: *not measured:* {}", escaped(peer), escaped(why)));
    list(out, peers.chain(absent).chain([format!("trials: {}", part.trials)]));
    if !part.warnings.is_empty() {
        line(out, "### Warnings");
        let group = |group: &Warnings| match group.first.first() {
            Some(only) if group.count == 1 => escaped(only),
            first => {
                let first = first.map_or("", String::as_str);
                format!("{} × {}, such as: {}", group.count, escaped(&group.reason), escaped(first))
            }
        };
        list(out, part.warnings.iter().map(group));
    }
    part.tables.iter().for_each(|table| numbered(out, table));
    part.figures.iter().for_each(|figure| self::figure(out, figure));
    for (title, listings) in
        [("Commands", &part.commands), ("Where servers spent their time", &part.profiles)]
    {
        if !listings.is_empty() {
            line(out, &format!("### {title}"));
        }
        for listing in listings {
            line(out, &escaped(&listing.title));
            // Text after four blanks is code, whatever it contains.
            let lines: Vec<String> =
                listing.lines.iter().map(|text| format!("    {}", flat(text))).collect();
            line(out, &lines.join("\n"));
        }
    }
}

fn verdict(out: &mut String, verdict: &Verdict) {
    line(out, "## Verdict");
    for paragraph in &verdict.compared {
        line(out, &escaped(paragraph));
    }
    let ruling = |ruling: &Ruling| {
        let sentences = escaped(&ruling.sentences.join(" "));
        format!("**{}** ({}): {sentences}", escaped(&ruling.delivery), escaped(&ruling.case))
    };
    list(out, verdict.rulings.iter().map(ruling));
    numbered(out, &verdict.table);
    figure(out, &verdict.figure);
}

/// Writes a table below its number and title.
fn numbered(out: &mut String, table: &Table) {
    let quantity = quantity(table);
    line(out, &format!("**Table {}.** {}{quantity}", table.number, escaped(&table.title)));
    self::table(out, table);
}

fn figure(out: &mut String, figure: &Figure) {
    for panel in &figure.panels {
        let title = escaped(&figure.panel_title(panel));
        line(out, &format!("![{title}]({})", panel.file));
    }
    let notes: String = figure.notes.iter().map(|note| format!(" {}", escaped(note))).collect();
    line(out, &format!("**Figure {}.** {}.{notes}", figure.number, escaped(&figure.title)));
}

fn quantity(table: &Table) -> String {
    if table.quantity.is_empty() {
        return String::new();
    }
    format!(" — {}", escaped(&table.quantity))
}

/// Writes a paragraph.
fn line(out: &mut String, text: &str) {
    let _ = write!(out, "\n{text}\n");
}

fn list(out: &mut String, items: impl Iterator<Item = String>) {
    let items: Vec<String> = items.map(|item| format!("- {item}")).collect();
    if !items.is_empty() {
        line(out, &items.join("\n"));
    }
}

/// Writes a table. The headings of a column are joined in one line.
fn table(out: &mut String, table: &Table) {
    let heads = table.columns.iter().map(|column| {
        let words: Vec<String> =
            column.iter().filter(|word| !word.is_empty()).map(|word| escaped(word)).collect();
        words.join(", ")
    });
    let stub = table.stub.iter().map(|name| escaped(name));
    let head: Vec<String> = stub.chain(heads).collect();
    let rules = (0..head.len()).map(|at| if at < table.stub.len() { "---" } else { "---:" });
    let mut rows = vec![cells(head.iter()), cells(rules)];
    for (index, row) in table.rows.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| &table.rows[before].heads);
        let heads = row.heads.iter().enumerate().map(|(level, head)| {
            let repeated = level + 1 < row.heads.len()
                && before.is_some_and(|before| before[..=level] == row.heads[..=level]);
            if repeated { String::new() } else { escaped(head) }
        });
        rows.push(cells(heads.chain(row.cells.iter().map(|cell| written(cell.as_ref())))));
    }
    line(out, &rows.join("\n"));
    if !table.notes.is_empty() {
        let notes: Vec<String> = table.notes.iter().map(|note| escaped(note)).collect();
        line(out, &format!("<sub>{}</sub>", notes.join(" ")));
    }
}

fn cells(cells: impl Iterator<Item = impl AsRef<str>>) -> String {
    let mut row = String::from("|");
    for cell in cells {
        let _ = write!(row, " {} |", cell.as_ref());
    }
    row
}

fn written(cell: Option<&Cell>) -> String {
    let Some(cell) = cell else { return "–".to_owned() };
    let text = if cell.best { format!("**{}**", cell.text) } else { cell.text.clone() };
    let spread = cell.spread_text.as_ref().map_or(String::new(), |spread| format!(" ({spread})"));
    let limit = cell.limit.as_ref().map_or(String::new(), |limit| format!(", *{limit}*"));
    format!("{text}{}{spread}{limit}", cell.marks)
}

/// Puts a text on one line.
fn flat(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Escapes text that means something to Markdown or HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in flat(text).chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' => {
                out.push('\\');
                out.push(letter);
            }
            letter => out.push(letter),
        }
    }
    out
}

/// Writes a text as code, between more backticks than it contains.
fn code(text: &str) -> String {
    let text = flat(text);
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    // Blanks separate backticks at both ends. Renderers drop them.
    let blank = if longest > 0 { " " } else { "" };
    format!("{fence}{blank}{}{blank}{fence}", text.trim())
}
