//! Release: give a lock back.

use reqwest::Method;

use crate::lock::{LockName, Token};

use super::{Client, ClientError, call::Call};

// === impl Client ===

impl Client {
    /// Ends a living lease.
    ///
    /// What is not answered is sent again. A lease acquired with an idempotency key (those of this
    /// client always are) answers the second copy like the first; of any other lease that is gone by
    /// then it is not known whether the first copy ended it.
    pub async fn release(&self, name: &LockName, token: &Token) -> Result<(), ClientError> {
        let call = Call::new(Method::DELETE, self.lock_url(name, "")).token(token);
        let answer = call.send(self).await?;
        if answer.status.is_success() {
            return Ok(());
        }
        let in_doubt = answer.in_doubt;
        match answer.refusal() {
            ClientError::Lost(problem) if in_doubt => Err(ClientError::OutcomeUnknown {
                reason: "the lease has ended, by an earlier copy of this release or before it"
                    .to_owned(),
                problem: Some(problem),
            }),
            error => Err(error),
        }
    }
}
