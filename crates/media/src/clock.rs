//! Clocks that wrap, unwrapped at the door.
