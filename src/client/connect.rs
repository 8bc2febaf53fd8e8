//! The client itself: which gateway it calls and how.

use std::{sync::Arc, time::Duration};

use reqwest::{
    header::{HeaderMap, HeaderValue},
    redirect,
};

use crate::{
    tls::{ClientFiles, TlsError, no_tls},
    trace_context::TraceContext,
};

use super::{ApiKey, addresses::Addresses};

/// How a gateway is called.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The address of the gateway, its base path included. Several, separated by commas, are tried
    /// in turn: gateways on one store answer for each other.
    pub url: String,
    /// The API key, if the gateway wants one.
    pub key: Option<ApiKey>,
    /// Which gateways are believed over `https://`, and what is shown to one that asks for a
    /// certificate. The files are read once.
    pub tls: ClientFiles,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long the answer to one copy of a request may take.
    pub request_timeout: Duration,
    /// How long a call may take with all its copies and pauses.
    pub deadline: Duration,
    /// How many copies of a request are sent at most, for each address.
    pub attempts: u32,
    /// The trace that the calls are part of.
    pub trace: Option<TraceContext>,
}

/// Calls a gateway, or several on one store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    pub(super) http: reqwest::Client,
    pub(super) options: Arc<ClientOptions>,
    pub(super) addresses: Arc<Addresses>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The address is not usable. It is not repeated where it may hold a password.
    #[error("the gateway's URL {0}; expected http://HOST[:PORT][/PATH] or https://..")]
    Url(&'static str),
    /// No TLS: a file cannot be used, or the system has no root certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
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
            tls: ClientFiles::default(),
            connect_timeout: Duration::from_secs(2),
            // Twice what a gateway gives its store: its own 504 says more than our time-out.
            request_timeout: Duration::from_secs(10),
            deadline: Duration::from_secs(25),
            // Three pauses of up to 200, 400 and 800 ms: enough for a gateway behind a load
            // balancer to be replaced, short enough for a person who mistyped the address.
            attempts: 4,
            trace: None,
        }
    }
}

// === impl Client ===

impl Client {
    /// A client. Connects to nothing yet.
    pub fn new(options: ClientOptions) -> Result<Self, SetupError> {
        let addresses = Addresses::parse(&options.url)?;
        let mut builder = reqwest::Client::builder()
            .connect_timeout(options.connect_timeout)
            .tls_backend_preconfigured(tls(&addresses, &options.tls)?)
            // A redirect would carry a token to a host that nobody named.
            .redirect(redirect::Policy::none())
            // Whether a copy may be sent is decided in `call`, which knows the command.
            .retry(reqwest::retry::never())
            .default_headers(headers(options.trace.as_ref()))
            .user_agent(concat!("latchgate/", env!("CARGO_PKG_VERSION")));
        if addresses.all_loopback() {
            builder = builder.no_proxy();
        }
        Ok(Self {
            http: builder.build()?,
            options: Arc::new(options),
            addresses: Arc::new(addresses),
        })
    }

    /// The address of the gateway that is asked next.
    pub fn url(&self) -> &str {
        self.addresses.current().url()
    }
}

/// What every request carries.
fn headers(trace: Option<&TraceContext>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(trace) = trace {
        let visible = "a trace context is visible ASCII";
        let parent = HeaderValue::try_from(trace.parent.to_string()).expect(visible);
        headers.insert("traceparent", parent);
        if let Some(state) = &trace.state {
            headers.insert(
                "tracestate",
                HeaderValue::try_from(&**state).expect(visible),
            );
        }
    }
    headers
}

fn tls(addresses: &Addresses, files: &ClientFiles) -> Result<rustls::ClientConfig, TlsError> {
    if addresses.any_https() {
        return files.config();
    }
    // Without redirects an http:// address never comes to TLS: reading every certificate of the
    // system would only cost time.
    no_tls()
}
