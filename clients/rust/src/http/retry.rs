//! How often one call is sent, and for how long.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{Client, ClientError};

use super::{
    backoff::{LONGEST_PAUSE, pause, random_fraction},
    retryable_failure::RetryableFailure,
};

/// How long before its end a call that was put off beyond it asks once more.
const LAST_COPY: Duration = Duration::from_secs(1);

/// The copies of one call.
pub(crate) struct Retry {
    deadline: Instant,
    /// How long the answer to one copy may take.
    request_timeout: Duration,
    /// How many copies are sent at most; `None`: as many as the deadline allows.
    most: Option<u32>,
    /// How many addresses are tried before there is a pause.
    addresses: u32,
    failed: u32,
    /// Whether the one copy was sent that a call has left whose pause would outlast it.
    was_put_off: bool,
    /// Whether one of the copies may have been carried out unheard.
    pub(crate) in_doubt: bool,
}

// === impl Retry ===

impl Retry {
    /// A call of a client within a deadline.
    pub(crate) fn until(client: &Client, deadline: Instant) -> Self {
        let addresses = u32::try_from(client.addresses.len()).unwrap_or(u32::MAX);
        Self {
            deadline,
            request_timeout: client.options.request_timeout,
            most: Some(client.options.attempts.saturating_mul(addresses)),
            addresses,
            failed: 0,
            was_put_off: false,
            in_doubt: false,
        }
    }

    /// From now on it is sent for as long as its deadline allows.
    pub(crate) fn persist_until(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.most = None;
    }

    /// How long the answer to the next copy may take.
    pub(crate) fn time_out(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.request_timeout.min(left)
    }

    /// A copy was answered: what failed before is over, but for what the answer leaves in doubt.
    pub(crate) fn answered(&mut self, in_doubt: bool) {
        self.failed = 0;
        self.in_doubt = in_doubt;
    }

    /// Pauses before the next copy, or says why there is none.
    pub(crate) async fn after(&mut self, failure: RetryableFailure) -> Result<(), ClientError> {
        self.failed = self.failed.saturating_add(1);
        self.in_doubt |= failure.in_doubt;
        // Another address may do better, another copy to the same one does not.
        let used_up = self.most.is_some_and(|most| {
            self.failed >= most || (failure.is_lasting && self.failed >= self.addresses)
        });
        let pause = self.pause(failure.requested_pause);
        if used_up || Instant::now() + pause >= self.deadline {
            return Err(failure.after(self.in_doubt));
        }
        sleep(pause).await;
        Ok(())
    }

    /// The same for an error that may be mended by a later copy.
    pub(crate) async fn after_error(&mut self, error: ClientError) -> Result<(), ClientError> {
        match error {
            ClientError::Unreachable { .. }
            | ClientError::Unavailable(_)
            | ClientError::OutcomeUnknown { .. } => {
                // Whatever pause the gateway would like: a lease does not wait.
                self.after(RetryableFailure::nothing(error)).await
            }
            error => Err(error),
        }
    }

    /// None before an address that was not tried in this round.
    fn pause(&mut self, requested: Option<Duration>) -> Duration {
        if !self.failed.is_multiple_of(self.addresses) {
            return Duration::ZERO;
        }
        let own = pause(self.failed / self.addresses);
        let Some(requested) = requested else {
            return own;
        };
        // Clients that were put off together do not come back together.
        let requested = requested.min(LONGEST_PAUSE);
        let pause = own.max(requested.mul_f64(1.0 + random_fraction() / 2.0));
        let left = self.deadline.saturating_duration_since(Instant::now());
        if pause < left || self.was_put_off {
            return pause;
        }
        // A call that is put off beyond its deadline asks once more within it.
        self.was_put_off = true;
        if requested < left {
            (requested + left) / 2
        } else {
            left.saturating_sub(LAST_COPY.min(left / 2))
        }
    }
}
