//! What tests share: where the media is, and the foreign programs that judge our output.

use std::path::PathBuf;

/// The folder of test media (see MANIFEST.md there): `../shared/media` beside the checkout, or
/// what `HEADWATER_MEDIA` names.
///
/// # Panics
/// Where there is none: a test that needs it must fail, not pass by skipping.
pub fn media_dir() -> PathBuf {
    let dir = std::env::var_os("HEADWATER_MEDIA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/media"),
        PathBuf::from,
    );
    assert!(dir.is_dir(), "no test media at {} (set HEADWATER_MEDIA)", dir.display());
    dir
}
