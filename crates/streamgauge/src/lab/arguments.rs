//! What a load's templates ask for: its parameters, and what a trial knows.
//!
//! Unlike a peer's [`Template`](super::template::Template) they have no fixed list of variables.

use anyhow::bail;

use super::record::Parameters;

/// The values of variables.
pub trait Values {
    /// A variable's value.
    fn value(&self, name: &str) -> Option<String>;

    /// The values of a variable that stands for several arguments.
    fn values(&self, _name: &str) -> Option<Vec<String>> {
        None
    }
}

impl Values for Parameters {
    fn value(&self, name: &str) -> Option<String> {
        self.get(name).map(ToString::to_string)
    }
}

/// Fills `{NAME}` in; `{{` and `}}` are braces.
///
/// # Errors
/// A variable that is not known, or a brace that begins none.
pub fn fill(text: &str, values: &dyn Values) -> anyhow::Result<String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        filled.push_str(before);
        if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
            filled.push_str(&from[..1]);
            rest = after;
        } else if let Some((name, after)) =
            from[1..].split_once('}').filter(|_| from.starts_with('{'))
        {
            match values.value(name) {
                Some(value) => filled.push_str(&value),
                None => bail!("{text:?}: there is no parameter {{{name}}}"),
            }
            rest = after;
        } else {
            bail!("{text:?}: a brace that begins no parameter; {{{{ and }}}} are braces");
        }
    }
    Ok(filled + rest)
}

/// Fills all arguments of a command in. One that is nothing but a variable may come to several
/// arguments, or, where its value is empty, to none.
///
/// # Errors
/// As [`fill`].
pub fn fill_all(arguments: &[String], values: &dyn Values) -> anyhow::Result<Vec<String>> {
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
    fn parameters_are_filled_in_and_braces_can_be_written() {
        assert_eq!(fill("--rate={rate}/s {{x}}", &Known).unwrap(), "--rate=100/s {x}");
        for (text, reason) in
            [("{speed}", "no parameter {speed}"), ("{rate", "a brace"), ("a}", "a brace")]
        {
            let error = fill(text, &Known).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_variable_alone_may_be_several_arguments_or_none() {
        let arguments = ["{urls}", "{nothing}", "", "-c{nothing}"].map(str::to_owned);
        assert_eq!(fill_all(&arguments, &Known).unwrap(), ["a", "b", "", "-c"]);
    }
}
