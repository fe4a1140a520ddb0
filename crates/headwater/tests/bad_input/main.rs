//! Bad input, end to end on the running binary: what the interfaces promise for each kind, and that
//! nobody else is disturbed. Publishers that end where a test wants them also show what viewers are
//! told.

mod behind;
mod configuration;
mod hostile;
mod leaving;
mod log;
mod places;
mod publishers;
mod rendered;
mod renditions;
mod requests;
mod returns;
mod shutdown;
mod slow;
mod strangers;
mod support;
mod viewers;
mod watcher;
mod window;
