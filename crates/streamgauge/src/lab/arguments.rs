//! Fills in the templates of a load: with its parameters, and with what a trial knows.

use super::record::Parameters;
use super::template::{Template, Unknown};

/// The values of variables.
pub trait Values {
    /// A variable's value.
    fn value(&self, name: &str) -> Option<String>;

    /// The values of a variable that means several arguments.
    fn values(&self, _name: &str) -> Option<Vec<String>> {
        None
    }
}

impl Values for Parameters {
    fn value(&self, name: &str) -> Option<String> {
        self.get(name).map(ToString::to_string)
    }
}

/// Fills in a [`Template`].
///
/// # Errors
/// The template has an unknown variable.
pub fn fill(text: &str, values: &dyn Values) -> Result<String, Unknown> {
    Template::new(text).fill(|name| values.value(name))
}

/// Fills in all arguments of a command. An argument that is a single variable may become several
/// arguments. If its value is empty, it becomes none.
///
/// # Errors
/// Those of [`fill`].
pub fn fill_all(arguments: &[String], values: &dyn Values) -> Result<Vec<String>, Unknown> {
    let mut filled = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let alone = argument.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        if let Some(several) = alone.and_then(|name| values.values(name)) {
            filled.extend(several);
            continue;
        }
        let text = fill(argument, values)?;
        if !text.is_empty() || alone.is_none() {
            filled.push(text);
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::super::record::Value;
    use super::*;

    struct Known;

    impl Values for Known {
        fn value(&self, name: &str) -> Option<String> {
            let parameters = Parameters::from([("rate".to_owned(), Value::Number(100.0))]);
            if name == "nothing" { Some(String::new()) } else { parameters.value(name) }
        }

        fn values(&self, name: &str) -> Option<Vec<String>> {
            (name == "urls").then(|| vec!["a".to_owned(), "b".to_owned()])
        }
    }

    #[test]
    fn parameters_are_filled_in_and_unknown_ones_named() {
        assert_eq!(fill("--rate={rate}/s {{x} { }", &Known).unwrap(), "--rate=100/s {x} { }");
        let error = fill("{speed}", &Known).unwrap_err().to_string();
        assert!(error.contains("{speed} is not known"), "{error}");
    }

    #[test]
    fn a_variable_alone_may_be_several_arguments_or_none() {
        let arguments = ["{urls}", "{nothing}", "", "-c{nothing}"].map(str::to_owned);
        assert_eq!(fill_all(&arguments, &Known).unwrap(), ["a", "b", "", "-c"]);
    }
}
