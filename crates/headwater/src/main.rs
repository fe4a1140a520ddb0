//! The origin.

fn main() {}
