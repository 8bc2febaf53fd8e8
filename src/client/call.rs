//! Sends a request, and sends it again where that is safe.

use std::time::Duration;

use reqwest::{
    Method, StatusCode,
    header::{AUTHORIZATION, HeaderName, HeaderValue},
};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::lock::Token;

use super::{
    Client, ClientError, Problem,
    answer::{Answer, Outcome},
    backoff::pause,
};

/// The header in which a token travels.
const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");
/// The longest answer that a gateway gives is a lock with its queue.
const MAX_ANSWER: usize = 1024 * 1024;

/// A request whose copies do no harm beyond the first.
pub(super) struct Call {
    method: Method,
    url: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Option<Vec<u8>>,
    /// Whether it only looks: then nothing is ever in doubt.
    looks: bool,
}

/// What a copy leaves behind that is to be followed by another one.
struct Setback {
    error: ClientError,
    /// Whether this copy may have been carried out.
    in_doubt: bool,
}

// === impl Call ===

impl Call {
    pub(super) fn new(method: Method, url: String) -> Self {
        Self {
            looks: method == Method::GET,
            method,
            url,
            headers: Vec::new(),
            body: None,
        }
    }

    pub(super) fn token(self, token: &Token) -> Self {
        self.secret(LOCK_TOKEN, &token.expose())
    }

    /// Adds a header that no log may show.
    pub(super) fn secret(mut self, name: HeaderName, value: &str) -> Self {
        let value = HeaderValue::try_from(value);
        let mut value = value.expect("tokens and idempotency keys are visible ASCII");
        value.set_sensitive(true);
        self.headers.push((name, value));
        self
    }

    pub(super) fn json(mut self, body: &impl Serialize) -> Self {
        self.body = Some(serde_json::to_vec(body).expect("a body of texts and numbers is JSON"));
        self
    }

    /// Sends it until it is answered, its attempts are used up or its deadline has passed.
    pub(super) async fn send(&self, client: &Client) -> Result<Answer, ClientError> {
        self.send_until(client, Instant::now() + client.options.deadline)
            .await
    }

    /// The same within a deadline that other calls have a part in.
    pub(super) async fn send_until(
        &self,
        client: &Client,
        deadline: Instant,
    ) -> Result<Answer, ClientError> {
        let mut in_doubt = false;
        let mut copy = 1;
        loop {
            let sent_at = Instant::now();
            let time_out = client
                .options
                .request_timeout
                .min(deadline.saturating_duration_since(sent_at));
            let setback = match self.send_once(client, time_out).await {
                Outcome::Answered(status, body) => match setback(status, &body) {
                    Some(setback) => setback,
                    None => {
                        return Ok(Answer {
                            url: client.url().to_owned(),
                            status,
                            body,
                            sent_at,
                            in_doubt,
                        });
                    }
                },
                Outcome::NotSent(reason) => Setback::nothing(unreachable(client, reason)),
                Outcome::NoAnswer(reason) if self.looks => {
                    Setback::nothing(unreachable(client, reason))
                }
                Outcome::NoAnswer(reason) => Setback::doubt(reason, None),
            };
            in_doubt |= setback.in_doubt;
            let pause = pause(copy);
            if copy >= client.options.attempts || Instant::now() + pause >= deadline {
                return Err(setback.after(in_doubt));
            }
            copy += 1;
            sleep(pause).await;
        }
    }

    async fn send_once(&self, client: &Client, time_out: Duration) -> Outcome {
        let mut request = client
            .http
            .request(self.method.clone(), &self.url)
            .timeout(time_out);
        if let Some(key) = &client.options.key {
            request = request.header(AUTHORIZATION, key.header());
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(body) = &self.body {
            request = request
                .header(reqwest::header::CONTENT_TYPE, "application/json")
                .body(body.clone());
        }
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Outcome::of(&error),
        };
        let status = response.status();
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_ANSWER => body.extend(chunk),
                Ok(Some(_)) => return Outcome::NoAnswer("the answer is too long".to_owned()),
                Ok(None) => break,
                Err(error) => return Outcome::of(&error),
            }
        }
        match String::from_utf8(body) {
            Ok(body) => Outcome::Answered(status, body),
            Err(_invalid) => Outcome::Answered(status, String::new()),
        }
    }
}

/// Whether an answer says that the same request may be answered otherwise a moment later.
fn setback(status: StatusCode, body: &str) -> Option<Setback> {
    if !status.is_server_error() {
        return None;
    }
    match Problem::parse(body) {
        Some(problem) if status == StatusCode::SERVICE_UNAVAILABLE => {
            // No fencing token will come back.
            let gone = problem.code == "fence-exhausted";
            let error = ClientError::Unavailable(Box::new(problem));
            (!gone).then(|| Setback::nothing(error))
        }
        Some(problem) if status == StatusCode::GATEWAY_TIMEOUT => {
            Some(Setback::doubt(problem.to_string(), Some(problem)))
        }
        // A bug or foreign data: the same the next time.
        Some(_) => None,
        // A proxy between us and the gateway; it may have passed the request on.
        None => {
            let reason = format!("a proxy answered with status {}", status.as_u16());
            Some(Setback::doubt(reason, None))
        }
    }
}

fn unreachable(client: &Client, reason: String) -> ClientError {
    ClientError::Unreachable {
        url: client.url().to_owned(),
        reason,
    }
}

// === impl Setback ===

impl Setback {
    fn nothing(error: ClientError) -> Self {
        Self {
            error,
            in_doubt: false,
        }
    }

    fn doubt(reason: String, problem: Option<Problem>) -> Self {
        Self {
            error: ClientError::OutcomeUnknown {
                reason,
                problem: problem.map(Box::new),
            },
            in_doubt: true,
        }
    }

    /// The error of a call whose last copy came to this: what one copy left in doubt, no later
    /// failure settles.
    fn after(self, in_doubt: bool) -> ClientError {
        match self.error {
            error if !in_doubt || self.in_doubt => error,
            error => ClientError::OutcomeUnknown {
                reason: format!("an earlier copy of the request was not answered; then {error}"),
                problem: error.problem().cloned().map(Box::new),
            },
        }
    }
}
