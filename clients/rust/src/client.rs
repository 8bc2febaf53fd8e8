//! The client of gateways: its options, its API key, the addresses of gateways, and its background tasks.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use reqwest::{
    IntoUrl, Method, RequestBuilder, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
    redirect,
};
use tokio::{runtime::Handle, sync::watch, time::Instant};
use tracing::warn;

use crate::{
    ClientError, IdToken, Owner, TraceContext,
    id_token::Exchanger,
    tls::{ClientFiles, TlsError, no_tls},
};

/// Options of a client: gateway addresses, API key, TLS and time limits.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The address of the gateway, with its base path. Several addresses of gateways on one store, separated by commas,
    /// are tried in turn.
    pub url: String,
    /// The API key, if the gateway requires one.
    pub key: Option<ApiKey>,
    /// The ID token to exchange for a key of the gateway, for a program that has no API key. If there is a `key`, the key
    /// counts.
    pub id_token: Option<IdToken>,
    /// The owner text, for people to read, of requests that name no owner.
    pub owner: Option<Owner>,
    /// The certificate authorities to trust for `https://`, and the client certificate to show to a gateway that
    /// requires one. The files are read once.
    pub tls: ClientFiles,
    /// The time limit for connecting to a gateway.
    pub connect_timeout: Duration,
    /// The time limit for the answer to one copy of a request, after its wait for a lock.
    pub request_timeout: Duration,
    /// The time limit for a call without a wait: all copies of its request and the pauses between them.
    pub deadline: Duration,
    /// The maximum number of copies of a request, for each gateway address.
    pub attempts: u32,
    /// The trace to which the client's calls belong.
    pub trace: Option<TraceContext>,
}

/// A client of one gateway, or of several gateways on one store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    /// Has the keys for which the client exchanges its ID token; `None` without an ID token.
    pub(crate) exchanger: Option<Arc<Exchanger>>,
    pub(crate) options: Arc<ClientOptions>,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) outage: Arc<Outage>,
    pub(crate) background: Background,
}

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The URL of the gateway is not usable. The error does not repeat the URL, which may contain a password.
    #[error("the gateway's URL {0}; expected http://HOST[:PORT][/PATH] or https://..")]
    Url(&'static str),
    /// TLS cannot be set up: a certificate file cannot be used, or the system has no root certificates.
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
            id_token: None,
            owner: None,
            tls: ClientFiles::default(),
            connect_timeout: Duration::from_secs(2),
            // Twice the time that a gateway gives its store, so that the gateway's own answer (504) arrives first: it
            // says more than a time-out of the client.
            request_timeout: Duration::from_secs(10),
            deadline: Duration::from_secs(25),
            // Three pauses of up to 200, 400 and 800 ms are long enough for a gateway behind a load balancer to be
            // replaced, and short enough for a person who has mistyped the address.
            attempts: 4,
            trace: None,
        }
    }
}

// === impl Client ===

impl Client {
    /// Creates a client, without connecting to a gateway.
    pub fn new(options: ClientOptions) -> Result<Self, SetupError> {
        let addresses = Addresses::parse(&options.url)?;
        // If no address is `https://`, the system's certificates are not read, which would cost time. Redirects are not
        // followed, so such a client never needs TLS.
        let tls = if addresses.all.iter().any(|url| url.starts_with("https:")) {
            options.tls.config()?
        } else {
            no_tls()?
        };
        let mut builder = reqwest::Client::builder()
            .connect_timeout(options.connect_timeout)
            .tls_backend_preconfigured(tls)
            // Redirects are not followed, because they would carry a token to a host that the user did not name.
            .redirect(redirect::Policy::none())
            // The HTTP library must not send a request again: only this client knows for which requests that is safe.
            .retry(reqwest::retry::never())
            .default_headers(headers(options.trace.as_ref()))
            .user_agent(concat!("latchgate/", env!("CARGO_PKG_VERSION")));
        if addresses.all_loopback() {
            builder = builder.no_proxy();
        }
        let token = options.id_token.clone().filter(|_| options.key.is_none());
        Ok(Self {
            http: builder.build()?,
            exchanger: token.map(|token| Arc::new(Exchanger::new(token))),
            options: Arc::new(options),
            addresses: Arc::new(addresses),
            outage: Arc::default(),
            background: Background::default(),
        })
    }

    /// The gateway address to which the next request is sent.
    pub fn url(&self) -> &str {
        self.addresses.current().url
    }

    /// Starts building one copy of a request, with the API key in its headers. [`Client::send`] adds an exchanged key.
    pub(crate) fn request(&self, method: Method, url: impl IntoUrl) -> RequestBuilder {
        let request = self.http.request(method, url);
        match &self.options.key {
            Some(key) => request.header(AUTHORIZATION, key.header()),
            None => request,
        }
    }

    /// Waits until the client has released all leases whose calls were dropped before they ended: a
    /// [`Client::acquire`], the work of [`Client::with_lock`], or the start of a [`crate::LeaseRenewer`].
    ///
    /// Call this before the program ends: background tasks stop with their runtime. The wait lasts as long as the
    /// gateway needs; set a time-out if you cannot wait for a gateway that does not answer.
    pub async fn finish_releases(&self) {
        self.background.done().await;
    }
}

/// The headers that every request carries: the trace context, if there is one.
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

// === Addresses ===
//
// The addresses of the gateways, and the address that is used next.

/// The addresses of gateways on one store. Each gateway can serve every request.
#[derive(Debug)]
pub(crate) struct Addresses {
    all: Vec<String>,
    current: AtomicUsize,
}

/// The address of one of the gateways that the client was given, with the index of the address in their list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address<'a> {
    index: usize,
    /// The URL of the gateway, without a slash at its end.
    pub(crate) url: &'a str,
}

// === impl Addresses ===

impl Addresses {
    /// Parses the addresses of gateways: one address, or several separated by commas.
    pub(crate) fn parse(text: &str) -> Result<Self, SetupError> {
        let all: Result<Vec<_>, _> = text.split(',').map(|one| parse(one.trim())).collect();
        Ok(Self {
            all: all?,
            current: AtomicUsize::new(0),
        })
    }

    /// The number of gateway addresses, at least one.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The gateway address to which the next request is sent.
    pub(crate) fn current(&self) -> Address<'_> {
        let index = self.current.load(Ordering::Relaxed);
        Address {
            index,
            url: &self.all[index],
        }
    }

    /// Selects the address after `failed` for the next request, unless another call has already done so.
    pub(crate) fn move_on_from(&self, failed: Address<'_>) {
        let next = (failed.index + 1) % self.all.len();
        let order = Ordering::Relaxed;
        // If the exchange fails, another call has already selected the next address.
        let _: Result<_, _> = self
            .current
            .compare_exchange(failed.index, next, order, order);
    }

    /// Whether all gateway addresses are loopback addresses, so that the gateways run on this machine.
    pub(crate) fn all_loopback(&self) -> bool {
        self.all.iter().all(|url| is_loopback(url))
    }
}

fn parse(text: &str) -> Result<String, SetupError> {
    let url = Url::parse(text).map_err(|_invalid| SetupError::Url("is not a URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(SetupError::Url("has another scheme"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(SetupError::Url("has a user name or a password in it"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(SetupError::Url("has a query or a fragment after its path"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn is_loopback(url: &str) -> bool {
    let url = Url::parse(url).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

// === Outage ===
//
// Logs once that no gateway is reached, and once that a gateway answers again.

/// Since when no gateway has answered this client.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<Option<OutageState>>);

#[derive(Debug)]
struct OutageState {
    since: Instant,
    is_logged: bool,
}

/// How long an outage lasts before it is logged: longer than a gateway takes to restart.
const LOGGED_AFTER: Duration = Duration::from_secs(5);

// === impl Outage ===

impl Outage {
    /// Records the result of a request that was sent at `sent_at`: an answer of a gateway, or the error.
    pub(crate) fn update(&self, sent_at: Instant, error: Option<&ClientError>) {
        if let Some(message) = self.message(sent_at, error) {
            warn!("{message}");
        }
    }

    /// The message to log, if the outage has lasted for a while, or has ended after its message.
    fn message(&self, sent_at: Instant, error: Option<&ClientError>) -> Option<String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(error) = error.filter(|error| error.problem().is_none()) else {
            let logged = state.take().filter(|state| state.is_logged);
            return logged.map(|_| "a gateway answers again".to_owned());
        };
        let state = state.get_or_insert(OutageState {
            since: sent_at,
            is_logged: false,
        });
        let lasts = state.since.elapsed();
        if state.is_logged || lasts < LOGGED_AFTER {
            return None;
        }
        state.is_logged = true;
        let seconds = lasts.as_secs();
        Some(format!(
            "no gateway has answered for {seconds} s, trying again: {error}"
        ))
    }
}

// === API key ===

/// An API key. Its `Debug` does not show the secret.
#[derive(Clone)]
pub struct ApiKey(HeaderValue);

/// The error for a text that cannot be an API key. The error does not repeat the text, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is empty or has a character that is not visible ASCII")]
pub struct ApiKeyError;

// === impl ApiKey ===

impl ApiKey {
    /// Makes an API key of a text. Fails if the text cannot be an API key.
    pub fn new(text: &str) -> Result<Self, ApiKeyError> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ApiKeyError);
        }
        let mut header =
            HeaderValue::try_from(format!("Bearer {text}")).map_err(|_invalid| ApiKeyError)?;
        header.set_sensitive(true);
        Ok(Self(header))
    }

    /// The value of the header `Authorization`.
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(..)")
    }
}

// === Background ===
//
// Releases and withdrawals that continue after their caller has dropped its call.

/// The counter of a client's background tasks. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Background(Arc<watch::Sender<usize>>);

/// Counts one background task, from its creation until this value is dropped with the task.
struct Running(Background);

// === impl Background ===

impl Background {
    /// Runs `work` as a task of this runtime, and counts the task until it has ended.
    pub(crate) fn spawn(&self, runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
        self.0.send_modify(|count| *count += 1);
        let running = Running(self.clone());
        // The task's handle is dropped, because `done` waits for all tasks.
        drop(runtime.spawn(async move {
            let _running = running;
            work.await;
        }));
    }

    /// Waits until no background task is left.
    pub(crate) async fn done(&self) {
        let mut count = self.0.subscribe();
        // Waiting cannot fail: the sender lives as long as `self`.
        let _: Result<_, _> = count.wait_for(|count| *count == 0).await;
    }
}

// === impl Running ===

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_logged_once_after_some_seconds_and_so_is_its_end() {
        let outage = Outage::default();
        let gone = ClientError::Unreachable {
            url: "http://a".to_owned(),
            reason: "gone".to_owned(),
        };
        let failed = || outage.message(Instant::now(), Some(&gone));
        let answered = || outage.message(Instant::now(), None);
        assert_eq!(failed(), None);
        advance(Duration::from_secs(4)).await;
        assert_eq!((failed(), answered()), (None, None));
        assert_eq!(failed(), None);
        advance(LOGGED_AFTER).await;
        let text = "no gateway has answered for 5 s, trying again: no gateway at http://a: gone";
        assert_eq!(failed().as_deref(), Some(text));
        advance(LOGGED_AFTER).await;
        assert_eq!(failed(), None);
        assert_eq!(answered().as_deref(), Some("a gateway answers again"));
        assert_eq!((answered(), failed()), (None, None));
        // A gateway that is reached and refuses to serve is no outage.
        advance(LOGGED_AFTER).await;
        let busy = ClientError::Unavailable(Box::default());
        assert_eq!(outage.message(Instant::now(), Some(&busy)), None);
        // A request that got no answer for so long is the first of its outage.
        let sent_at = Instant::now();
        advance(LOGGED_AFTER).await;
        assert!(outage.message(sent_at, Some(&gone)).is_some());
    }

    #[test]
    fn keeps_the_base_path() {
        for (url, kept) in [
            ("http://h:1", "http://h:1"),
            ("http://h:1/", "http://h:1"),
            ("https://h/base/", "https://h/base"),
        ] {
            assert_eq!(Addresses::parse(url).unwrap().current().url, kept);
        }
    }

    #[test]
    fn passes_over_the_one_that_failed_and_comes_back_to_it() {
        let addresses = Addresses::parse("http://a, http://b").unwrap();
        assert_eq!(addresses.len(), 2);
        let a = addresses.current();
        addresses.move_on_from(a);
        let b = addresses.current();
        assert_eq!((a.url, b.url), ("http://a", "http://b"));
        // A call that failed at the first address a moment later must not make the client skip the second address.
        addresses.move_on_from(a);
        assert_eq!(addresses.current().url, "http://b");
        addresses.move_on_from(b);
        assert_eq!(addresses.current().url, "http://a");
    }

    #[test]
    fn refuses_what_is_no_address_and_repeats_no_password() {
        for bad in [
            "",
            "h:1",
            "ftp://h",
            "http://h/?q",
            "http://h/#f",
            "http://u:s3cret@h",
            "http://h,",
            "http://h,http://u:s3cret@h",
        ] {
            let error = Addresses::parse(bad).unwrap_err().to_string();
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
            ("http://[::1]:1,http://example.org", false),
            ("http://example.org", false),
            ("http://127.0.0.1.example.org", false),
        ] {
            let addresses = Addresses::parse(url).unwrap();
            assert_eq!(addresses.all_loopback(), loopback, "{url}");
        }
    }

    #[test]
    fn never_prints_itself() {
        let key = ApiKey::new("s3cret").unwrap();
        assert!(!format!("{key:?} {:?}", key.0).contains("s3cret"));
    }

    #[test]
    fn cannot_smuggle_a_header() {
        assert!(ApiKey::new("a\r\nX: y").is_err());
        assert!(ApiKey::new("").is_err());
    }
}
