//! What the machine does while something is measured.

pub mod kernel;
