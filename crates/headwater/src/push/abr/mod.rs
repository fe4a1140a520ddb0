//! Which rendition a viewer is sent where the server chooses, by what the kernel tells of its connection. The rules
//! are [`protocol::push::abr`]'s.

mod live;
mod title;

pub(super) use self::live::{LOOKS, LiveAbr, Watched, allows, begin};
pub(super) use self::title::TitleAbr;
