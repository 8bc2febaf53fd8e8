//! Which locks a command is about: one, or several as one.

use crate::{
    client::{AcquireRequest, Acquiring, Client, Lease},
    lock::{FencingToken, GroupNames, LockName},
};

use super::super::error::CliError;

/// One lock, or several as one.
#[derive(Debug, Clone)]
pub(crate) enum Locks {
    One(LockName),
    All(GroupNames),
}

// === impl Locks ===

impl Locks {
    /// Those that a command line names. There is at least one.
    pub(crate) fn of(names: &[LockName]) -> Result<Self, CliError> {
        if let [name] = names {
            return Ok(Self::One(name.clone()));
        }
        let names = GroupNames::new(names.iter().cloned());
        names.map(Self::All).map_err(|error| CliError::Argument {
            flag: "NAME",
            error: error.to_string(),
        })
    }

    /// The lock, or the first of several.
    pub(crate) fn first(&self) -> &LockName {
        match self {
            Self::One(name) => name,
            Self::All(names) => &names.as_slice()[0],
        }
    }

    /// Begins to ask for them.
    pub(crate) fn acquiring(&self, client: &Client, request: AcquireRequest) -> Acquiring {
        match self {
            Self::One(name) => client.acquiring(name.clone(), request),
            Self::All(names) => client.acquiring_all(names.clone(), request),
        }
    }
}

/// The locks of a lease with their fencing tokens.
pub(crate) fn fences(lease: &Lease) -> Vec<(&LockName, FencingToken)> {
    if lease.parts.is_empty() {
        return vec![(&lease.name, lease.fence)];
    }
    let parts = lease.parts.iter();
    parts.map(|part| (&part.name, part.fence)).collect()
}
