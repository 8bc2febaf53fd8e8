//! Break: take a lock away from whoever holds it, at once or after asking for it.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    Client, ClientError, HeldLock,
    http::{Call, CallResponse, Retry, millis},
    lock::{BreakTarget, LockName, Reason},
};

// === impl Client ===

impl Client {
    /// Takes a lock away from whoever holds it; with `target`, only if that is what holds it. Answers
    /// what was broken, as it was before.
    ///
    /// A break of a lease that is not answered is sent again: if the lease is gone by then, it is not
    /// known whether an earlier copy has broken it. Another is not sent again, for the second copy would
    /// hit the next holder, and a foreign client may have come back with the same mark.
    pub async fn break_lock(
        &self,
        name: &LockName,
        reason: &Reason,
        target: Option<BreakTarget>,
    ) -> Result<HeldLock, ClientError> {
        self.send_break(name, reason, target, None).await
    }

    /// Asks whoever holds the lock to release it within `grace`; what is left then the gateway breaks. Answers who was
    /// asked. Sent again as [`Client::break_lock`] is: of several requests the one that ends first counts.
    pub async fn request_release(
        &self,
        name: &LockName,
        reason: &Reason,
        target: Option<BreakTarget>,
        grace: Duration,
    ) -> Result<HeldLock, ClientError> {
        self.send_break(name, reason, target, Some(grace)).await
    }

    async fn send_break(
        &self,
        name: &LockName,
        reason: &Reason,
        target: Option<BreakTarget>,
        grace: Option<Duration>,
    ) -> Result<HeldLock, ClientError> {
        let mut body = json!({
            "reason": reason.as_str(),
            "grace_ms": grace.map(millis),
        });
        match &target {
            Some(BreakTarget::Lease(fence)) => body["fencing_token"] = fence.get().into(),
            Some(BreakTarget::Foreign(mark)) => body["foreign_mark"] = mark.as_str().into(),
            Some(BreakTarget::All) => body["all"] = true.into(),
            None => {}
        }
        let call = Call::new(Method::POST, name, "/break").json(body);
        let mut retry = Retry::until(self, Instant::now() + self.options.deadline);
        // A copy that breaks whatever lease there is may break another lease than the first copy did.
        retry.ends_in_doubt = !matches!(target, Some(BreakTarget::Lease(_)));
        broken(call.send_with(self, &mut retry).await?)
    }
}

fn broken(answer: CallResponse) -> Result<HeldLock, ClientError> {
    if answer.status.is_success() {
        return match HeldLock::parse(&answer.body) {
            Some(lock) => Ok(lock),
            None => Err(answer.unusable("what was broken")),
        };
    }
    let in_doubt = answer.in_doubt;
    match answer.refusal() {
        ClientError::Refused(problem)
            if in_doubt && matches!(problem.code.as_str(), "not-held" | "holder-changed") =>
        {
            let reason = "the lease has ended, by an earlier copy of this break or before it";
            Err(ClientError::unknown(reason, Some(problem)))
        }
        error => Err(error),
    }
}
