//! The parameters that distinguish cases, and how they are written.

use crate::lab::record::{Parameters, Value};
use crate::lab::scenario::Load;

use super::{Kept, case_order};
use crate::number;

/// Heading of a column with a parameter's values: `clients`, `duration, s`.
pub(crate) fn title(name: &str) -> String {
    match name {
        "peer" => "server".to_owned(),
        "value" => String::new(),
        "duration" | "interval" => format!("{name}, s"),
        "rate" => "rate, 1/s".to_owned(),
        name => name.replace('_', " "),
    }
}

/// Writes a value whose parameter is named elsewhere.
pub(crate) fn bare(value: &Value) -> String {
    match value {
        Value::Number(number) => number::plain(*number),
        Value::Text(text) => text.clone(),
    }
}

/// Writes a value with its parameter: `400 clients`, `60 s`, `1,000/s`.
pub(crate) fn full(name: &str, value: &Value) -> String {
    let Value::Number(number) = value else { return bare(value) };
    let number = number::plain(*number);
    match name {
        "duration" | "interval" => format!("{number} s"),
        "rate" => format!("{number}/s"),
        name => match COUNTED.iter().find(|(_, several)| *several == name) {
            Some((one, several)) => {
                format!("{number} {}", if number == "1" { one } else { several })
            }
            None => format!("{} {number}", name.replace('_', " ")),
        },
    }
}

/// Parameters that count something: singular, and plural, which is the name.
const COUNTED: [(&str, &str); 8] = [
    ("client", "clients"),
    ("viewer", "viewers"),
    ("connection", "connections"),
    ("batch", "batches"),
    ("stream", "streams"),
    ("request", "requests"),
    ("worker", "workers"),
    ("thread", "threads"),
];

/// The parameters that distinguish these trials, without those that follow from others: of
/// `batches` and `clients = batches * 50` only the second. `given` are known already.
pub(crate) fn telling(load: &Load, trials: &[&Kept], given: &[&str]) -> Vec<String> {
    let mut kept: Vec<String> = given.iter().map(|name| (*name).to_owned()).collect();
    let derived = load.derive.keys().map(String::as_str);
    let names = derived.chain(load.cases.keys().map(String::as_str));
    for name in names {
        if !kept.iter().any(|other| other == name) && !follows(name, &kept, trials) {
            kept.push(name.to_owned());
        }
    }
    let mut telling = kept.split_off(given.len());
    // In the order of the scenario. Computed parameters come first.
    telling.sort_by_key(|name| load.cases.get_index_of(name));
    telling
}

/// Whether a parameter has only one value wherever the others have the same values.
fn follows(name: &str, others: &[String], trials: &[&Kept]) -> bool {
    let mut seen: Vec<(Vec<Option<&Value>>, Option<&Value>)> = Vec::new();
    for kept in trials {
        let parameters = &kept.trial.parameters;
        let key: Vec<_> = others.iter().map(|other| parameters.get(other)).collect();
        let value = parameters.get(name);
        match seen.iter().find(|(other, _)| *other == key) {
            Some((_, other)) if *other != value => return false,
            Some(_) => {}
            None => seen.push((key, value)),
        }
    }
    true
}

/// Groups trials that have the same values of these parameters. Each group has a name, and the
/// groups are in the order of the scenario.
pub(crate) fn grouped<'a>(
    load: &Load,
    trials: &[&'a Kept],
    by: &[String],
) -> Vec<(String, Vec<&'a Kept>)> {
    let pick = |parameters: &Parameters| -> Parameters {
        by.iter().filter_map(|name| Some((name.clone(), parameters.get(name)?.clone()))).collect()
    };
    let mut groups: Vec<(Parameters, Vec<&Kept>)> = Vec::new();
    for &kept in trials {
        let key = pick(&kept.trial.parameters);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(kept),
            None => groups.push((key, vec![kept])),
        }
    }
    groups.sort_by_key(|(_, group)| {
        group.first().map(|kept| case_order(load, &kept.trial.parameters))
    });
    let name = |key: &Parameters| {
        let values = by.iter().filter_map(|name| Some(full(name, key.get(name)?)));
        values.collect::<Vec<_>>().join(", ")
    };
    groups.into_iter().map(|(key, group)| (name(&key), group)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_what_is_counted_is_called_so() {
        for (name, number, words) in [
            ("batches", 1.0, "1 batch"),
            ("batches", 2.0, "2 batches"),
            ("clients", 1.0, "1 client"),
            ("rate", 1000.0, "1,000/s"),
            ("duration", 60.0, "60 s"),
            ("batch_size", 1.0, "batch size 1"),
        ] {
            assert_eq!(full(name, &Value::Number(number)), words);
        }
    }
}
