//! What a URL says of Redis servers: where they listen, and how to log in to them.

use std::{fmt, str::FromStr};

use super::{Host, HostError, HostPort};

/// Where a server or a sentinel listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RedisNode {
    host: String,
    port: u16,
}

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

/// `[USER:PASSWORD@]HOST[:PORT],..`, as all URLs of Redis servers begin after the scheme.
///
/// Its `Display` masks the password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct RedisServerList {
    pub(super) login: RedisLogin,
    pub(super) nodes: Vec<RedisNode>,
    /// The user as it was written.
    user: String,
}

// === impl RedisNode ===

impl RedisNode {
    /// The address as it is connected to: an IPv6 address without its brackets.
    pub fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.to_owned(),
            port,
        }
    }

    /// The host name or address, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Reads `HOST[:PORT]`.
    pub(super) fn parse(text: &str, default_port: u16) -> Result<Self, HostError> {
        let HostPort { host, port } = HostPort::from_str(text)?;
        let host = match host {
            Host::Name(name) => name.into_string(),
            Host::Address(address) => address.to_string(),
        };
        let port = port.unwrap_or(default_port);
        Ok(Self { host, port })
    }
}

impl fmt::Display for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
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

// === impl RedisServerList ===

impl RedisServerList {
    /// Reads a login and servers. The error is the reason; it does not repeat the text, which may hold
    /// a password. `form` says how the servers are written.
    pub(super) fn parse(
        text: &str,
        is_tls: bool,
        default_port: u16,
        form: &str,
    ) -> Result<Self, String> {
        let (login, hosts) = match text.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, text),
        };
        let (user, password) = match login.map(|login| login.split_once(':')) {
            None => ("", None),
            Some(Some((user, password))) => (user, Some(password)),
            // Other clients read it as a password: shown as a user it would leak.
            Some(None) => {
                return Err(
                    "a user needs a password; a password alone is written :PASSWORD@".to_owned(),
                );
            }
        };
        let node = |text: &str| RedisNode::parse(text, default_port);
        let nodes: Result<Vec<_>, HostError> = hosts.split(',').map(node).collect();
        Ok(Self {
            login: RedisLogin {
                username: (!user.is_empty()).then(|| decode(user)),
                password: password.map(decode),
                database: 0,
                is_tls,
            },
            nodes: nodes.map_err(|_no_host| form.to_owned())?,
            user: user.to_owned(),
        })
    }

    /// Sets the database that is named, if one is, and answers how it is written behind the servers.
    pub(super) fn set_database(&mut self, text: &str) -> Result<String, &'static str> {
        if !text.is_empty() {
            let database = text.parse();
            let refused = "the database is a number, and nothing may follow it";
            self.login.database = database.map_err(|_| refused)?;
        }
        Ok(format!("/{}", self.login.database))
    }
}

impl fmt::Display for RedisServerList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.login.password {
            Some(_) => write!(f, "{}:***@", self.user)?,
            None if self.user.is_empty() => {}
            None => write!(f, "{}@", self.user)?,
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{node}")?;
        }
        Ok(())
    }
}

/// A text without the escapes of URLs.
fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8_lossy()
        .into_owned()
}
