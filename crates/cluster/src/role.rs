//! The two publishers of a stream, as nodes name them.

use serde::{Deserialize, Serialize};

/// Which of the two publishers of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Role {
    /// [`live::backup::Role::Primary`]
    Primary,
    /// [`live::backup::Role::Backup`]
    Backup,
}

impl From<live::backup::Role> for Role {
    fn from(role: live::backup::Role) -> Self {
        match role {
            live::backup::Role::Primary => Self::Primary,
            live::backup::Role::Backup => Self::Backup,
        }
    }
}

impl From<Role> for live::backup::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Primary => Self::Primary,
            Role::Backup => Self::Backup,
        }
    }
}
