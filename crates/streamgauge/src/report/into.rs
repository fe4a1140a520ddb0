//! Replaces a part of a foreign document.

use std::path::Path;

use anyhow::{Context, bail, ensure};

use crate::files;

const BEGIN: &str = "<!-- streamgauge:begin -->";
const END: &str = "<!-- streamgauge:end -->";
/// The largest document that is accepted, in bytes.
const LARGEST: u64 = 16 << 20;

/// Returns the document with the new part.
///
/// # Errors
/// The document cannot be read, or does not mark the place of the part.
pub(super) fn replaced(path: &Path, part: &str) -> anyhow::Result<String> {
    replace(&files::text(path, LARGEST)?, part).with_context(|| path.display().to_string())
}

fn replace(text: &str, part: &str) -> anyhow::Result<String> {
    let place = |marker: &str| {
        let mut places = text.match_indices(marker).map(|(at, _)| at);
        let Some(at) = places.next() else { bail!("there is no {marker}") };
        ensure!(places.next().is_none(), "there is more than one {marker}");
        Ok(at)
    };
    let (begin, end) = (place(BEGIN)? + BEGIN.len(), place(END)?);
    ensure!(begin <= end, "{END} is before {BEGIN}");
    Ok(format!("{}\n{part}\n{}", &text[..begin], &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_is_replaced() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replace(&text, "new").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
        assert_eq!(replace(&new, "new").unwrap(), new);
    }

    #[test]
    fn documents_without_a_place_are_refused() {
        for (text, reason) in [
            (String::new(), "no <!-- streamgauge:begin"),
            (BEGIN.to_owned(), "no <!-- streamgauge:end"),
            (format!("{END}{BEGIN}"), "is before"),
            (format!("{BEGIN}{BEGIN}{END}"), "more than one"),
        ] {
            let error = replace(&text, "new").unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
