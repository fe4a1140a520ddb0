//! Streams' names in subjects and keys of NATS.
//!
//! A dot separates the tokens of a subject, and the names of streams may have dots. So a dot becomes `=`, which no
//! name has. The other characters of names are allowed in subjects and in keys.

/// The token of a stream's name.
pub fn token(stream: &str) -> String {
    stream.replace('.', "=")
}

/// The stream's name of a token.
pub fn stream(token: &str) -> String {
    token.replace('=', ".")
}

/// The subject of a stream's changes.
pub fn changes(stream: &str) -> String {
    format!("headwater.live.{}", token(stream))
}

/// The subject of a stream's access units.
pub fn units(stream: &str) -> String {
    format!("headwater.units.{}", token(stream))
}

/// The subject of what is asked of a node. Nodes' names obey the same rules.
pub fn questions(node: &str) -> String {
    format!("headwater.node.{}", token(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_dots_is_one_token() {
        assert_eq!(changes("a/b.c"), "headwater.live.a/b=c");
        assert_eq!(stream(&token("a/b.c-d_1")), "a/b.c-d_1");
    }
}
