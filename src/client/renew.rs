//! Renew: keep a lock.

use std::time::Duration;

use reqwest::Method;
use serde::Serialize;

use crate::lock::{LockName, Token};

use super::{Client, ClientError, Lease, acquire::millis, call::Call};

#[derive(Serialize)]
struct Body {
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
}

// === impl Client ===

impl Client {
    /// Makes a living lease last `ttl` from now, or its own TTL again.
    ///
    /// A second copy only counts from a later moment, so what is not answered is sent again.
    pub async fn renew(
        &self,
        name: &LockName,
        token: &Token,
        ttl: Option<Duration>,
    ) -> Result<Lease, ClientError> {
        let body = Body {
            ttl_ms: ttl.map(millis),
        };
        let call = Call::new(Method::PUT, self.lock_url(name, "/renew"))
            .token(token)
            .json(&body);
        let answer = call.send(self).await?;
        if answer.status.is_success() {
            Lease::from_answer(answer)
        } else {
            Err(answer.refusal())
        }
    }
}
