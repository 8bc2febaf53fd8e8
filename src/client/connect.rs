//! The client itself: which gateway it calls and how.

use std::{net::IpAddr, sync::Arc, time::Duration};

use reqwest::{Url, redirect};
use rustls::crypto::{CryptoProvider, ring};
use rustls_platform_verifier::BuilderVerifierExt;

use crate::lock::LockName;

use super::ApiKey;

/// How a gateway is called.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The address of the gateway, its base path included.
    pub url: String,
    /// The API key, if the gateway wants one.
    pub key: Option<ApiKey>,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long the answer to one copy of a request may take.
    pub request_timeout: Duration,
    /// How long a call may take with all its copies and pauses.
    pub deadline: Duration,
    /// How many copies of a request are sent at most.
    pub attempts: u32,
}

/// Calls one gateway. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    pub(super) http: reqwest::Client,
    pub(super) options: Arc<ClientOptions>,
    base: Url,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The address is not usable. It is not repeated where it may hold a password.
    #[error("the gateway's URL {0}; expected http://HOST[:PORT][/PATH] or https://..")]
    Url(&'static str),
    /// No TLS, most likely because the system has no root certificates.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The HTTP client could not be built.
    #[error("cannot set up HTTP: {0}")]
    Http(#[from] reqwest::Error),
}

// === impl ClientOptions ===

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            url: "http://127.0.0.1:7420".to_owned(),
            key: None,
            connect_timeout: Duration::from_secs(2),
            // Twice what a gateway gives its store: its own 504 says more than our time-out.
            request_timeout: Duration::from_secs(10),
            deadline: Duration::from_secs(25),
            // Three pauses of up to 200, 400 and 800 ms: enough for a gateway behind a load
            // balancer to be replaced, short enough for a person who mistyped the address.
            attempts: 4,
        }
    }
}

// === impl Client ===

impl Client {
    /// A client for one gateway. Connects to nothing yet.
    pub fn new(options: ClientOptions) -> Result<Self, SetupError> {
        let base = parse(&options.url)?;
        let mut builder = reqwest::Client::builder()
            .connect_timeout(options.connect_timeout)
            .tls_backend_preconfigured(tls(&base)?)
            // A redirect would carry a token to a host that nobody named.
            .redirect(redirect::Policy::none())
            // Whether a copy may be sent is decided in `call`, which knows the command.
            .retry(reqwest::retry::never())
            .user_agent(concat!("latchgate/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&base) {
            builder = builder.no_proxy();
        }
        Ok(Self {
            http: builder.build()?,
            options: Arc::new(options),
            base,
        })
    }

    /// The address of the gateway.
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// The URL of a lock. Every character of a name stands for itself in a path.
    pub(super) fn lock_url(&self, name: &LockName, operation: &str) -> String {
        format!("{}/locks/{name}{operation}", self.url())
    }
}

fn parse(text: &str) -> Result<Url, SetupError> {
    let url = Url::parse(text).map_err(|_invalid| SetupError::Url("is not a URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(SetupError::Url("has another scheme"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(SetupError::Url("has a user name or a password in it"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(SetupError::Url("has something behind its path"));
    }
    Ok(url)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn tls(base: &Url) -> Result<rustls::ClientConfig, rustls::Error> {
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?;
    if base.scheme() == "https" {
        return Ok(builder.with_platform_verifier()?.with_no_client_auth());
    }
    // Without redirects an http:// address never comes to TLS: reading every certificate of the
    // system would only cost time.
    Ok(builder
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str) -> Result<Client, SetupError> {
        Client::new(ClientOptions {
            url: url.to_owned(),
            ..ClientOptions::default()
        })
    }

    #[test]
    fn a_lock_is_found_under_the_base_path() {
        let name = LockName::new("deploy:prod@eu~1").unwrap();
        for (url, expected) in [
            ("http://h:1", "http://h:1/locks/deploy:prod@eu~1/renew"),
            ("http://h:1/", "http://h:1/locks/deploy:prod@eu~1/renew"),
            (
                "https://h/base/",
                "https://h/base/locks/deploy:prod@eu~1/renew",
            ),
        ] {
            assert_eq!(client(url).unwrap().lock_url(&name, "/renew"), expected);
        }
    }

    #[test]
    fn refuses_an_address_that_is_none_and_repeats_no_password() {
        for bad in [
            "",
            "h:1",
            "ftp://h",
            "http://h/?q",
            "http://h/#f",
            "http://u:s3cret@h",
        ] {
            let error = client(bad).unwrap_err().to_string();
            assert!(error.contains("expected http://"), "{bad}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn knows_this_machine() {
        for (url, loopback) in [
            ("http://localhost:1", true),
            ("http://127.0.0.2", true),
            ("http://[::1]:1", true),
            ("http://example.org", false),
            ("http://127.0.0.1.example.org", false),
        ] {
            assert_eq!(is_loopback(&url.parse().unwrap()), loopback, "{url}");
        }
    }
}
