//! The URL of a store: the kind of store, and for Redis the servers, the login and the database.

use std::{collections::HashSet, fmt, path::PathBuf, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Host, HostError, HostPort};

/// The URL of a store. Neither its `Debug` nor its `Display` shows a password.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub enum StoreUrl {
    /// `embedded:DIR`: a durable store in a directory, for one gateway only.
    Embedded(PathBuf),
    /// The leases are on Redis servers, which this URL names.
    Servers(ServersUrl),
}

/// The URL of a store on Redis servers: `SCHEME://[USER:PASSWORD@]HOST[:PORT],..` and a path, whose form depends on the
/// kind. `Debug` and `Display` mask the password.
#[derive(Clone, PartialEq, Eq)]
pub struct ServersUrl {
    kind: ServersKind,
    login: RedisLogin,
    nodes: Vec<RedisNode>,
    /// The user, in the escaped form that the URL has.
    user: String,
    /// The path after the servers, as `Display` shows it: with the database, even if the URL leaves it out.
    path: String,
}

/// How the Redis servers of a store work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServersKind {
    /// `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`: one Redis or compatible server. With TLS, the scheme is `rediss://`.
    One,
    /// `redis+sentinel://[USER:PASSWORD@]HOST[:PORT],../SERVICE[/DB]`: the master that these sentinels name. With TLS,
    /// the scheme is `rediss+sentinel://`.
    Sentinels,
    /// `redis+cluster://[USER:PASSWORD@]HOST[:PORT],..`: the cluster to which these servers belong. With TLS, the
    /// scheme is `rediss+cluster://`.
    Cluster,
    /// `redlock://[USER:PASSWORD@]HOST[:PORT],..[/DB]`: a quorum of independent servers, such as 3 or 5. With TLS, the
    /// scheme is `redlocks://`.
    Quorum,
}

/// Why a text is no URL of a store. The error does not repeat the text, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreUrlError {
    /// The URL of the store is empty.
    #[error("is empty")]
    Empty,
    /// The URL does not begin with the scheme of a store.
    #[error("has no scheme of these")]
    Scheme,
    /// The URL has white space at its beginning or end, which was probably copied with it.
    #[error("begins or ends with a space or a line break")]
    WhiteSpace,
    /// The URL is `embedded:` without a directory.
    #[error("names no directory")]
    NoDirectory,
    /// The login, the servers or the path do not have the form that the scheme asks for.
    #[error("is not {what}: {reason}")]
    Servers {
        /// The name of this kind of store URL, for the message.
        what: &'static str,
        /// What is wrong with the login, the servers or the path.
        reason: String,
    },
}

// === impl StoreUrl ===

impl Default for StoreUrl {
    fn default() -> Self {
        Self::Embedded(PathBuf::from("./latchgate-data"))
    }
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        if text.is_empty() {
            return Err(StoreUrlError::Empty);
        }
        if let Some(dir) = text.strip_prefix("embedded:") {
            return if dir.is_empty() {
                Err(StoreUrlError::NoDirectory)
            } else {
                Ok(Self::Embedded(PathBuf::from(dir)))
            };
        }
        let (scheme, rest) = text.split_once("://").ok_or(StoreUrlError::Scheme)?;
        let parsed = ServersUrl::parse(scheme, rest).map(Self::Servers);
        // If the login contains another `@` or a `/`, it was probably meant as part of the password: the error then
        // says how to write it there.
        let login = rest.rsplit_once('@').map(|(login, _)| login);
        parsed.map_err(|error| match login {
            _ if text.trim() != text => StoreUrlError::WhiteSpace,
            Some(login) if login.contains(['/', '@']) => error.with_hint(),
            _ => error,
        })
    }
}

// === impl StoreUrlError ===

impl StoreUrlError {
    /// Adds a hint to the error: how `@` and `/` are written in a password.
    fn with_hint(self) -> Self {
        match self {
            Self::Servers { what, reason } => Self::Servers {
                reason: format!("{reason}; in a password, @ is written %40 and / is written %2F"),
                what,
            },
            other => other,
        }
    }
}

impl StoreUrl {
    /// The forms of all store URLs, for messages.
    pub const FORMS: &str = "embedded:DIR, redis://[USER:PASSWORD@]HOST[:PORT][/DB], \
        redis+sentinel://[USER:PASSWORD@]HOST[:PORT],../SERVICE[/DB], \
        redis+cluster://[USER:PASSWORD@]HOST[:PORT],.., \
        redlock://[USER:PASSWORD@]HOST[:PORT],..[/DB], or rediss.. and redlocks.. for TLS";

    /// The URL of the Redis servers; `None` if the store is embedded.
    pub fn servers(&self) -> Option<&ServersUrl> {
        match self {
            Self::Embedded(_) => None,
            Self::Servers(url) => Some(url),
        }
    }

    /// The login to the Redis servers; `None` if the store is embedded.
    pub fn login(&self) -> Option<RedisLogin> {
        self.servers().map(ServersUrl::login)
    }

    /// Whether the store is on Redis servers of this kind, such as a cluster.
    pub(super) fn is_on(&self, kind: ServersKind) -> bool {
        self.servers().is_some_and(|url| url.kind == kind)
    }

    /// The part of a possibly malformed store URL that messages may show: the scheme, or all of an `embedded:` URL.
    /// Where the password of a malformed URL begins and ends is not known.
    pub(super) fn redact(text: &str) -> String {
        match text.split_once(':') {
            Some(("embedded", _)) => text.to_owned(),
            None if text.is_empty() => String::new(),
            Some((scheme, _)) => format!("{scheme}:***"),
            None => "***".to_owned(),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded(dir) => write!(f, "embedded:{}", dir.display()),
            Self::Servers(url) => url.fmt(f),
        }
    }
}

impl Serialize for StoreUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StoreUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

// === impl ServersUrl ===

impl ServersUrl {
    fn parse(scheme: &str, rest: &str) -> Result<Self, StoreUrlError> {
        let kind = ServersKind::ALL
            .into_iter()
            .find(|kind| kind.schemes().contains(&scheme));
        let kind = kind.ok_or(StoreUrlError::Scheme)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let read = || -> Result<Self, &'static str> {
            let mut url = Self::read(kind, authority)?;
            url.login.is_tls = scheme == kind.schemes()[1];
            url.set_path(path)?;
            Ok(url)
        };
        read().map_err(|reason| StoreUrlError::Servers {
            what: kind.names().0,
            reason: reason.to_owned(),
        })
    }

    /// Parses the login and the servers of a store URL. The error does not repeat the text, which may hold a password.
    fn read(kind: ServersKind, text: &str) -> Result<Self, &'static str> {
        let (login, hosts) = match text.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, text),
        };
        let (user, password) = match login.map(|login| login.split_once(':')) {
            None => ("", None),
            Some(Some((user, password))) => (user, Some(password)),
            // A login without a colon is refused: other Redis clients take it for the password, but as a user name it
            // would be shown in messages.
            Some(None) => {
                return Err("a user needs a password; a password alone is written :PASSWORD@");
            }
        };
        let port = match kind {
            ServersKind::Sentinels => 26_379,
            _ => 6379,
        };
        let nodes = hosts.split(',').map(|text| RedisNode::parse(text, port));
        let nodes: Result<_, HostError> = nodes.collect();
        Ok(Self {
            kind,
            login: RedisLogin {
                username: (!user.is_empty()).then(|| decode(user)),
                password: password.map(decode),
                ..RedisLogin::default()
            },
            nodes: nodes.map_err(|_no_host| kind.names().1)?,
            user: user.to_owned(),
            path: String::new(),
        })
    }

    /// Checks the number of servers, and parses the path after them: the service name for sentinels, and the database.
    fn set_path(&mut self, path: &str) -> Result<(), &'static str> {
        let different: HashSet<_> = self.nodes.iter().cloned().collect();
        match self.kind {
            ServersKind::One => {
                self.set_database(path)?;
                if self.nodes.len() > 1 {
                    return Err(
                        "it names one server; several are redis+sentinel://, redis+cluster:// \
                         or redlock://",
                    );
                }
            }
            ServersKind::Sentinels => {
                let (service, database) = path.split_once('/').unwrap_or((path, ""));
                let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
                if service.is_empty() || !service.bytes().all(allowed) {
                    return Err(
                        "after the sentinels comes /SERVICE, the name that they give the master: \
                         letters, digits and . - _",
                    );
                }
                self.path = format!("/{service}");
                self.set_database(database)?;
            }
            ServersKind::Cluster if ["", "0"].contains(&path) => {}
            ServersKind::Cluster => {
                return Err("a cluster has database 0 only, and nothing may follow its servers");
            }
            ServersKind::Quorum => {
                // An even number of nodes tolerates no more missing nodes than the odd number below. With fewer than 3
                // nodes, none may be missing; a quorum of more than 15 is most likely a mistake.
                let count = self.nodes.len();
                if count.is_multiple_of(2) || !(3..=15).contains(&count) {
                    return Err("it names an odd number of nodes, 3 or 5, say, and 15 at most");
                }
                // A node that is listed twice would vote twice, so the URL is refused.
                if different.len() < count {
                    return Err("it names a node twice");
                }
                self.set_database(path)?;
            }
        }
        // A server that is listed twice is kept once: otherwise it would count twice where more than half of the
        // servers must agree.
        let mut left = different;
        self.nodes.retain(|node| left.remove(node));
        Ok(())
    }

    /// Parses the number of the database in the path, if the path has one.
    fn set_database(&mut self, text: &str) -> Result<(), &'static str> {
        if !text.is_empty() {
            let database = text.parse();
            let refused = "the database is a number, and nothing may follow it";
            self.login.database = database.map_err(|_| refused)?;
        }
        self.path.push('/');
        self.path += &self.login.database.to_string();
        Ok(())
    }

    /// How the servers of this URL work together.
    pub fn kind(&self) -> ServersKind {
        self.kind
    }

    /// The login to the Redis servers.
    pub fn login(&self) -> RedisLogin {
        self.login.clone()
    }

    /// The addresses of the servers, or of the sentinels.
    pub fn nodes(&self) -> &[RedisNode] {
        &self.nodes
    }

    /// The address of the first server, which for `redis://` is the only one.
    pub fn node(&self) -> RedisNode {
        self.nodes[0].clone()
    }

    /// The name of the service under which the sentinels know the master; only `redis+sentinel://` has one.
    pub fn service(&self) -> &str {
        self.path.split('/').nth(1).unwrap_or_default()
    }
}

impl fmt::Display for ServersUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.kind.schemes()[usize::from(self.login.is_tls)];
        let login = match self.login.password {
            Some(_) => format!("{}:***@", self.user),
            None => String::new(),
        };
        let nodes: Vec<_> = self.nodes.iter().map(ToString::to_string).collect();
        write!(f, "{scheme}://{login}{}{}", nodes.join(","), self.path)
    }
}

impl fmt::Debug for ServersUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServersUrl({self})")
    }
}

// === impl ServersKind ===

impl ServersKind {
    const ALL: [Self; 4] = [Self::One, Self::Sentinels, Self::Cluster, Self::Quorum];

    /// The schemes of this kind of URL: without TLS, and with TLS.
    fn schemes(self) -> [&'static str; 2] {
        match self {
            Self::One => ["redis", "rediss"],
            Self::Sentinels => ["redis+sentinel", "rediss+sentinel"],
            Self::Cluster => ["redis+cluster", "rediss+cluster"],
            Self::Quorum => ["redlock", "redlocks"],
        }
    }

    /// The name of this kind of URL, and a description of how its servers are written, for messages.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::One => ("a Redis URL", "the server is HOST[:PORT], and then [/DB]"),
            Self::Sentinels => (
                "a URL of sentinels",
                "its sentinels are HOST[:PORT], with commas between",
            ),
            Self::Cluster => (
                "a URL of a cluster",
                "some of its servers are HOST[:PORT], with commas between",
            ),
            Self::Quorum => (
                "a URL of a quorum",
                "its nodes are HOST[:PORT], with commas between, and then [/DB]",
            ),
        }
    }
}

// === Redis servers ===
//
// The addresses of Redis servers, and the login to them.

/// The address of a Redis server or a sentinel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RedisNode {
    host: String,
    port: u16,
}

/// The login to Redis servers that a store URL contains. Its `Debug` masks the password.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RedisLogin {
    /// The ACL user, if the URL has one.
    pub username: Option<String>,
    /// The password, if the URL has one. The password is secret and must not be logged.
    pub password: Option<String>,
    /// The number of the Redis database.
    pub database: u16,
    /// Whether connections to the servers use TLS.
    pub is_tls: bool,
}

// === impl RedisNode ===

impl RedisNode {
    /// Makes an address. An IPv6 address as `host` has no brackets.
    pub fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.to_owned(),
            port,
        }
    }

    /// The host name or IP address. An IPv6 address has no brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port of the server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Parses the address of a server, `HOST[:PORT]`.
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
    /// Whether the login has a user or a password.
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

/// Decodes the percent escapes of a URL.
fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a store URL, and returns its login and its server addresses.
    fn parts(text: &str) -> (RedisLogin, Vec<String>) {
        let url: StoreUrl = text.parse().unwrap();
        let nodes = url.servers().unwrap().nodes();
        let nodes = nodes.iter().map(ToString::to_string).collect();
        (url.login().unwrap(), nodes)
    }

    #[test]
    fn reads_every_part() {
        for (text, database, nodes) in [
            ("redis://al%40ice:p%2Fw@[::1]:6380/7", 7, "[::1]:6380"),
            (
                "redis+sentinel://al%40ice:p%2Fw@s1:1,[::1]:2,s3,s1:1/my-master/7",
                7,
                "s1:1 [::1]:2 s3:26379",
            ),
            (
                "redis+cluster://al%40ice:p%2Fw@n1:1,[::1]:2,n3,n3:6379",
                0,
                "n1:1 [::1]:2 n3:6379",
            ),
            (
                "redlock://al%40ice:p%2Fw@a:1,[::1]:2,c/7",
                7,
                "a:1 [::1]:2 c:6379",
            ),
        ] {
            let (login, found) = parts(text);
            assert_eq!(found.join(" "), nodes, "{text}");
            assert_eq!(login.username.as_deref(), Some("al@ice"), "{text}");
            assert_eq!(login.password.as_deref(), Some("p/w"), "{text}");
            assert_eq!((login.database, login.is_tls), (database, false), "{text}");
        }
    }

    #[test]
    fn names_what_is_left_out_when_it_is_shown() {
        for (text, displayed) in [
            ("rediss://cache", "rediss://cache:6379/0"),
            ("rediss+sentinel://s/m", "rediss+sentinel://s:26379/m/0"),
            ("rediss+cluster://n/0", "rediss+cluster://n:6379"),
            ("redlocks://a,b,c", "redlocks://a:6379,b:6379,c:6379/0"),
        ] {
            let (login, _) = parts(text);
            assert!(login.is_tls && !login.names_somebody(), "{text}");
            assert_eq!(text.parse::<StoreUrl>().unwrap().to_string(), displayed);
        }
    }

    #[test]
    fn never_shows_a_password() {
        for (text, displayed) in [
            ("redis://:s3cret@db/1", "redis://:***@db:6379/1"),
            (
                "redis+sentinel://al:s3cret@s1,s2:5/m/1",
                "redis+sentinel://al:***@s1:26379,s2:5/m/1",
            ),
            (
                "redis+cluster://al:s3cret@n1,n2:5",
                "redis+cluster://al:***@n1:6379,n2:5",
            ),
            (
                "redlock://al:s3cret@a,b,c",
                "redlock://al:***@a:6379,b:6379,c:6379/0",
            ),
        ] {
            let url: StoreUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), displayed);
            let displayed = format!("{url:?} {:?}", url.login());
            assert!(!displayed.contains("s3cret"), "{displayed}");
        }
    }

    #[test]
    fn shows_nothing_of_a_text_that_may_hold_a_password() {
        assert_eq!(StoreUrl::redact("embedded:./data"), "embedded:./data");
        assert_eq!(StoreUrl::redact("redis://:s3cret"), "redis:***");
        assert_eq!(StoreUrl::redact("s3cret@db"), "***");
    }

    #[test]
    fn refuses_what_names_no_store() {
        for (bad, reason) in [
            ("", "is empty"),
            ("redis:", "has no scheme of these"),
            ("mysql://x", "has no scheme of these"),
            ("embedded:", "names no directory"),
            (
                "redis://:s3cret@h ",
                "begins or ends with a space or a line break",
            ),
        ] {
            let error = bad.parse::<StoreUrl>().unwrap_err();
            assert_eq!(error.to_string(), reason, "{bad}");
        }
    }

    #[test]
    fn says_what_is_wrong_with_the_servers() {
        for (start, cases) in [
            (
                "redis://: is not a Redis URL: ",
                &[
                    ("", "the server is"),
                    ("h:x", "the server is"),
                    ("h?x", "the server is"),
                    ("h,i", "it names one server"),
                    ("h/x", "the database is a number"),
                    ("h/0?x", "the database is a number"),
                    ("s3cret@h", "a user needs a password"),
                    (":s3/cret@h", "and / is written %2F"),
                    (":s3@c/ret@h", "@ is written %40"),
                ][..],
            ),
            (
                "redis+sentinel://: is not a URL of sentinels: ",
                &[
                    ("", "its sentinels are"),
                    ("s1,,s2/m", "its sentinels are"),
                    ("s1:x/m", "its sentinels are"),
                    ("s1", "after the sentinels"),
                    ("s1/", "after the sentinels"),
                    ("s1/a b/0", "after the sentinels"),
                    ("s1/m/x", "the database is a number"),
                    ("s1/m/0/1", "the database is a number"),
                    ("s1/m/0?x", "the database is a number"),
                    ("s3cret@s1/m", "a user needs a password"),
                ],
            ),
            (
                "redis+cluster://: is not a URL of a cluster: ",
                &[
                    ("", "some of its servers are"),
                    ("n1,,n2", "some of its servers are"),
                    ("n1:x", "some of its servers are"),
                    ("n1/1", "a cluster has database 0 only"),
                    ("n1/0/x", "a cluster has database 0 only"),
                    ("n1/?x", "a cluster has database 0 only"),
                    ("s3cret@n1", "a user needs a password"),
                ],
            ),
            (
                "redlock://: is not a URL of a quorum: ",
                &[
                    ("", "its nodes are"),
                    ("a,,b", "its nodes are"),
                    ("a:x,b,c", "its nodes are"),
                    ("a", "an odd number"),
                    ("a,b", "an odd number"),
                    ("a,b,c,d", "an odd number"),
                    ("a,b,a", "a node twice"),
                    ("a,b:6379,b", "a node twice"),
                    ("a,b,c/x", "the database is a number"),
                    ("a,b,c/0/1", "the database is a number"),
                    ("s3cret@a,b,c", "a user needs a password"),
                ],
            ),
        ] {
            let (scheme, start) = start.split_once(": ").unwrap();
            for (rest, reason) in cases {
                let error = format!("{scheme}{rest}").parse::<StoreUrl>();
                let message = error.unwrap_err().to_string();
                assert!(message.starts_with(start), "{scheme}{rest}: {message}");
                assert!(
                    message.contains(reason) && !message.contains("s3cret"),
                    "{scheme}{rest}: {message}"
                );
            }
        }
    }
}
