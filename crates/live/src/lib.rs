//! Live streams: how they are cut, what of them is held, and who may ask for it.
