//! Which names streams and renditions may have.

/// Whether `name` may name a stream: path segments of `A-Z a-z 0-9 . _ -` that do not start with
/// a dot, 1 to 128 bytes in all.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= 128 && name.split('/').all(is_segment)
}

/// Whether `name` may name a rendition: one path segment of 1 to 64 bytes.
pub(crate) fn is_rendition(name: &str) -> bool {
    name.len() <= 64 && is_segment(name)
}

fn is_segment(segment: &str) -> bool {
    !segment.is_empty()
        && !segment.starts_with('.')
        && segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// The start of a bad name, short enough for a message.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "demo", "a/b", "A-1_2.x", &"n".repeat(128)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "/", "a/", "/a", ".a", "a/.b", "a b", "ü", "a//b", &"n".repeat(129)] {
            assert!(!is_name(bad), "{bad}");
        }
        for good in ["low", "1080p_3.5M", &"n".repeat(64)] {
            assert!(is_rendition(good), "{good}");
        }
        for bad in ["", ".", "../..", "a/b", "\"x\"", "a%20b", "<b>", "x\n", &"n".repeat(65)] {
            assert!(!is_rendition(bad), "{bad}");
        }
    }
}
