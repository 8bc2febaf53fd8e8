//! The service over a scripted store, in process or behind a socket.

use latchgate::telemetry::metrics::Metrics;
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use latchgate::{
    audit::Audit,
    auth::{Gate, KeysFile, SessionSeal},
    clock::ManualClock,
    config::Config,
    engine::Engine,
    http::{AppState, EdgeService, InFlightRequests, serve, service},
    lifecycle::Lifecycle,
    store::AnyStore,
};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use super::scripted::{Script, Scripted};

/// A gateway over a scripted store.
pub(crate) struct Service {
    pub(crate) script: Arc<Script>,
    pub(crate) lifecycle: Lifecycle,
    metrics: Metrics,
    config: Arc<Config>,
    pub(crate) edge: EdgeService,
}

/// An answer, whole.
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// A token that could be one.
pub(crate) const TOKEN: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
/// The header that carries it.
pub(crate) const WITH_TOKEN: &[(&str, &str)] = &[("lock-token", TOKEN)];
/// The header of a JSON body.
pub(crate) const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// The wall time of every service at its start.
fn noon() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(498_660)
}

// === impl Service ===

impl Service {
    pub(crate) fn start() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        let script = Arc::new(Script::default());
        let store = Scripted(Arc::clone(&script));
        Self {
            script,
            ..Self::over(store, config)
        }
    }

    /// A gateway over any store, which follows no script.
    pub(crate) fn over(store: impl Into<AnyStore>, config: Config) -> Self {
        Self::over_behind(store, config, Gate::open())
    }

    /// A gateway over any store, for those whom a gate lets in.
    pub(crate) fn over_behind(store: impl Into<AnyStore>, config: Config, gate: Gate) -> Self {
        Self::audited(store, config, gate, Audit::none())
    }

    /// A gateway over any store, for those whom a gate lets in, with an audit log.
    pub(crate) fn audited(
        store: impl Into<AnyStore>,
        config: Config,
        gate: Gate,
        audit: Audit,
    ) -> Self {
        let lifecycle = Lifecycle::new();
        let metrics = Metrics::default();
        let engine = Engine::start(store, lifecycle.clone(), &config.limits, metrics.clone());
        let clock = Arc::new(ManualClock::at(noon()));
        let config = Arc::new(config);
        let mut gateway = AppState::new(engine, Arc::clone(&config), clock);
        (gateway.gate, gateway.audit) = (gate, audit);
        Self {
            script: Arc::default(),
            lifecycle,
            metrics,
            config,
            edge: service(gateway),
        }
    }

    /// A gateway over a scripted store, for those who have a key of this file.
    pub(crate) fn with_keys(keys: &str) -> Self {
        Self::with_gate(Config::default(), keys).0
    }

    /// A gateway over any store that these keys are let in to.
    pub(crate) fn over_with_keys(store: impl Into<AnyStore>, keys: &str) -> Self {
        let config = Config::default();
        let (gate, _) = gate(&config, keys);
        Self::over_behind(store, config, gate)
    }

    /// A gateway with keys, and its gate and its clock.
    pub(crate) fn with_gate(config: Config, keys: &str) -> (Self, Gate, Arc<ManualClock>) {
        let (gate, clock) = gate(&config, keys);
        let script = Arc::new(Script::default());
        let store = Scripted(Arc::clone(&script));
        let service = Self {
            script,
            ..Self::over_behind(store, config, gate.clone())
        };
        (service, gate, clock)
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> ApiResponse {
        ApiResponse::read(self.unread(request).await).await
    }

    /// An answer of which nothing has been read but its head.
    pub(crate) async fn unread(&self, mut request: Request<Body>) -> http::Response<Body> {
        address(&mut request);
        self.edge.clone().oneshot(request).await.unwrap()
    }

    /// Sends a request whose answer is not read whole.
    pub(crate) async fn stream(&self, mut request: Request<Body>) -> Body {
        address(&mut request);
        let answer = self.edge.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.into_body()
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> ApiResponse {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body.into()).unwrap()).await
    }

    pub(crate) async fn get(&self, target: &str) -> ApiResponse {
        self.ask(Method::GET, target, &[], Body::empty()).await
    }

    /// Acquires `a` with a JSON body.
    pub(crate) async fn acquire(&self, body: &str) -> ApiResponse {
        self.ask(Method::POST, "/locks/a", JSON, body.to_owned())
            .await
    }

    /// Serves on a socket, and says where.
    pub(crate) async fn listen(&self) -> SocketAddr {
        self.listen_on(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn listen_on(&self, listener: TcpListener) -> SocketAddr {
        let address = listener.local_addr().unwrap();
        let (edge, config) = (self.edge.clone(), Arc::clone(&self.config));
        let (lifecycle, metrics) = (self.lifecycle.clone(), self.metrics.clone());
        self.lifecycle.spawn(async move {
            let (http, in_flight) = (&config.http, InFlightRequests::new());
            serve(listener, edge, http, None, &metrics, in_flight, &lifecycle).await;
        });
        address
    }

    /// A connection to the service.
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.listen().await).await.unwrap()
    }
}

// === impl ApiResponse ===

impl ApiResponse {
    pub(crate) async fn read(response: http::Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The body without what differs from run to run.
    pub(crate) fn redacted(&self) -> Value {
        let mut body = self.json();
        for field in ["token", "request_id", "retry_after_ms"] {
            if let Some(value) = body.get_mut(field) {
                *value = Value::from(format!("[{field}]"));
            }
        }
        body
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// The status and the code of a problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/problem+json");
        let body = self.json();
        assert_eq!(body["status"], self.status.as_u16());
        assert_eq!(body["request_id"], self.header("x-request-id"));
        let code = body["code"].as_str().unwrap().to_owned();
        assert_eq!(body["type"], format!("/problems/{code}"));
        (self.status.as_u16(), code)
    }

    /// What is wrong, as `field: reason` in the order in which it is answered.
    pub(crate) fn errors(&self) -> Vec<String> {
        assert_eq!(
            self.problem(),
            (400, "invalid-request".to_owned()),
            "{}",
            self.body
        );
        let body = self.json();
        let errors = body["errors"].as_array().unwrap().iter();
        errors
            .map(|error| {
                let text = |key: &str| error[key].as_str().unwrap().to_owned();
                format!("{}: {}", text("field"), text("reason"))
            })
            .collect()
    }
}

/// Names the host, as every client does, unless the test has named one.
fn address(request: &mut Request<Body>) {
    let headers = request.headers_mut();
    let host = http::HeaderValue::from_static("localhost");
    headers.entry(http::header::HOST).or_insert(host);
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The gate for these keys, and its clock.
fn gate(config: &Config, keys: &str) -> (Gate, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(noon()));
    let ring = KeysFile::new("keys.toml").parse(keys).unwrap();
    let seal = SessionSeal::open_configured(&config.auth).unwrap();
    let gate = Gate::guarded(ring, seal, &config.auth, clock.clone());
    (gate, clock)
}
