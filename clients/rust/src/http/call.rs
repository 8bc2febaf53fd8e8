//! Sends a request, and sends it again where that is safe.

use std::time::Duration;

use reqwest::{
    Method,
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    Client, ClientError,
    lock::{LockName, Token},
};

use super::retry::{CallResponse, Retry, RetryableFailure};

/// The header that carries the token of the lease.
const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");
/// The maximum length of an answer in bytes. The longest answer about one lock shows the lock with its queue.
const MAX_ANSWER: usize = 1024 * 1024;

/// A request that may be sent again: a second copy does no harm.
pub(crate) struct Call {
    method: Method,
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Option<Vec<u8>>,
    /// Whether the request only reads, so that its outcome is never in doubt.
    looks: bool,
    /// The maximum length of the answer, in bytes.
    longest: usize,
}

// === impl Call ===

impl Call {
    pub(crate) fn new(method: Method, name: &LockName, operation: &str) -> Self {
        Self::at(method, format!("/locks/{}{operation}", name.segment()))
    }

    /// Makes a request to a path, which may have a query.
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

    /// Allows an answer of up to `longest` bytes.
    pub(crate) fn longest_answer(mut self, longest: usize) -> Self {
        self.longest = longest;
        self
    }

    pub(crate) fn token(self, token: &Token) -> Self {
        self.secret(LOCK_TOKEN, &token.expose())
    }

    /// Adds a header that is marked as secret, so that no log shows its value.
    pub(crate) fn secret(mut self, name: HeaderName, value: &str) -> Self {
        let value = HeaderValue::try_from(value);
        let mut value = value.expect("tokens and idempotency keys are visible ASCII");
        value.set_sensitive(true);
        self.headers.push((name, value));
        self
    }

    pub(crate) fn json(mut self, body: Value) -> Self {
        self.body = Some(without_nulls(body).to_string().into_bytes());
        self
    }

    /// Sends the request until it is answered, its number of attempts is used up or its deadline has passed.
    pub(crate) async fn send(&self, client: &Client) -> Result<CallResponse, ClientError> {
        let deadline = Instant::now() + client.options.deadline;
        let mut retry = Retry::until(client, deadline);
        self.send_with(client, &mut retry).await
    }

    /// Like `send`, with the limits of `retry` on attempts and time.
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

    /// Sends one copy of the request to the current gateway address.
    pub(crate) async fn send_copy(
        &self,
        client: &Client,
        time_out: Duration,
    ) -> Result<CallResponse, RetryableFailure> {
        let (address, sent_at) = (client.addresses.current(), Instant::now());
        let failure = match self.send_once(client, address.url, time_out).await {
            Ok(answer) => match RetryableFailure::of_answer(&answer) {
                Some(failure) if self.looks => failure.of_look(address.url),
                Some(failure) => failure,
                None if !self.looks && RetryableFailure::is_cut_off(&self.method, &answer) => {
                    let status = answer.status.as_u16();
                    let reason = format!("status {status}, and no document came with it");
                    RetryableFailure::indeterminate(reason, None)
                }
                None => {
                    client.outage.update(sent_at, None);
                    return Ok(answer);
                }
            },
            Err(failure) => failure,
        };
        client.outage.update(sent_at, Some(&failure.error));
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
        let mut request = client.request(self.method.clone(), url_of_call);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(body) = &self.body {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone());
        }
        let mut response = match client.send(url, request, Some(time_out)).await {
            Ok(response) => response,
            Err(error) => return error.result(url, self.looks),
        };
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

/// The object without its fields that are null: an older gateway refuses a field that it does not know, even as null.
pub(crate) fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

/// The duration in whole milliseconds, at most `u64::MAX`, which the gateway refuses as too long.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
