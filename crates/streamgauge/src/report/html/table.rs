//! A table of the page. A script sorts it, and a link saves it as CSV.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use maud::{Markup, html};

use super::super::csv;
use super::super::table::{Aspect, Cell, Row, Table};

pub(super) fn table(table: &Table) -> Markup {
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
            p.note {
                @if !table.notes.is_empty() { (table.notes.join(" ")) " " }
                a.csv href=(link(table)) download=(format!("table-{}.csv", table.number)) {
                    "Table " (table.number) " as CSV"
                }
            }
        }
    }
}

/// The table itself as a link, so that the page needs no other file.
fn link(table: &Table) -> String {
    format!("data:text/csv;charset=utf-8;base64,{}", BASE64_STANDARD.encode(csv::written(table)))
}

/// Makes the headings of columns. Equal neighbours are joined. The innermost headings name their
/// column.
fn head(table: &Table) -> Markup {
    let levels = table.columns.iter().map(Vec::len).max().unwrap_or(0);
    html! {
        @for level in 0..levels {
            tr {
                @if level == 0 {
                    @for (column, name) in table.stub.iter().enumerate() {
                        th scope="col" rowspan=(levels) data-column=(column) { (name) }
                    }
                }
                @for (index, (text, span)) in spans(table, level).into_iter().enumerate() {
                    @if level + 1 < levels {
                        th.over scope=(if span > 1 { "colgroup" } else { "col" })
                            colspan=[(span > 1).then_some(span)] { (text) }
                    } @else {
                        th scope="col" data-column=(table.stub.len() + index) { (text) }
                    }
                }
            }
        }
    }
}

/// The headings of a level, and how many columns each has. On the innermost level, each has one.
fn spans(table: &Table, level: usize) -> Vec<(&str, usize)> {
    let mut spans: Vec<(&[String], usize)> = Vec::new();
    let levels = table.columns.iter().map(Vec::len).max().unwrap_or(0);
    for column in &table.columns {
        let path = &column[..column.len().min(level + 1)];
        match spans.last_mut() {
            Some((last, span)) if level + 1 < levels && *last == path => *span += 1,
            _ => spans.push((path, 1)),
        }
    }
    spans.into_iter().map(|(path, span)| (path.last().map_or("", String::as_str), span)).collect()
}

/// Makes a row. Each row has all of its headings, so that it can stand elsewhere. Those that the row
/// above has as well are not seen.
fn row(table: &Table, row: &Row, index: usize) -> Markup {
    let last = row.heads.len().saturating_sub(1);
    let above = index.checked_sub(1).map(|above| &table.rows[above].heads);
    let again = |level: usize| {
        level < last && above.is_some_and(|above| above[..=level] == row.heads[..=level])
    };
    let mut kinds = row.cells.iter().flatten().map(|cell| cell.kind);
    let first = kinds.next();
    let alike = first.filter(|first| kinds.all(|kind| kind == *first));
    let begins_group = (last > 0 && index > 0 && !again(0)).then_some("begins");
    let classes: Vec<&str> = alike.map(kind_class).into_iter().chain(begins_group).collect();
    html! {
        tr class=[(!classes.is_empty()).then(|| classes.join(" "))] {
            @for (level, head) in row.heads.iter().enumerate() {
                // Without the commas between thousands, numbers can be sorted.
                th.again[again(level)] scope="row" data-value=(head.replace(',', "")) { (head) }
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
        td class=(kind_class(cell.kind)) data-value=[cell.value] {
            @if cell.best { b { (cell.text) } } @else { (cell.text) }
            @if !cell.marks.is_empty() { sup { (cell.marks) } }
            @if let Some(spread) = &cell.spread_text { small { (spread) } }
            @if let Some(limit) = &cell.limit { small { i { (limit) } } }
        }
    }
}
