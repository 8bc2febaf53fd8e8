//! Sends a request, and sends it again where that is safe.

use std::{error::Error, time::Duration};

use reqwest::{
    Method, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER},
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    Client, ClientError, Problem,
    lock::{LockName, Token},
    tls::{distrust, refused_by_server},
};

use super::retry::{Retry, RetryableFailure};

/// The header in which a token travels.
const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");
/// The longest answer about one lock is the lock with its queue.
const MAX_ANSWER: usize = 1024 * 1024;

/// A request whose copies do no harm beyond the first.
pub(crate) struct Call {
    method: Method,
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Option<Vec<u8>>,
    /// Whether it only looks: then nothing is ever in doubt.
    looks: bool,
    /// How long its answer may be.
    longest: usize,
}

// === impl Call ===

impl Call {
    pub(crate) fn new(method: Method, name: &LockName, operation: &str) -> Self {
        // Every character of a name stands for itself in a path.
        Self::at(method, format!("/locks/{name}{operation}"))
    }

    /// A call to a path, with its query.
    pub(crate) fn at(method: Method, path: String) -> Self {
        Self {
            looks: method == Method::GET,
            longest: MAX_ANSWER,
            method,
            path,
            headers: Vec::new(),
            body: None,
        }
    }

    /// Its answer may be longer than others.
    pub(crate) fn longest_answer(mut self, longest: usize) -> Self {
        self.longest = longest;
        self
    }

    pub(crate) fn token(self, token: &Token) -> Self {
        self.secret(LOCK_TOKEN, &token.expose())
    }

    /// Adds a header that no log may show.
    pub(crate) fn secret(mut self, name: HeaderName, value: &str) -> Self {
        let value = HeaderValue::try_from(value);
        let mut value = value.expect("tokens and idempotency keys are visible ASCII");
        value.set_sensitive(true);
        self.headers.push((name, value));
        self
    }

    pub(crate) fn json(mut self, mut body: Value) -> Self {
        if let Value::Object(fields) = &mut body {
            fields.retain(|_, value| !value.is_null());
        }
        self.body = Some(body.to_string().into_bytes());
        self
    }

    /// Sends it until it is answered, its attempts are used up or its deadline has passed.
    pub(crate) async fn send(&self, client: &Client) -> Result<CallResponse, ClientError> {
        let deadline = Instant::now() + client.options.deadline;
        let mut retry = Retry::until(client, deadline);
        self.send_with(client, &mut retry).await
    }

    /// The same with a say in how often and how long.
    pub(crate) async fn send_with(
        &self,
        client: &Client,
        retry: &mut Retry,
    ) -> Result<CallResponse, ClientError> {
        loop {
            match self.send_copy(client, retry.time_out()).await {
                Ok(mut answer) => {
                    answer.in_doubt = retry.in_doubt;
                    return Ok(answer);
                }
                Err(failure) => retry.after(failure).await?,
            }
        }
    }

    /// Sends one copy, to the address whose turn it is.
    pub(crate) async fn send_copy(
        &self,
        client: &Client,
        time_out: Duration,
    ) -> Result<CallResponse, RetryableFailure> {
        let address = client.addresses.current();
        let failure = match self.send_once(client, address.url, time_out).await {
            Ok(answer) => match RetryableFailure::of_answer(&answer) {
                Some(failure) if self.looks => failure.of_look(address.url),
                Some(failure) => failure,
                None if !self.looks && RetryableFailure::is_cut_off(&self.method, &answer) => {
                    let status = answer.status.as_u16();
                    let reason = format!("status {status}, and no document came with it");
                    RetryableFailure::indeterminate(reason, None)
                }
                None => return Ok(answer),
            },
            Err(failure) => failure,
        };
        client.addresses.move_on_from(address);
        Err(failure)
    }

    async fn send_once(
        &self,
        client: &Client,
        url: &str,
        time_out: Duration,
    ) -> Result<CallResponse, RetryableFailure> {
        let failed = |error| RetryableFailure::of_error(&error, url, self.looks);
        let sent_at = Instant::now();
        let url_of_call = format!("{url}{}", self.path);
        let request = client.request(self.method.clone(), url_of_call);
        let mut request = request.timeout(time_out);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(body) = &self.body {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone());
        }
        let mut response = request.send().await.map_err(failed)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > self.longest {
                let reason = "the answer is too long".to_owned();
                return Err(RetryableFailure::lost(reason, url, self.looks));
            }
            body.extend(chunk);
        }
        Ok(CallResponse::new(url, sent_at, &response, body))
    }
}

/// Whole milliseconds; what does not fit is refused by the gateway like anything else too long.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

// === Answer ===
//
// The answer to one copy of a request, or why there is none.

/// A final answer: the same request would be answered in the same way.
pub(crate) struct CallResponse {
    pub(crate) url: String,
    pub(crate) status: StatusCode,
    pub(crate) body: String,
    /// The pause before the next copy that the answer asks for.
    pub(super) retry_after: Option<Duration>,
    /// The target of a redirect, without its password and query, which may be secrets.
    location: Option<String>,
    /// When the copy of the request that was answered was sent.
    pub(crate) sent_at: Instant,
    /// When the whole answer had arrived.
    pub(crate) received_at: Instant,
    /// Whether an earlier copy of the request may have been carried out, too.
    pub(crate) in_doubt: bool,
}

// === impl CallResponse ===

impl CallResponse {
    /// The answer of `url` to a request. `body` is its whole body.
    pub(crate) fn new(url: &str, sent_at: Instant, response: &Response, body: Vec<u8>) -> Self {
        let header = |name| response.headers().get(name)?.to_str().ok();
        // `Retry-After` may also be a date, which is ignored.
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

    /// The problem document, if the body is one.
    pub(crate) fn problem(&self) -> Option<Problem> {
        Problem::parse(&self.body)
    }

    /// The error for this answer, which is not a success.
    pub(crate) fn refusal(mut self) -> ClientError {
        let Some(problem) = self.problem().map(Box::new) else {
            // A gateway with TLS answers so to plain HTTP. Other bodies are not shown, because they may contain a token.
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
            // The problems `locked` and `lease-lost` and every 409 describe the lock as all copies of the request left it.
            "locked" => ClientError::Held(problem),
            "lease-lost" => ClientError::Lost(problem),
            _ if self.status == StatusCode::CONFLICT => ClientError::Refused(problem),
            // Other problems are about this copy only, so an earlier copy may still have been carried out.
            _ if self.in_doubt => ClientError::after_unanswered(problem.to_string(), Some(problem)),
            "internal" => self.unexpected(&problem.to_string()),
            _ if self.status == StatusCode::SERVICE_UNAVAILABLE => {
                ClientError::Unavailable(problem)
            }
            _ => ClientError::Refused(problem),
        }
    }

    /// The error for a success without a usable document: something between client and gateway has changed the answer.
    pub(crate) fn unusable(self, what: &str) -> ClientError {
        let (url, status) = (self.url, self.status.as_u16());
        let reason = format!("{url} answered with status {status} and without {what}");
        ClientError::unknown(reason, None)
    }

    /// The error for an answer that no gateway gives: it says nothing about earlier copies.
    pub(crate) fn unexpected(self, what: &str) -> ClientError {
        let what = format!("status {}, {what}", self.status.as_u16());
        if self.in_doubt {
            return ClientError::after_unanswered(what, None);
        }
        let url = self.url;
        ClientError::Unexpected { url, what }
    }
}

/// The innermost cause of an error, such as "connection refused". The errors around it say only that a request failed.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    if let Some(why) = mistrust(error) {
        return why;
    }
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Which end does not trust the certificate of the other, and why.
pub(super) fn mistrust(error: &(dyn Error + 'static)) -> Option<String> {
    let of_gateway = distrust(error, "--ca-file");
    of_gateway
        .map(|why| format!("its certificate is not believed: {why}"))
        .or_else(|| refused_by_server(error, "--client-cert-file"))
}

/// Whether the connection ended before a byte of the request was written.
pub(super) fn is_canceled(error: &(dyn Error + 'static)) -> bool {
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

    use crate::{Client, ClientOptions, lock::LockName};

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
                "{url} gave an answer that is none of a gateway's: status 308, a redirect to \
                 https://locks.example/locks/team@prod, which is not followed: name that address if it is the gateway's"
            )
        );
    }
}
