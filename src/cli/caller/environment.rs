//! The environment of the process, read once.

use std::{
    env,
    ffi::{OsStr, OsString},
};

/// The value of a variable is not allowed.
#[derive(Debug, thiserror::Error)]
#[error("{variable} {error}")]
pub(crate) struct VariableError {
    variable: &'static str,
    error: &'static str,
}

/// Every variable, valid UTF-8 or not. Without `Debug`, because some are secrets.
pub(crate) struct Environment(Vec<(OsString, OsString)>);

// === impl Environment ===

impl Environment {
    /// That of this process.
    pub(crate) fn of_process() -> Self {
        Self(env::vars_os().collect())
    }

    pub(crate) fn all(&self) -> &[(OsString, OsString)] {
        &self.0
    }

    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_os_str())
    }

    /// A variable that says where something is. One that is set must say it: an empty one is what a
    /// script leaves behind in which something failed before.
    pub(crate) fn given(&self, name: &'static str) -> Result<Option<&str>, VariableError> {
        let refuse = |error| VariableError {
            variable: name,
            error,
        };
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.to_str() {
            Some("") => Err(refuse("is set and empty; give it a value, or unset it")),
            Some(text) => Ok(Some(text)),
            None => Err(refuse("is not UTF-8")),
        }
    }

    /// A variable as text, where one that is empty or not UTF-8 is as good as none.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.to_str().filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_variable_that_says_nothing_is_not_the_same_as_none() {
        let given = |value: &[u8]| {
            let value = OsString::from_vec(value.to_vec());
            let environment = Environment(vec![("LATCHGATE_URL".into(), value)]);
            let given = environment.given("LATCHGATE_URL");
            given
                .map(|text| text.map(str::to_owned))
                .map_err(|error| error.to_string())
        };
        assert_eq!(given(b"http://a"), Ok(Some("http://a".to_owned())));
        let refused = given(b"").unwrap_err();
        assert!(refused.starts_with("LATCHGATE_URL is set and empty"));
        assert_eq!(given(b"\xff").unwrap_err(), "LATCHGATE_URL is not UTF-8");
        assert!(matches!(
            Environment(Vec::new()).given("LATCHGATE_URL"),
            Ok(None)
        ));
    }
}
