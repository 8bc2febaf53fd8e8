//! How often one call is sent, and for how long.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{Client, ClientError, lock::renewal::random_fraction};

use super::{
    backoff::{LONGEST_PAUSE, pause},
    retryable_failure::RetryableFailure,
};

/// If the gateway asks for a pause that is longer than the time left, the last copy is sent this long before the deadline.
const LAST_COPY: Duration = Duration::from_secs(1);

/// The copies of one call.
pub(crate) struct Retry {
    deadline: Instant,
    /// How long the answer to one copy may take.
    request_timeout: Duration,
    /// How many copies are sent at most; `None`: as many as the deadline allows.
    most: Option<u32>,
    /// Whether the answer to the last copy may come after the deadline.
    may_end_late: bool,
    /// How many addresses are tried before there is a pause.
    addresses: u32,
    failed: u32,
    /// Whether the last copy has been sent, because the pause that the gateway asks for would outlast the deadline.
    was_put_off: bool,
    /// Whether one of the copies may have been carried out although its answer was lost.
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
            may_end_late: false,
            addresses,
            failed: 0,
            was_put_off: false,
            in_doubt: false,
        }
    }

    /// Lets the request be sent again until its deadline.
    pub(crate) fn persist_until(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.most = None;
    }

    /// Lets an acquire be sent again until its deadline, at which the last copy may be sent.
    pub(crate) fn persist_to_the_end(&mut self, deadline: Instant) {
        self.persist_until(deadline);
        self.may_end_late = true;
    }

    /// How long the answer to the next copy may take.
    pub(crate) fn time_out(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.request_timeout.min(left)
    }

    /// Begins to count failures again after an answer. `in_doubt`: an earlier copy may still have been carried out.
    pub(crate) fn answered(&mut self, in_doubt: bool) {
        self.failed = 0;
        self.in_doubt = in_doubt;
    }

    /// Pauses before the next copy, or says why there is none.
    pub(crate) async fn after(&mut self, failure: RetryableFailure) -> Result<(), ClientError> {
        self.failed = self.failed.saturating_add(1);
        self.in_doubt |= failure.in_doubt;
        // A lasting failure is repeated at other addresses only.
        let used_up = self.most.is_some_and(|most| {
            self.failed >= most || (failure.is_lasting && self.failed >= self.addresses)
        });
        match self.pause(failure.requested_pause) {
            Some(pause) if !used_up => sleep(pause).await,
            _ => return Err(failure.after(self.in_doubt)),
        }
        Ok(())
    }

    /// Waits before the next copy after an error of the connection. Returns a refusal at once.
    pub(crate) async fn after_error(&mut self, error: ClientError) -> Result<(), ClientError> {
        match error {
            ClientError::Unreachable { .. }
            | ClientError::Unavailable(_)
            | ClientError::OutcomeUnknown { .. } => {
                // The pause that the gateway asks for is ignored: the lease could end meanwhile.
                self.after(RetryableFailure::nothing(error)).await
            }
            error => Err(error),
        }
    }

    /// The pause before the next copy; `None` if there is no time for one. There is no pause before an address that was
    /// not tried in this round.
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
        // The pauses of several clients differ, so that they do not come back at the same time.
        let spread = |requested: Duration| requested.mul_f64(1.0 + random_fraction() / 2.0);
        let pause = own.max(requested.map_or(Duration::ZERO, spread));
        if self.may_end_late {
            return (!left.is_zero()).then_some(pause.min(left));
        }
        if pause < left {
            return Some(pause);
        }
        // A call that is put off beyond its deadline asks once more.
        let requested = requested.filter(|_| !self.was_put_off && !left.is_zero())?;
        self.was_put_off = true;
        Some(if requested < left {
            (requested + left) / 2
        } else {
            left.saturating_sub(LAST_COPY.min(left / 2))
        })
    }
}
