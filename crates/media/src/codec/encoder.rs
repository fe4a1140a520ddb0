//! What encoders write about themselves into their first access unit.

use memchr::memmem;

/// Bytes to search: encoders write their options near the start of the first access unit.
const SEARCHED: usize = 4096;

/// Most pictures from one keyframe to the next, read from the options that x264 and x265 list in
/// their first access unit (a user data SEI message). `None` where the options are absent or set no
/// limit.
pub fn keyframe_interval(access_unit: &[u8]) -> Option<u32> {
    let said = &access_unit[..access_unit.len().min(SEARCHED)];
    let encoder = [&b"x264"[..], b"x265"].iter().find_map(|name| memmem::find(said, name))?;
    let options = &said[encoder..];
    let option = b" keyint=";
    let value = &options[memmem::find(options, option)? + option.len()..];
    let digits = value.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(value.len());
    std::str::from_utf8(&value[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_found_where_an_encoder_lists_its_own() {
        let of = |options: &str| keyframe_interval(options.as_bytes());
        assert_eq!(of("x264 - core 164 - options: keyint=250 keyint_min=25"), Some(250));
        assert_eq!(of("x265 (build 199) - options: bframes=4 keyint=48"), Some(48));
        assert_eq!(of("x264 - core 164 - options: keyint=infinite keyint_min=1"), None);
        assert_eq!(of("x264 - core 164 - options: keyint_min=25"), None);
        assert_eq!(of("another encoder keyint=250"), None);
        assert_eq!(of("x264 keyint=99999999999"), None);
        assert_eq!(of(""), None);
    }
}
