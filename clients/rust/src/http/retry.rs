//! Decides whether, when and to which address a request is sent again.

use std::{error::Error, time::Duration};

use reqwest::{
    Method, Response, StatusCode,
    header::{LOCATION, RETRY_AFTER},
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    Client, ClientError, Problem,
    lock::{LockName, renewal::random_fraction},
    tls::{distrust, refused_by_server, speaks_no_tls},
};

/// How long before the deadline the last copy is sent, if the gateway requests a pause beyond the deadline.
const LAST_COPY: Duration = Duration::from_secs(1);

/// The retry state of one call: its deadline, its limits and the copies of its request that have failed.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says whether one kind of answer leads to another request"
)]
pub(crate) struct Retry {
    deadline: Instant,
    /// How long the answer to one copy of the request may take.
    request_timeout: Duration,
    /// The maximum number of copies of the request; `None`: no limit except the deadline.
    most: Option<u32>,
    /// Whether the answer to the last copy of the request may arrive after the deadline.
    may_end_late: bool,
    /// The number of gateway addresses that are tried before a pause.
    addresses: u32,
    failed: u32,
    /// Whether the gateway requested a pause beyond the deadline, so that the next copy of the request is the last.
    was_put_off: bool,
    /// Whether a copy of the request may have been carried out although its answer was lost.
    pub(crate) in_doubt: bool,
    /// Whether no further copy is sent after a copy that may have been carried out.
    pub(crate) ends_in_doubt: bool,
}

// === impl Retry ===

impl Retry {
    /// The retry state of a new call of this client, with this deadline.
    pub(crate) fn until(client: &Client, deadline: Instant) -> Self {
        let addresses = u32::try_from(client.addresses.len()).unwrap_or(u32::MAX);
        Self {
            deadline,
            request_timeout: client.options.request_timeout,
            most: Some(client.options.attempts.saturating_mul(addresses)),
            may_end_late: false,
            addresses,
            failed: 0,
            was_put_off: false,
            in_doubt: false,
            ends_in_doubt: false,
        }
    }

    /// Removes the limit on the number of copies: the request is repeated until its deadline.
    pub(crate) fn persist_until(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.most = None;
    }

    /// Removes the limit on the number of copies, and allows a last copy at the deadline itself. Used for an acquire
    /// that waits.
    pub(crate) fn persist_to_the_end(&mut self, deadline: Instant) {
        self.persist_until(deadline);
        self.may_end_late = true;
    }

    /// How long the answer to the next copy of the request may take.
    pub(crate) fn time_out(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.request_timeout.min(left)
    }

    /// Resets the count of failures after an answer. `in_doubt`: an earlier copy of the request may still have been
    /// carried out.
    pub(crate) fn answered(&mut self, in_doubt: bool) {
        self.failed = 0;
        self.in_doubt = in_doubt;
    }

    /// Pauses before the next copy of the request. Returns the error of the call if no further copy may be sent.
    pub(crate) async fn after(&mut self, failure: RetryableFailure) -> Result<(), ClientError> {
        self.failed = self.failed.saturating_add(1);
        self.in_doubt |= failure.in_doubt;
        // After a lasting failure of an address, further copies are sent only to the other addresses.
        let used_up = self.most.is_some_and(|most| {
            self.failed >= most || (failure.is_lasting && self.failed >= self.addresses)
        });
        let is_last = used_up || (self.ends_in_doubt && failure.in_doubt);
        match self.pause(failure.requested_pause) {
            Some(pause) if !is_last => sleep(pause).await,
            _ => return Err(failure.after(self.in_doubt)),
        }
        Ok(())
    }

    /// If the request may be repeated after this error, pauses before the next copy. Otherwise returns the error.
    pub(crate) async fn after_error(&mut self, error: ClientError) -> Result<(), ClientError> {
        match error {
            ClientError::Unreachable { .. }
            | ClientError::Unavailable(_)
            | ClientError::OutcomeUnknown { .. } => {
                // The pause that the gateway requested is ignored here, because the lease could end during it.
                self.after(RetryableFailure::nothing(error)).await
            }
            error => Err(error),
        }
    }

    /// The pause before the next copy of the request; `None` if no time is left for a copy. There is no pause before a
    /// gateway address that was not tried since the last pause.
    fn pause(&mut self, requested: Option<Duration>) -> Option<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let in_round = !self.failed.is_multiple_of(self.addresses);
        let own = if in_round {
            Duration::ZERO
        } else {
            pause(self.failed / self.addresses)
        };
        let requested = requested
            .filter(|_| !in_round)
            .map(|it| it.min(LONGEST_PAUSE));
        // The pause is lengthened at random, so that several clients do not come back at the same time.
        let spread = |requested: Duration| requested.mul_f64(1.0 + random_fraction() / 2.0);
        let pause = own.max(requested.map_or(Duration::ZERO, spread));
        if self.may_end_late {
            return (!left.is_zero()).then_some(pause.min(left));
        }
        if pause < left {
            return Some(pause);
        }
        // If the gateway requests a pause that ends after the deadline, the client sends one more copy shortly before
        // the deadline.
        let requested = requested.filter(|_| !self.was_put_off && !left.is_zero())?;
        self.was_put_off = true;
        Some(if requested < left {
            (requested + left) / 2
        } else {
            left.saturating_sub(LAST_COPY.min(left / 2))
        })
    }
}

// === Backoff ===
//
// Pauses between the copies of a request.

/// The upper bound of the first pause. The bound doubles with every copy of the request.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The largest upper bound of a pause.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The longest pause that a gateway may request. A longer pause is cut to this.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// A random pause before copy number `copy` of a request (the first repeated copy is 1), so that not all clients come
/// back at the same moment after an outage of the gateway.
pub(crate) fn pause(copy: u32) -> Duration {
    longest(copy).mul_f64(random_fraction())
}

fn longest(copy: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(copy.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(doubled).min(MAX_PAUSE)
}

// === Retryable failure ===

/// The failure of one copy of a request, after which a further copy may succeed.
pub(crate) struct RetryableFailure {
    pub(crate) error: ClientError,
    /// Whether this copy of the request may have been carried out.
    pub(crate) in_doubt: bool,
    /// The pause before the next copy that the gateway requested, if any.
    pub(crate) requested_pause: Option<Duration>,
    /// Whether a further copy to the same gateway address would fail in the same way.
    pub(crate) is_lasting: bool,
}

// === impl RetryableFailure ===

impl From<ClientError> for RetryableFailure {
    fn from(error: ClientError) -> Self {
        Self::nothing(error)
    }
}

impl RetryableFailure {
    /// The failure that an answer reports, if the same request may succeed a moment later; `clients/conformance.md`
    /// says for which statuses. `None`: the answer is final.
    pub(crate) fn of_answer(answer: &CallResponse) -> Option<Self> {
        let status = answer.status;
        let is_busy = matches!(
            status,
            StatusCode::REQUEST_TIMEOUT
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE
        );
        if !is_busy && !status.is_server_error() {
            return None;
        }
        let by_proxy = || format!("a proxy answered with status {}", status.as_u16());
        let problem = answer.problem();
        let requested_pause = problem.as_ref().and_then(Problem::retry_after);
        let failure = match problem {
            // A further copy is useless: the counter of fencing tokens stays exhausted.
            Some(problem) if problem.code == "fence-exhausted" => return None,
            Some(problem) if is_busy => Self::nothing(ClientError::Unavailable(Box::new(problem))),
            Some(problem) if status == StatusCode::GATEWAY_TIMEOUT => {
                Self::indeterminate(problem.to_string(), Some(problem))
            }
            // A further copy is useless: a bug in the gateway or foreign data causes the same answer again.
            Some(_) => return None,
            // A proxy that limits the rate has not passed the request on to a gateway.
            None if status == StatusCode::TOO_MANY_REQUESTS => {
                let problem = Problem::of_proxy(status.as_u16(), "rate-limited", by_proxy());
                Self::nothing(ClientError::Unavailable(Box::new(problem)))
            }
            // Any other proxy may have passed the request on to a gateway.
            None => Self::indeterminate(by_proxy(), None),
        };
        Some(Self {
            requested_pause: requested_pause.or(answer.retry_after),
            ..failure
        })
    }

    /// Whether an answer with a success status lacks its JSON document: either the answer was cut off, or a proxy wrote
    /// it.
    pub(crate) fn is_cut_off(method: &Method, answer: &CallResponse) -> bool {
        let status = answer.status;
        if !status.is_success() || status == StatusCode::NO_CONTENT {
            return false;
        }
        match serde_json::from_str::<Value>(&answer.body) {
            // The success of a release must have no content (204) or have `results`; any other does not prove that the
            // lease has ended.
            Ok(document) => method == Method::DELETE && document.get("results").is_none(),
            Err(_) => true,
        }
    }

    /// The failure of a copy of a request that got no answer. `looks`: whether the request only reads.
    pub(crate) fn of_error(error: &reqwest::Error, url: &str, looks: bool) -> Self {
        let reason = cause(error);
        if mistrust(error).is_some() {
            return Self {
                is_lasting: true,
                ..Self::unreachable(url, reason)
            };
        }
        // The request was not sent, or the server closed the connection before it read the request.
        if error.is_connect() || error.is_builder() || is_canceled(error) {
            Self::unreachable(url, reason)
        } else if error.is_timeout() {
            Self::lost("no answer in time".to_owned(), url, looks)
        } else {
            Self::lost(reason, url, looks)
        }
    }

    /// The failure of a copy whose answer was lost: the copy may have been carried out, unless the request only reads.
    pub(crate) fn lost(reason: String, url: &str, looks: bool) -> Self {
        if looks {
            Self::unreachable(url, reason)
        } else {
            Self::indeterminate(reason, None)
        }
    }

    /// The failure of a copy of a request that reached no gateway.
    pub(crate) fn unreachable(url: &str, reason: String) -> Self {
        let url = url.to_owned();
        Self::nothing(ClientError::Unreachable { url, reason })
    }

    /// The failure of a copy of a request that may have been carried out.
    pub(crate) fn indeterminate(reason: String, problem: Option<Problem>) -> Self {
        Self {
            in_doubt: true,
            ..Self::nothing(ClientError::unknown(reason, problem.map(Box::new)))
        }
    }

    /// Turns a failure into the failure of a request that only reads: even if the answer is lost, a read has no effect.
    pub(crate) fn of_look(self, url: &str) -> Self {
        let failure = match self.error {
            ClientError::OutcomeUnknown { reason, problem } => match problem {
                Some(problem) => Self::nothing(ClientError::Unavailable(problem)),
                None => Self::unreachable(url, reason),
            },
            error => Self::nothing(error),
        };
        Self {
            requested_pause: self.requested_pause,
            ..failure
        }
    }

    /// The failure of a copy of a request that certainly had no effect.
    pub(crate) fn nothing(error: ClientError) -> Self {
        Self {
            error,
            in_doubt: false,
            requested_pause: None,
            is_lasting: false,
        }
    }

    /// Whether the copy of the request reached a gateway, or a proxy in front of one.
    pub(crate) fn arrived(&self) -> bool {
        !matches!(self.error, ClientError::Unreachable { .. })
    }

    /// The error of the call whose last copy failed in this way. `in_doubt`: an earlier copy may have been carried out,
    /// so the outcome is unknown, whatever this failure says.
    pub(crate) fn after(self, in_doubt: bool) -> ClientError {
        match self.error {
            error if !in_doubt || self.in_doubt => error,
            error => {
                let problem = error.problem().cloned().map(Box::new);
                ClientError::after_unanswered(error, problem)
            }
        }
    }
}

// === Send error ===
//
// Why one copy of a request was not sent, or got no answer.

/// Why the gateway has not answered one copy of a request.
pub(crate) enum SendError {
    /// The copy failed.
    Request(reqwest::Error),
    /// The client has no key to send the copy with. The gateway's answer to the exchange is the answer to the call.
    Refused(Box<CallResponse>),
    /// The client has no key to send the copy with, and may have one a moment later.
    NoKey(RetryableFailure),
}

// === impl SendError ===

impl SendError {
    /// The result of the copy. `looks`: whether the request only reads.
    pub(crate) fn result(self, url: &str, looks: bool) -> Result<CallResponse, RetryableFailure> {
        match self {
            Self::Request(error) => Err(RetryableFailure::of_error(&error, url, looks)),
            Self::Refused(answer) => Ok(*answer),
            Self::NoKey(failure) => Err(failure),
        }
    }
}

// === Answer ===
//
// The answer to a call.

/// The final answer to a call: a further copy of its request would get the same answer.
pub(crate) struct CallResponse {
    pub(crate) url: String,
    pub(crate) status: StatusCode,
    pub(crate) body: String,
    /// The pause before the next copy that the answer requests (`Retry-After`), if any.
    retry_after: Option<Duration>,
    /// The target of a redirect, without its password and its query, which may be secrets.
    location: Option<String>,
    /// When the answered copy of the request was sent.
    pub(crate) sent_at: Instant,
    /// When the answer had arrived completely.
    pub(crate) received_at: Instant,
    /// Whether an earlier copy of the request may also have been carried out.
    pub(crate) in_doubt: bool,
}

// === impl CallResponse ===

impl CallResponse {
    /// Makes the answer of the gateway at `url` from its response head and its complete body.
    pub(crate) fn new(url: &str, sent_at: Instant, response: &Response, body: Vec<u8>) -> Self {
        let header = |name| response.headers().get(name)?.to_str().ok();
        // `Retry-After` may also be a date, which this client ignores.
        let seconds = header(RETRY_AFTER).and_then(|text| text.parse().ok());
        let location = header(LOCATION).and_then(|to| response.url().join(to).ok());
        Self {
            url: url.to_owned(),
            status: response.status(),
            body: String::from_utf8(body).unwrap_or_default(),
            retry_after: seconds.map(Duration::from_secs),
            location: location
                .map(|to| format!("{}{}", to.origin().ascii_serialization(), to.path())),
            sent_at,
            received_at: Instant::now(),
            in_doubt: false,
        }
    }

    /// Makes an answer that the client gives itself, because it has no key with which to send the request.
    pub(crate) fn made(url: &str, status: StatusCode, body: String) -> Self {
        let now = Instant::now();
        Self {
            url: url.to_owned(),
            status,
            body,
            retry_after: None,
            location: None,
            sent_at: now,
            received_at: now,
            in_doubt: false,
        }
    }

    /// The problem document in the body, if the body is one.
    pub(crate) fn problem(&self) -> Option<Problem> {
        Problem::parse(&self.body)
    }

    /// If the answer describes another lock than `asked`: a sentence that says so. A proxy has then changed the path of
    /// the request.
    pub(crate) fn names_other(&self, asked: &LockName) -> Option<String> {
        let document = serde_json::from_str::<Value>(&self.body).ok()?;
        let name = document["name"].as_str()?;
        let is_other = name != asked.as_str();
        is_other.then(|| {
            format!(
                "the answer is about the lock {name:?}, not {:?}: a proxy has changed the path of the request",
                asked.as_str()
            )
        })
    }

    /// The error of the call for this answer, whose status is not a success.
    pub(crate) fn refusal(mut self) -> ClientError {
        let Some(problem) = self.problem().map(Box::new) else {
            // A gateway with TLS answers a request over plain HTTP with this text. Other bodies are not shown, because
            // they may contain a token.
            if self.body.starts_with("This address speaks TLS") {
                return self.unexpected("this address speaks TLS: its URL begins with https://");
            }
            if let (true, Some(to)) = (self.status.is_redirection(), self.location.take()) {
                return self.unexpected(&format!(
                    "a redirect to {to}, which is not followed: name that address if it is the gateway's"
                ));
            }
            return self.unexpected("no problem document");
        };
        match problem.code.as_str() {
            // `locked`, `lease-lost` and nearly every 409 describe the lock after all copies of the request: nothing is in
            // doubt. A gateway refuses a request that contradicts its declarations before it looks at the lock.
            "locked" => ClientError::Held(problem),
            "lease-lost" | "stale-fencing-token" => ClientError::Lost(problem),
            "outdated-order" => ClientError::Outdated(problem),
            code if self.status == StatusCode::CONFLICT && code != "declared-differently" => {
                ClientError::Refused(problem)
            }
            // Any other problem is only about the answered copy: an earlier copy may still have been carried out.
            _ if self.in_doubt => ClientError::after_unanswered(problem.to_string(), Some(problem)),
            "internal" => self.unexpected(&problem.to_string()),
            _ if self.status == StatusCode::SERVICE_UNAVAILABLE => {
                ClientError::Unavailable(problem)
            }
            _ => ClientError::Refused(problem),
        }
    }

    /// The error for a success whose document cannot be used: a program between the client and the gateway has changed
    /// the answer.
    pub(crate) fn unusable(self, what: &str) -> ClientError {
        let (url, status) = (self.url, self.status.as_u16());
        let reason = format!("{url} answered with status {status} and without {what}");
        ClientError::unknown(reason, None)
    }

    /// The error for an answer that no gateway sends. Such an answer does not say whether an earlier copy was carried
    /// out.
    pub(crate) fn unexpected(self, what: &str) -> ClientError {
        let what = format!("status {}, {what}", self.status.as_u16());
        if self.in_doubt {
            return ClientError::after_unanswered(what, None);
        }
        let url = self.url;
        ClientError::Unexpected { url, what }
    }
}

/// The innermost cause of an error, such as "connection refused". Outer errors only say that a request failed.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    if let Some(why) = mistrust(error) {
        return why;
    }
    if speaks_no_tls(error) {
        return "its answer is not TLS; if this port speaks plain HTTP, its URL begins with http://".to_owned();
    }
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Why one end of the connection does not trust the other end's certificate, if that caused the error.
fn mistrust(error: &(dyn Error + 'static)) -> Option<String> {
    let of_gateway = distrust(error, "--ca-file");
    of_gateway
        .map(|why| format!("its certificate is not trusted: {why}"))
        .or_else(|| refused_by_server(error, "--client-cert-file"))
}

/// Whether the connection ended before any byte of the request was written.
fn is_canceled(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause| {
        let cause = cause.downcast_ref::<hyper::Error>();
        cause.is_some_and(hyper::Error::is_canceled)
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;
    use crate::ClientOptions;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let longest: Vec<_> = [1, 2, 3, 99]
            .map(longest)
            .map(|pause| pause.as_millis())
            .into();
        assert_eq!(longest, [200, 400, 800, 2_000]);
        assert!((0..100).all(|_| pause(1) <= FIRST_PAUSE));
    }

    #[tokio::test]
    async fn a_redirect_says_where_to_and_shows_no_secret() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            let to = "https://u:s3cret@locks.example/locks/team@prod?key=s3cret";
            let head = format!("HTTP/1.1 308 X\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
        });
        let options = ClientOptions {
            url: url.clone(),
            ..ClientOptions::default()
        };
        let client = Client::new(options).unwrap();
        let error = client.inspect(&LockName::new("a").unwrap()).await;
        assert_eq!(
            error.unwrap_err().to_string(),
            format!(
                "{url} gave an answer that no gateway gives: status 308, a redirect to \
                 https://locks.example/locks/team@prod, which is not followed: name that address \
                 if it is the gateway's"
            )
        );
    }
}
