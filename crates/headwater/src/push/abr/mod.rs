//! Chooses the rendition for a viewer, if the server chooses, by what the kernel reports of the
//! connection. The rules are in [`protocol::push::abr`].

mod live;
mod title;

pub(super) use self::live::{LOOKS, LiveAbr, Watched, allows, begin};
pub(super) use self::title::TitleAbr;
