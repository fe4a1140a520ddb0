//! One line for each event, as text or as JSON.
//!
//! Peers choose what is in many fields. So nothing in a line ends it, moves a terminal's cursor or reverses its text, and
//! nothing is longer than a bound, while it is formatted as well.

use std::fmt::{self, Write};

use http::net::{LogId, Names};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{self, FormatEvent, FormatFields};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;

/// Most bytes of a value in JSON, and of a line of text.
const VALUE: usize = 4 << 10;
const LINE: usize = 16 << 10;

/// Most bytes of a message: that of a panic has a backtrace.
const MESSAGE: usize = 64 << 10;

/// Text that stops growing. What does not fit is replaced by one character.
struct Bounded {
    text: String,
    most: usize,
    is_cut: bool,
}

impl Bounded {
    fn new(most: usize) -> Self {
        Self { text: String::new(), most, is_cut: false }
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.is_cut {
            return Ok(());
        }
        let room = self.most.saturating_sub(self.text.len());
        self.is_cut = text.len() > room;
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
        if self.is_cut {
            self.text.push('…');
        }
        Ok(())
    }
}

/// Whether a character could end a line, or make a terminal show something else than the line.
fn is_harmful(c: char) -> bool {
    // Separators of lines and paragraphs, and those that change the direction of text.
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes an event as a line of text, in which colours are kept. `is_panic` allows it several lines.
pub(super) fn text<S, N>(
    line: &mut String,
    context: &FmtContext<'_, S, N>,
    (event, has_colours, is_panic): (&Event<'_>, bool, bool),
) -> fmt::Result
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let mut whole = Bounded::new(if is_panic { MESSAGE } else { LINE });
    let format = format::format().with_ansi(has_colours);
    format.format_event(context, format::Writer::new(&mut whole), event)?;
    for c in whole.text.trim_end_matches('\n').chars() {
        match c {
            // The library has escaped those that are not its own.
            '\x1b' if has_colours => line.push(c),
            '\n' if is_panic => line.push(c),
            c if is_harmful(c) => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    if has_colours && whole.is_cut {
        line.push_str("\x1b[0m");
    }
    LogId::tell(|Names { connection, session, request }| {
        for (name, number) in [("connection", connection), ("session", session)] {
            // Writing to a string does not fail.
            let _ = number.map(|number| write!(line, " {name}={number}"));
        }
        let _ = request.map(|id| write!(line, " request_id={id}"));
    });
    line.push('\n');
    Ok(())
}

/// Writes an event as an object of JSON (RFC 8259) on one line.
pub(super) fn json(line: &mut String, event: &Event<'_>) {
    let mut fields = Fields { target: None, message: None, rest: String::new() };
    event.record(&mut fields);
    let metadata = event.metadata();
    let target = fields.target.as_deref().unwrap_or(metadata.target());
    begin(line, metadata.level().as_str(), target, &fields.message.unwrap_or_default());
    LogId::tell(|Names { connection, session, request }| {
        for (name, number) in [("connection", connection), ("session", session)] {
            let _ = number.map(|number| write!(line, ",\"{name}\":{number}"));
        }
        if let Some(id) = request {
            line.push_str(",\"request_id\":");
            quote(line, id);
        }
    });
    let _ = writeln!(line, ",\"fields\":{{{}}}}}", fields.rest);
}

/// Writes one of the log's own lines.
pub(super) fn own(line: &mut String, is_json: bool, message: &str, fields: &[(&str, Own<'_>)]) {
    let target = super::TARGET;
    if !is_json {
        put_time(line);
        let _ = write!(line, "  WARN {target}: {message}");
        for (name, value) in fields {
            let _ = write!(line, " {name}={value}");
        }
        line.push('\n');
        return;
    }
    begin(line, "WARN", target, message);
    let mut rest = Fields { target: None, message: None, rest: String::new() };
    for (name, value) in fields {
        rest.name(name);
        match value {
            Own::Number(number) => rest.raw(format_args!("{number}")),
            Own::Kind(..) => quote(&mut rest.rest, &value.to_string()),
        }
    }
    let _ = writeln!(line, ",\"fields\":{{{}}}}}", rest.rest);
}

/// The value of a field of the log's own lines.
pub(super) enum Own<'a> {
    Number(u64),
    /// A place in the code: a module, and a line of its file.
    Kind(&'a str, u32),
}

impl fmt::Display for Own<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Kind(target, line) => write!(f, "{target}:{line}"),
        }
    }
}

/// Writes the time as RFC 3339 has it. Without a clock, a line is still useful.
fn put_time(line: &mut String) {
    let _ = SystemTime.format_time(&mut format::Writer::new(line));
}

/// Writes the members that all lines of JSON have.
fn begin(line: &mut String, level: &str, target: &str, message: &str) {
    line.push_str("{\"time\":\"");
    put_time(line);
    let _ = write!(line, "\",\"level\":\"{level}\",\"target\":");
    quote(line, target);
    line.push_str(",\"message\":");
    quote(line, message);
}

/// Writes a string of JSON. More is escaped than has to be: programs that split text into lines know more ends of lines
/// than JSON does.
fn quote(to: &mut String, text: &str) {
    to.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => to.extend(['\\', c]),
            '\n' => to.push_str("\\n"),
            // All of these are in the plane that has four digits.
            c if is_harmful(c) => {
                let _ = write!(to, "\\u{:04x}", u32::from(c));
            }
            c => to.push(c),
        }
    }
    to.push('"');
}

/// Collects the fields of an event as members of an object.
struct Fields {
    /// The target that an event has which came by the crate `log`.
    target: Option<String>,
    message: Option<String>,
    rest: String,
}

impl Fields {
    fn name(&mut self, name: &str) {
        if !self.rest.is_empty() {
            self.rest.push(',');
        }
        quote(&mut self.rest, name);
        self.rest.push(':');
    }

    fn raw(&mut self, value: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.rest.write_fmt(value);
    }

    fn text(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let most = if field.name() == "message" { MESSAGE } else { VALUE };
        let mut text = Bounded::new(most);
        if text.write_fmt(value).is_err() {
            text.text.push_str("(cannot be shown)");
        }
        match field.name() {
            "message" => self.message = Some(text.text),
            "log.target" => self.target = Some(text.text),
            name if name.starts_with("log.") => {}
            name => {
                self.name(name);
                quote(&mut self.rest, &text.text);
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, format_args!("{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        // `log.line` is the only number that the crate `log` adds.
        if field.name() != "log.line" {
            self.name(field.name());
            self.raw(format_args!("{value}"));
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.name(field.name());
        self.raw(format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.name(field.name());
        self.raw(format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.name(field.name());
        // JSON has no other numbers.
        if value.is_finite() {
            self.raw(format_args!("{value}"));
        } else {
            quote(&mut self.rest, &value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::tests::logged;
    use super::*;

    /// What peers send to those who read logs: ends of lines, sequences for terminals, text that runs backwards.
    const HOSTILE: &str =
        "a\n2026-01-01T00:00:00Z ERROR x: y\r\x1b[31m\u{9b}31m\u{7}\0\"}\u{2028}\u{202e}\u{85}\\ü…";

    #[test]
    fn whatever_a_field_has_it_stays_in_its_line() {
        let log = || {
            tracing::warn!(string = HOSTILE, display = %HOSTILE, debug = ?HOSTILE, "{HOSTILE}");
        };
        let [text] = &logged(false, log)[..] else { panic!("one line") };
        let [json] = &logged(true, log)[..] else { panic!("one line") };
        for line in [text, json] {
            let line = line.strip_suffix('\n').unwrap();
            assert_eq!(line.find(is_harmful), None, "{line:?}");
        }
        assert!(text.contains("  WARN headwater::log::format::tests: a\\n2026-"), "{text}");
        let object: Value = serde_json::from_str(json).unwrap();
        assert_eq!(object["message"], HOSTILE);
        let fields = &object["fields"];
        assert_eq!((&fields["string"], &fields["display"]), (&HOSTILE.into(), &HOSTILE.into()));
        assert_eq!(fields["debug"], format!("{HOSTILE:?}"));
    }

    #[test]
    fn values_have_a_bound() {
        let huge = "ü".repeat(1 << 20);
        let log = || tracing::info!(huge, shown = %huge, after = 1, "message");
        let [text] = &logged(false, log)[..] else { panic!("one line") };
        assert!(text.len() <= LINE + 8 && text.ends_with("…\n"), "{}", text.len());
        let [json] = &logged(true, log)[..] else { panic!("one line") };
        let object: Value = serde_json::from_str(json).unwrap();
        assert_eq!(object["fields"]["after"], 1);
        for name in ["huge", "shown"] {
            let value = object["fields"][name].as_str().unwrap();
            assert!(value.len() <= VALUE + 3 && value.ends_with("ü…"), "{}", value.len());
        }
    }

    #[test]
    fn members_of_json_have_their_types_and_an_order() {
        let [line] = &logged(true, || {
            let none: Option<u64> = None;
            tracing::error!(
                on = true,
                off = -1,
                many = u64::MAX,
                none,
                some = Some(2),
                "text {}",
                5
            );
        })[..] else {
            panic!("one line")
        };
        let time = line.strip_prefix("{\"time\":\"").unwrap();
        assert!(time.starts_with("20") && time[10..].starts_with('T'), "{line}");
        let expected = ",\"level\":\"ERROR\",\"target\":\"headwater::log::format::tests\",\
             \"message\":\"text 5\",\"fields\":{\"on\":true,\"off\":-1,\
             \"many\":18446744073709551615,\"some\":2}}\n";
        assert!(line.ends_with(expected), "{line}");
        let [line] = &logged(true, || tracing::info!(ratio = 0.5, bad = f64::NAN, level = "x"))[..]
        else {
            panic!("one line")
        };
        let object: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&object["level"], &object["message"]), (&"INFO".into(), &"".into()));
        let fields = &object["fields"];
        assert_eq!(
            (&fields["ratio"], &fields["bad"], &fields["level"]),
            (&0.5.into(), &"NaN".into(), &"x".into())
        );
    }

    #[test]
    fn a_line_names_the_connection_the_session_and_the_request_that_it_is_about() {
        let log = || tracing::info!(peer = 1, "publisher");
        let told = |is_json| {
            let none = logged(is_json, log).concat();
            let request = || LogId::request("r-7".into());
            let only = request().within(|| logged(is_json, log)).concat();
            let with_session = request().within(|| {
                LogId::begin_session(9);
                logged(is_json, log).concat()
            });
            let own = LogId::connection().within(|| [logged(is_json, log), logged(is_json, log)]);
            (none, only, with_session, own.map(|lines| lines.concat()))
        };
        let (none, only, with_session, [own, again]) = told(false);
        assert!(none.ends_with(": publisher peer=1\n"), "{none}");
        assert!(only.ends_with(": publisher peer=1 request_id=r-7\n"), "{only}");
        let ending = ": publisher peer=1 session=9 request_id=r-7\n";
        assert!(with_session.ends_with(ending), "{with_session}");
        let (before, number) = own.trim_end().split_once(" connection=").unwrap();
        assert!(before.ends_with(": publisher peer=1"), "{own}");
        assert!(again.trim_end().ends_with(&format!(" connection={number}")), "{own}{again}");
        let number: u64 = number.parse().unwrap();

        let (none, only, with_session, own) = told(true);
        let names = |line: &str| {
            let object: Value = serde_json::from_str(line).unwrap();
            ["connection", "session", "request_id"].map(|name| object[name].clone())
        };
        assert_eq!(names(&none), [Value::Null, Value::Null, Value::Null]);
        assert_eq!(names(&only), [Value::Null, Value::Null, "r-7".into()]);
        assert_eq!(names(&with_session), [Value::Null, 9.into(), "r-7".into()]);
        let [own, again] = own.map(|line| names(&line));
        assert!(own[0].as_u64().unwrap() > number, "another connection: {own:?}");
        assert_eq!(own, again);
    }
}
