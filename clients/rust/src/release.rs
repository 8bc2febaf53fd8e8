//! Release: give a lock back.

use reqwest::{Method, StatusCode};
use tokio::time::Instant;

use crate::{
    Client, ClientError,
    http::{Call, Retry},
    lock::{LockName, Token},
};

// === impl Client ===

impl Client {
    /// Ends a living lease.
    ///
    /// What is not answered is sent again. A lease acquired with an idempotency key (those of this
    /// client always are) answers the second copy like the first; of any other lease that is gone by
    /// then it is not known whether the first copy ended it.
    pub async fn release(&self, name: &LockName, token: &Token) -> Result<(), ClientError> {
        let retry = Retry::until(self, Instant::now() + self.options.deadline);
        self.release_with(name, token, retry).await
    }

    /// The same with a say in how often and how long.
    pub(crate) async fn release_with(
        &self,
        name: &LockName,
        token: &Token,
        retry: Retry,
    ) -> Result<(), ClientError> {
        let call = Call::new(Method::DELETE, name, "").token(token);
        let answer = call.send_with(self, retry).await?;
        if answer.status == StatusCode::NO_CONTENT {
            return Ok(());
        }
        if answer.status.is_success() {
            return Err(answer.unusable("the end of the lease"));
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
