//! Sends spans to the collector.

use std::{
    error::Error,
    iter::successors,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use reqwest::{
    Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use tokio::{
    sync::{Mutex, mpsc},
    time::{Instant, sleep, timeout_at},
};
use tracing::{info, warn};

use crate::{
    bounded_file::{self, FileError},
    config::{HostPort, Invalid, TraceConfig},
    tls::{TlsError, distrust, no_tls},
};

use super::encode::{self, Record, Sender};

/// How many spans are sent together, at most.
const BATCH: usize = 512;
/// How long a span waits for others.
const GATHERING: Duration = Duration::from_secs(1);
/// The first pause after a failure; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause: soon enough for a collector that is back.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often at most it is logged that the collector cannot be told.
const NOTICE: Duration = Duration::from_mins(1);

/// Sends spans, some at a time.
pub(super) struct Exporter {
    http: reqwest::Client,
    url: Url,
    sender: Sender,
    lost: Arc<AtomicU64>,
    work: Mutex<Work>,
}

struct Work {
    spans: mpsc::Receiver<Record>,
    /// Taken, and not known to have arrived.
    batch: Vec<Record>,
    noticed: Option<Instant>,
    is_failing: bool,
}

/// Why spans did not arrive.
struct Failure {
    reason: String,
    /// Whether the collector does not want these spans, so that trying again does not help.
    is_refusal: bool,
}

// === impl Exporter ===

impl Exporter {
    pub(super) fn new(
        config: &TraceConfig,
        spans: mpsc::Receiver<Record>,
        lost: Arc<AtomicU64>,
    ) -> Result<Self, TraceError> {
        let url = config.url()?;
        let (headers, tls) = read_files(config, &url)?;
        let timeout = config.timeout_ms.duration();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(timeout)
            .timeout(timeout)
            .default_headers(headers)
            .tls_backend_preconfigured(tls)
            // A redirect would carry the headers to a host that nobody named.
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .user_agent(concat!("latchgate/", env!("CARGO_PKG_VERSION")));
        let host = url.host_str().map(str::parse::<HostPort>);
        if host.is_some_and(|host| host.is_ok_and(|it| it.host.is_loopback())) {
            builder = builder.no_proxy();
        }
        Ok(Self {
            http: builder.build()?,
            url,
            sender: Sender {
                service_name: config.service_name.clone(),
                // It protects nothing.
                instance: format!("{:016x}", getrandom::u64().unwrap_or_default()),
            },
            lost,
            work: Mutex::new(Work {
                spans,
                batch: Vec::with_capacity(BATCH),
                noticed: None,
                is_failing: false,
            }),
        })
    }

    /// Sends spans for as long as there are any to come. Dropped, it has lost none: what it was at is
    /// sent by [`Exporter::send_rest`].
    pub(super) async fn send_all(&self) {
        let mut work = self.work.lock().await;
        let mut pause = FIRST_PAUSE;
        while work.gather().await {
            if self.send(&mut work).await.is_ok() {
                pause = FIRST_PAUSE;
            } else {
                sleep(pause).await;
                pause = LONGEST_PAUSE.min(pause * 2);
            }
        }
    }

    /// Sends what there is, until it is refused for the first time.
    pub(super) async fn send_rest(&self) {
        let mut work = self.work.lock().await;
        while work.take() {
            if self.send(&mut work).await.is_err() {
                return;
            }
        }
    }

    /// Sends a batch, which is kept if trying again may help.
    async fn send(&self, work: &mut Work) -> Result<(), ()> {
        let Err(failure) = self.post(&work.batch).await else {
            work.batch.clear();
            if std::mem::take(&mut work.is_failing) {
                info!("the collector is told of traces again");
            }
            if self.lost.load(Ordering::Relaxed) > 0 && work.may_notice() {
                let lost = self.lost.swap(0, Ordering::Relaxed);
                warn!(lost, "more was traced than the collector could be told of");
            }
            return Ok(());
        };
        if failure.is_refusal {
            let refused = work.batch.len() as u64;
            self.lost.fetch_add(refused, Ordering::Relaxed);
            work.batch.clear();
        }
        work.is_failing = true;
        if work.may_notice() {
            let lost = self.lost.swap(0, Ordering::Relaxed);
            warn!(
                error = failure.reason,
                lost, "the collector cannot be told of traces"
            );
        }
        Err(())
    }

    async fn post(&self, records: &[Record]) -> Result<(), Failure> {
        let sent = self
            .http
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(encode::request(&self.sender, records))
            .send()
            .await;
        let (reason, is_refusal) = match sent {
            Err(error) => (cause(&error), false),
            Ok(response) if response.status().is_success() => return Ok(()),
            Ok(response) => {
                let status = response.status();
                // As the specification of OTLP lists them.
                let may_pass = matches!(status.as_u16(), 429 | 502 | 503 | 504);
                (format!("the collector answered {status}"), !may_pass)
            }
        };
        Err(Failure { reason, is_refusal })
    }
}

// === impl Work ===

impl Work {
    /// Waits for spans, and a little for more; `false` if none will come.
    async fn gather(&mut self) -> bool {
        if self.batch.is_empty() && self.spans.recv_many(&mut self.batch, BATCH).await == 0 {
            return false;
        }
        let over = Instant::now() + GATHERING;
        while self.batch.len() < BATCH {
            let room = BATCH - self.batch.len();
            let more = timeout_at(over, self.spans.recv_many(&mut self.batch, room)).await;
            if !matches!(more, Ok(1..)) {
                break;
            }
        }
        true
    }

    /// Whether something may be logged now; then it is.
    fn may_notice(&mut self) -> bool {
        let may = self.noticed.is_none_or(|at| at.elapsed() >= NOTICE);
        if may {
            self.noticed = Some(Instant::now());
        }
        may
    }

    /// Takes what is there; `false` if there is nothing.
    fn take(&mut self) -> bool {
        while self.batch.len() < BATCH
            && let Ok(record) = self.spans.try_recv()
        {
            self.batch.push(record);
        }
        !self.batch.is_empty()
    }
}

/// Finds out whether there is everything to send spans with, if they are to be sent. It reads files.
pub fn check_trace(config: &TraceConfig) -> Result<(), TraceError> {
    if config.is_sent() {
        read_files(config, &config.url()?)?;
    }
    Ok(())
}

fn read_files(
    config: &TraceConfig,
    url: &Url,
) -> Result<(HeaderMap, rustls::ClientConfig), TraceError> {
    let headers = match config.headers_file.as_str() {
        "" => HeaderMap::new(),
        path => read_headers(path)?,
    };
    let tls = match url.scheme() {
        "https" => config.tls_files().config()?,
        _ => no_tls()?,
    };
    Ok((headers, tls))
}

/// What is behind an error.
fn cause(error: &reqwest::Error) -> String {
    if let Some(why) = distrust(error, "trace.ca_file") {
        return format!("its certificate is not believed: {why}");
    }
    let causes = successors(Some(error as &dyn Error), |&error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

// === Trace error ===

/// Why no traces can be sent, whether or not the collector is there.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The address of the collector is none.
    #[error(transparent)]
    Endpoint(#[from] Invalid),
    /// The headers cannot be read.
    #[error("cannot read trace.headers_file {path}: {error}")]
    HeadersFile {
        /// The file.
        path: String,
        /// Why.
        error: FileError,
    },
    /// A line of the headers is none. It is not repeated, because it may hold a secret.
    #[error("line {line} of trace.headers_file {path} is no header; expected Name: value")]
    Header {
        /// The file.
        path: String,
        /// The line, counted from 1.
        line: usize,
    },
    /// No TLS: a file cannot be used, or the system has no root certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The HTTP client could not be built.
    #[error("cannot set up HTTP to the collector: {0}")]
    Http(#[from] reqwest::Error),
}

// === Headers ===
//
// The headers that a collector wants to see.

/// A hundred headers, each as long as a server takes it at most.
const MAX_LEN: u64 = 1024 * 1024;

/// Reads them from a file: one per line; empty lines and those that begin with `#` are left out.
fn read_headers(path: &str) -> Result<HeaderMap, TraceError> {
    let text = bounded_file::read_text(Path::new(path), MAX_LEN).map_err(|error| {
        TraceError::HeadersFile {
            path: path.to_owned(),
            error,
        }
    })?;
    let mut headers = HeaderMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = header(line).ok_or_else(|| TraceError::Header {
            path: path.to_owned(),
            line: number + 1,
        })?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let mut value = HeaderValue::try_from(value.trim()).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::try_from(name.trim()).ok()?, value))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_line_is_a_header_and_a_wrong_one_is_not_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("headers");
        let path = path.to_str().unwrap();
        fs::write(path, "# for the collector\n\nAuthorization: Bearer a:b\n").unwrap();
        let headers = read_headers(path).unwrap();
        assert_eq!(headers["authorization"], "Bearer a:b");
        fs::write(path, "\nSECRET\n").unwrap();
        let error = read_headers(path).unwrap_err().to_string();
        assert!(
            error.contains("line 2") && !error.contains("SECRET"),
            "{error}"
        );
    }
}
