//! The environment of the process, read once.

use std::{
    env,
    ffi::{OsStr, OsString},
};

/// Every variable, valid UTF-8 or not.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment(Vec<(OsString, OsString)>);

// === impl Environment ===

impl Environment {
    /// That of this process.
    pub(super) fn of_process() -> Self {
        Self(env::vars_os().collect())
    }

    pub(super) fn all(&self) -> &[(OsString, OsString)] {
        &self.0
    }

    pub(super) fn get(&self, name: &str) -> Option<&OsStr> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_os_str())
    }

    /// A variable as text, where one that is not UTF-8 is as good as none.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.to_str().filter(|text| !text.is_empty())
    }
}
