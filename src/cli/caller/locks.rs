//! Which locks a command is about: one, or several as one.

use crate::{
    client::{AcquireRequest, Acquiring, Client, Lease, LeasePart},
    lock::{GroupNames, LockName},
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
        let names = names.map_err(|error| CliError::argument("NAME", error));
        names.map(Self::All)
    }

    /// The lock, or the first of several.
    pub(crate) fn first(&self) -> &LockName {
        match self {
            Self::One(name) => name,
            Self::All(names) => &names.as_slice()[0],
        }
    }

    /// What is waited for, as long as it is not known which of several locks is held.
    pub(crate) fn label(&self) -> String {
        let more = match self {
            Self::One(name) => return name.to_string(),
            Self::All(names) => names.as_slice().len() - 1,
        };
        format!("{} and {more} more", self.first())
    }

    /// Begins to ask for them.
    pub(crate) fn acquiring(&self, client: &Client, request: AcquireRequest) -> Acquiring {
        match self {
            Self::One(name) => client.acquiring(name.clone(), request),
            Self::All(names) => client.acquiring_all(names.clone(), request),
        }
    }
}

/// The lease of each lock that was acquired.
pub(crate) fn parts(lease: &Lease) -> Vec<LeasePart> {
    if lease.parts.is_empty() {
        return vec![LeasePart {
            name: lease.name.clone(),
            fence: lease.fence,
            mode: lease.mode,
        }];
    }
    lease.parts.clone()
}
