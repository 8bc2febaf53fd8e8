//! What a URL says about how to log in to a Redis process.

use std::fmt;

/// What a URL says about how to log in. Its `Debug` masks the password.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RedisLogin {
    /// The ACL user, if one is named.
    pub username: Option<String>,
    /// The password, if there is one. A secret: it belongs in no log.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u16,
    /// Whether TLS is spoken.
    pub is_tls: bool,
}

// === impl RedisLogin ===

impl RedisLogin {
    /// Whether it names somebody to log in as.
    pub fn names_somebody(&self) -> bool {
        self.username.is_some() || self.password.is_some()
    }
}

impl fmt::Debug for RedisLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLogin")
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("database", &self.database)
            .field("is_tls", &self.is_tls)
            .finish()
    }
}
