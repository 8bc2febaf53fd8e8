//! Breaks a lock: ends the lease of its holder, at once or some time after a release request.

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
    /// Takes a lock away from its holder. With `target`, the break ends only the lease of that holder. Returns the lock
    /// as it was before the break.
    ///
    /// If a break of one lease is not answered, the client sends it again; if the lease has ended by then, it is
    /// unknown whether an earlier copy broke the lease. Any other break is not sent again: the second copy could break
    /// the lease of the next holder, and a foreign client may have taken the lock again with the same mark.
    pub async fn break_lock(
        &self,
        name: &LockName,
        reason: &Reason,
        target: Option<BreakTarget>,
    ) -> Result<HeldLock, ClientError> {
        self.send_break(name, reason, target, None).await
    }

    /// Asks the holder to release the lock within `grace`. If the holder does not, the gateway breaks the lease.
    /// Returns the lock with the holders that were asked. An unanswered request is sent again as in
    /// [`Client::break_lock`]. Of several requests, the request with the earliest end counts.
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
        // Without a fencing token, a second copy could break another lease than the first copy did, so none is sent.
        retry.ends_in_doubt = !matches!(target, Some(BreakTarget::Lease(_)));
        broken(call.send_with(self, &mut retry).await?, name)
    }
}

fn broken(answer: CallResponse, asked: &LockName) -> Result<HeldLock, ClientError> {
    if answer.status.is_success() {
        if let Some(why) = answer.names_other(asked) {
            return Err(ClientError::unknown(why, None));
        }
        return match HeldLock::parse(&answer.body) {
            Some(lock) => Ok(lock),
            None => Err(answer.unusable("the broken leases")),
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
