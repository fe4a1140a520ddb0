//! A part of somebody's document, replaced.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};

const BEGIN: &str = "<!-- streamgauge:begin -->";
const END: &str = "<!-- streamgauge:end -->";
/// The largest document.
const LARGEST: u64 = 16 << 20;

/// The document with the new part.
///
/// # Errors
/// It cannot be read, or does not say where the part goes.
pub(super) fn replaced(path: &Path, part: &str) -> anyhow::Result<String> {
    let name = || path.display().to_string();
    let text = String::from_utf8(super::data::bytes(path, LARGEST)?).with_context(name)?;
    replace(&text, part).with_context(name)
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

/// Writes a file so that whoever reads it has the old or the new one, and nothing between.
///
/// # Errors
/// It cannot be written.
pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let name = || path.display().to_string();
    // What a link leads to is replaced, not the link.
    let path = fs::canonicalize(path).unwrap_or(path.to_owned());
    let file = path.file_name().with_context(name)?.to_string_lossy().into_owned();
    let new = path.with_file_name(format!(".{file}.{}", std::process::id()));
    let written = fs::write(&new, text).and_then(|()| {
        if let Ok(old) = fs::metadata(&path) {
            fs::set_permissions(&new, old.permissions())?;
        }
        fs::rename(&new, &path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.with_context(name)
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
