//! Renew: keep a lock.

use std::time::Duration;

use reqwest::Method;
use serde::Serialize;

use crate::{
    Client, ClientError, Lease,
    acquiring::millis,
    http::{Call, CallResponse, RetryableFailure},
    lock::{LockName, Token},
};

#[derive(Serialize)]
struct Body {
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
}

// === impl Client ===

impl Client {
    /// Makes a living lease last `ttl` from now, or its own TTL again.
    ///
    /// A second copy only counts from a later moment, so what is not answered is sent again. No renewal ends a lease earlier:
    /// a shorter `ttl` is that of the renewals that follow. If no answer comes at all, what an earlier answer said holds.
    pub async fn renew(
        &self,
        name: &LockName,
        token: &Token,
        ttl: Option<Duration>,
    ) -> Result<Lease, ClientError> {
        Self::renewed(renewal(name, token, ttl).send(self).await?)
    }

    /// Sends a renewal just once.
    pub(crate) async fn renew_once(
        &self,
        name: &LockName,
        token: &Token,
        ttl: Option<Duration>,
        time_out: Duration,
    ) -> Result<Lease, RetryableFailure> {
        let answer = renewal(name, token, ttl).send_copy(self, time_out).await?;
        Ok(Self::renewed(answer)?)
    }

    fn renewed(answer: CallResponse) -> Result<Lease, ClientError> {
        if answer.status.is_success() {
            Lease::from_answer(answer)
        } else {
            Err(answer.refusal())
        }
    }
}

fn renewal(name: &LockName, token: &Token, ttl: Option<Duration>) -> Call {
    let body = Body {
        ttl_ms: ttl.map(millis),
    };
    Call::new(Method::PUT, name, "/renew")
        .token(token)
        .json(&body)
}
