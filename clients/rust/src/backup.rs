//! Backup: everything that a gateway's embedded store holds.

use std::time::Duration;

use reqwest::{Response, header::AUTHORIZATION};
use tokio::time::{Instant, timeout};

use crate::{
    Client, ClientError,
    http::{CallResponse, SendOutcome},
};

/// How long the gateway may be silent: it makes the backup before it answers.
const SILENCE: Duration = Duration::from_mins(1);

// === impl Client ===

impl Client {
    /// Reads a backup of the embedded store. Asks once: whoever wants it asks again.
    pub async fn backup(&self) -> Result<Vec<u8>, ClientError> {
        let address = self.addresses.current();
        let unreachable = |reason: String| ClientError::Unreachable {
            url: address.url().to_owned(),
            reason,
        };
        let lost = |error: &reqwest::Error| match SendOutcome::of(error) {
            SendOutcome::NotSent(reason) | SendOutcome::NoAnswer(reason) => unreachable(reason),
            SendOutcome::Answered(..) => unreachable(error.to_string()),
        };
        let silent = |_elapsed| unreachable("no answer in time".to_owned());
        let sent_at = Instant::now();
        let mut request = self.http.get(format!("{}/backup", address.url()));
        if let Some(key) = &self.options.key {
            request = request.header(AUTHORIZATION, key.header());
        }
        let response = timeout(SILENCE, request.send()).await.map_err(silent)?;
        let mut response: Response = response.map_err(|error| lost(&error))?;
        let mut body = Vec::new();
        while let Some(part) = timeout(SILENCE, response.chunk())
            .await
            .map_err(silent)?
            .map_err(|error| lost(&error))?
        {
            body.extend(part);
        }
        if response.status().is_success() {
            return Ok(body);
        }
        let answer = CallResponse {
            url: address.url().to_owned(),
            status: response.status(),
            body: String::from_utf8(body).unwrap_or_default(),
            sent_at,
            received_at: Instant::now(),
            in_doubt: false,
        };
        Err(answer.refusal())
    }
}
