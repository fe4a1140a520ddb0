//! Options, their defaults, and the file that sets them.
