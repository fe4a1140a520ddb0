//! Bad input, end to end on the running binary: what interfaces promise of each kind, and that
//! nobody else notices.

mod configuration;
mod hostile;
mod places;
mod publishers;
mod requests;
mod shutdown;
mod slow;
mod strangers;
mod support;
mod watcher;
mod window;
