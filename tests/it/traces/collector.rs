//! A collector for tests: it answers as the test chooses, and keeps the spans that it gets.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use latchgate::tls::{IdentityFiles, PemFile};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::Span,
};
use prost::Message;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::time::Instant;

use crate::support::{
    Files,
    gateway::{Gateway, Setup},
};

/// The longest time that any awaited event may take, also on a machine that does other work.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A collector on a free port.
pub(super) struct Collector {
    pub(super) endpoint: String,
    state: Arc<CollectorState>,
}

#[derive(Default)]
struct CollectorState {
    requests: Mutex<Vec<ExportTraceServiceRequest>>,
    heads: Mutex<Vec<String>>,
    /// The status of the answers; 0: no answer.
    status: AtomicU16,
    asked: AtomicUsize,
}

// === impl Collector ===

impl Collector {
    pub(super) fn start() -> Self {
        Self::answering(200)
    }

    pub(super) fn answering(status: u16) -> Self {
        Self::on("http", status, CollectorState::serve)
    }

    /// A collector with TLS.
    pub(super) fn certified(files: &Files) -> Self {
        let identity = IdentityFiles {
            certificate: PemFile::new("the test", &files.certificate),
            key: PemFile::new("the test", &files.key),
        };
        let identity = identity.read().unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(identity.chain, identity.key)
            .unwrap();
        let config = Arc::new(config);
        Self::on("https", 200, move |keeps, connection| {
            let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
            keeps.serve(StreamOwned::new(tls, connection));
        })
    }

    fn on(
        scheme: &str,
        status: u16,
        serve: impl Fn(&CollectorState, TcpStream) + Clone + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("{scheme}://{}", listener.local_addr().unwrap());
        let state = Arc::new(CollectorState::default());
        state.status.store(status, Ordering::SeqCst);
        let keeps = Arc::clone(&state);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (keeps, serve) = (Arc::clone(&keeps), serve.clone());
                thread::spawn(move || serve(&keeps, connection.unwrap()));
            }
        });
        Self { endpoint, state }
    }

    /// The setup of a gateway that sends its spans to this collector.
    pub(super) fn setup(&self) -> Setup {
        Setup::default().with("LATCHGATE_TRACE_ENDPOINT", &self.endpoint)
    }

    /// A gateway that sends its spans to this collector.
    pub(super) fn gateway(&self) -> Gateway {
        Gateway::start_with(self.setup())
    }

    pub(super) fn answer(&self, status: u16) {
        self.state.status.store(status, Ordering::SeqCst);
    }

    /// How many requests with spans the collector got, whatever its answers.
    pub(super) fn asked(&self) -> usize {
        self.state.asked.load(Ordering::SeqCst)
    }

    /// Every span that the collector accepted.
    pub(super) fn spans(&self) -> Vec<Span> {
        let requests = self.state.requests.lock().unwrap();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        let scopes = resources.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    /// Waits for the span with this name.
    pub(super) fn span(&self, name: &str) -> Span {
        self.until(name, |spans| {
            spans.iter().find(|span| span.name == name).cloned()
        })
    }

    /// Waits until the spans satisfy `look`.
    pub(super) fn until<T>(&self, what: &str, look: impl Fn(&[Span]) -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let spans = self.spans();
            if let Some(found) = look(&spans) {
                return found;
            }
            assert!(Instant::now() < deadline, "not yet: {what}\n{spans:#?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The resource of the first accepted spans.
    pub(super) fn resource(&self) -> Resource {
        let requests = self.state.requests.lock().unwrap();
        requests[0].resource_spans[0].resource.clone().unwrap()
    }

    /// The heads and contents of all requests as text, to search in.
    pub(super) fn everything(&self) -> String {
        let requests = format!("{:?}", self.state.requests.lock().unwrap());
        self.state.heads.lock().unwrap().concat() + &requests
    }
}

// === impl CollectorState ===

impl CollectorState {
    fn serve(&self, connection: impl Read + Write) {
        let mut reader = BufReader::new(connection);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head).unwrap_or(0) == 0 {
                    return;
                }
            }
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.parse().unwrap())
            });
            let mut body = vec![0; length.unwrap()];
            if reader.read_exact(&mut body).is_err() {
                return;
            }
            assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
            assert!(head.contains("application/x-protobuf"), "{head}");
            self.asked.fetch_add(1, Ordering::SeqCst);
            let status = self.status.load(Ordering::SeqCst);
            if status == 0 {
                // The collector reads on, and finds the end of the connection.
                continue;
            }
            if status == 200 {
                let request = ExportTraceServiceRequest::decode(&*body).unwrap();
                self.requests.lock().unwrap().push(request);
                self.heads.lock().unwrap().push(head);
            }
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
            if reader.get_mut().write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// The value of an attribute, as text.
pub(super) fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    Some(match found.value.clone()?.value? {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(flag) => flag.to_string(),
        other => panic!("{name} is {other:?}"),
    })
}
