//! A table as CSV (RFC 4180), with raw numbers.

use super::table::{Cell, Table};

/// What a column of the table has in the file, besides the value: its heading and how it is written.
type Beside = (&'static str, fn(&Cell) -> Option<String>);

const BESIDE: [Beside; 4] = [
    ("least", |cell| cell.spread.map(|(least, _)| least.to_string())),
    ("most", |cell| cell.spread.map(|(_, most)| most.to_string())),
    ("limit", |cell| cell.limit.clone()),
    ("marks", |cell| Some(cell.marks.clone()).filter(|marks| !marks.is_empty())),
];

/// Writes a table. Each of its columns is followed by columns for the least and the most of the
/// repetitions and for the marks, where there are any.
pub(super) fn written(table: &Table) -> String {
    let mut header: Vec<String> = table.stub.iter().map(|name| text(name)).collect();
    let mut rows: Vec<Vec<String>> =
        table.rows.iter().map(|row| row.heads.iter().map(|head| text(head)).collect()).collect();
    for (at, column) in table.columns.iter().enumerate() {
        let words = column.iter().map(String::as_str).filter(|word| !word.is_empty());
        let heading = words.collect::<Vec<_>>().join(", ");
        let cells: Vec<Option<&Cell>> =
            table.rows.iter().map(|row| row.cells.get(at)?.as_ref()).collect();
        let mut add = |heading: &str, of: &dyn Fn(&Cell) -> Option<String>| {
            header.push(text(heading));
            for (row, cell) in rows.iter_mut().zip(&cells) {
                row.push(cell.and_then(of).unwrap_or_default());
            }
        };
        add(&heading, &|cell| cell.value.map(|value| value.to_string()));
        for (name, of) in BESIDE {
            if cells.iter().flatten().any(|cell| of(cell).is_some()) {
                add(&format!("{heading}, {name}"), &of);
            }
        }
    }
    let lines = std::iter::once(header).chain(rows).map(|fields| fields.join(",") + "\r\n");
    lines.collect()
}

/// Writes a field of text. Spreadsheets would take a text that begins with one of these signs for a
/// formula.
fn text(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::table::{Aspect, Row};
    use super::*;

    #[test]
    fn a_table_has_raw_numbers_and_escaped_texts() {
        let cell = |value: f64, spread, marks: &str| Cell {
            kind: Aspect::Measured,
            value: Some(value),
            spread,
            text: "not this".to_owned(),
            spread_text: None,
            limit: None,
            marks: marks.to_owned(),
            best: false,
        };
        let row = |head: &str, cells| Row { heads: vec![head.to_owned()], cells };
        let table = Table {
            number: 1,
            title: "T".to_owned(),
            quantity: String::new(),
            headline: false,
            stub: vec!["server".to_owned()],
            columns: vec![
                vec!["1,000 clients".to_owned(), "rate".to_owned()],
                vec![String::new(), "so \"called\"".to_owned()],
            ],
            rows: vec![
                row("=cmd()", vec![Some(cell(1234.5, Some((1200.0, 1300.25)), "†")), None]),
                row("b", vec![None, Some(cell(0.1, None, ""))]),
            ],
            notes: vec![],
        };
        assert_eq!(
            written(&table),
            "server,\"1,000 clients, rate\",\"1,000 clients, rate, least\",\
             \"1,000 clients, rate, most\",\"1,000 clients, rate, marks\",\"so \"\"called\"\"\"\r\n\
             '=cmd(),1234.5,1200,1300.25,†,\r\n\
             b,,,,,0.1\r\n"
        );
    }
}
