//! Sends queued spans to the collector.

use std::{
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
    tls::{TlsError, cause, no_tls},
};

use super::encode::{self, Record, Sender};

/// The maximum number of spans in one request to the collector.
const BATCH: usize = 512;
/// How long the first span of a batch waits for further spans, which are then sent in the same request.
const GATHERING: Duration = Duration::from_secs(1);
/// The first pause after the collector failed. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two attempts, short enough to notice soon that the collector works again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The minimum time between two log warnings that spans cannot be sent.
const NOTICE: Duration = Duration::from_mins(1);

/// Sends the queued spans to the collector in batches.
pub(super) struct Exporter {
    http: reqwest::Client,
    url: Url,
    sender: Sender,
    lost: Arc<AtomicU64>,
    work: Mutex<Work>,
}

struct Work {
    spans: mpsc::Receiver<Record>,
    /// The spans that were taken from the queue, and that the collector has not accepted yet.
    batch: Vec<Record>,
    noticed: Option<Instant>,
    is_failing: bool,
}

/// Why the collector did not accept a batch of spans.
struct Failure {
    reason: String,
    /// Whether the collector refused these spans, so that sending them again is useless.
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
            // Redirects are not followed: they would carry the headers, which may be secret, to a host that no setting
            // names.
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
                // The id is not a secret, so the id 0 does no harm if the system has no random bytes.
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

    /// Sends spans until the queue is closed. If the future is dropped, no span is lost: the current batch stays, and
    /// [`Exporter::send_rest`] sends it.
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

    /// Sends the spans that are left in the batch and the queue, until the first failure.
    pub(super) async fn send_rest(&self) {
        let mut work = self.work.lock().await;
        while work.take() {
            if self.send(&mut work).await.is_err() {
                return;
            }
        }
    }

    /// Sends the batch. After a failure the batch is kept, unless the collector refused its spans.
    async fn send(&self, work: &mut Work) -> Result<(), ()> {
        let Err(failure) = self.post(&work.batch).await else {
            work.batch.clear();
            if std::mem::take(&mut work.is_failing) {
                info!("traces are sent to the collector again");
            }
            if self.lost.load(Ordering::Relaxed) > 0 && work.may_notice() {
                let lost = self.lost.swap(0, Ordering::Relaxed);
                warn!(
                    lost,
                    "more spans were recorded than could be sent to the collector"
                );
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
                lost, "traces cannot be sent to the collector"
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
            Err(error) => (cause(&error, "trace.ca_file"), false),
            Ok(response) if response.status().is_success() => return Ok(()),
            Ok(response) => {
                let status = response.status();
                // Only the statuses that the specification of OTLP calls retryable.
                let may_pass = matches!(status.as_u16(), 429 | 502 | 503 | 504);
                (format!("the collector answered {status}"), !may_pass)
            }
        };
        Err(Failure { reason, is_refusal })
    }
}

// === impl Work ===

impl Work {
    /// Waits for spans, and then a moment for more spans. Returns `false` if the queue is closed and empty.
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

    /// Whether a warning about the collector may be logged now. If so, records the time of the warning.
    fn may_notice(&mut self) -> bool {
        let may = self.noticed.is_none_or(|at| at.elapsed() >= NOTICE);
        if may {
            self.noticed = Some(Instant::now());
        }
        may
    }

    /// Fills the batch with queued spans, without waiting. Returns `false` if the batch is empty.
    fn take(&mut self) -> bool {
        while self.batch.len() < BATCH
            && let Ok(record) = self.spans.try_recv()
        {
            self.batch.push(record);
        }
        !self.batch.is_empty()
    }
}

/// If tracing is on, checks the settings and the files that are needed to send spans.
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

// === Trace error ===

/// Why tracing cannot be started: a setting or a file is wrong. A collector that cannot be reached is no such error.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The address of the collector is invalid.
    #[error(transparent)]
    Endpoint(#[from] Invalid),
    /// The file with the headers cannot be read.
    #[error("cannot read trace.headers_file {path}: {error}")]
    HeadersFile {
        /// The path of the file with the headers.
        path: String,
        /// Why the file with the headers cannot be read.
        error: FileError,
    },
    /// A line of the headers file is not a header. The error does not repeat the line, which may contain a secret.
    #[error("line {line} of trace.headers_file {path} is no header; expected Name: value")]
    Header {
        /// The path of the file with the headers.
        path: String,
        /// The number of the line in the file, from 1.
        line: usize,
    },
    /// TLS cannot be set up: a file cannot be used, or the system has no root certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The HTTP client could not be built.
    #[error("cannot set up HTTP to the collector: {0}")]
    Http(#[from] reqwest::Error),
}

// === Headers ===
//
// The headers that the collector requires, from a file.

/// The maximum length of the headers file: a hundred headers of the maximum length that servers accept.
const MAX_LEN: u64 = 1024 * 1024;

/// Reads the headers for the collector from a file, one per line. Skips empty lines and lines that begin with `#`.
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
