//! An API key of a test, and its entry in a keys file.

use latchgate::auth::ApiKey;

/// A key and what the file says of it.
pub(crate) struct Key {
    pub(crate) key: ApiKey,
    pub(crate) header: String,
}

// === impl Key ===

impl Key {
    pub(crate) fn new() -> Self {
        let key = ApiKey::random();
        let header = format!("Bearer {}", key.expose());
        Self { key, header }
    }

    /// As it stands in the list of secrets, without quotes.
    pub(crate) fn secret(&self) -> String {
        format!("{}:sha256:{}", self.key.id(), self.key.hash())
    }

    /// A `[[key]]` with these lines more.
    pub(crate) fn entry(&self, name: &str, lines: &str) -> String {
        let secret = self.secret();
        format!("[[key]]\nname = '{name}'\nsecrets = ['{secret}']\n{lines}\n")
    }

    /// The header that carries it.
    pub(crate) fn auth(&self) -> (&str, &str) {
        ("authorization", &self.header)
    }
}
