//! A lease, its renewal and its release.

use std::{fmt, time::Duration};

use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    Client, ClientError, Holder, ReleaseRequest,
    holder::are_exact,
    http::{Call, CallResponse, Retry, millis},
    lock::{FencingToken, LockName, Metadata, Mode, Owner, Token, Ttl},
};

/// A lease that the caller holds.
#[derive(Clone)]
pub struct Lease {
    /// The lock; of several the first.
    pub name: LockName,
    /// All of them with their fencing tokens, if several were acquired as one.
    pub parts: Vec<LeasePart>,
    /// The secret that renews and releases it.
    pub token: Token,
    /// The number that only rises, for the resource that the lock protects; of several locks that of the first.
    pub fence: FencingToken,
    /// Whether it holds the lock alone or beside others, and its slot; of several locks that of the first.
    pub mode: Mode,
    /// How long it was granted for.
    pub ttl: Duration,
    /// What was left of it when the gateway answered.
    pub expires_in: Duration,
    /// How long after the answer it should be renewed.
    pub renew_after: Duration,
    /// What was left until its hold limit, if it has one.
    pub hold_expires_in: Option<Duration>,
    /// The owner that the request for the lease named.
    pub owner: Option<Owner>,
    /// What was attached to it.
    pub metadata: Metadata,
    /// How long the caller stood in the queue.
    pub waited: Duration,
    /// Present if somebody has asked for the lock: it is to be released in time.
    pub release_requested: Option<ReleaseRequest>,
    /// When the request was sent that was answered with this.
    pub(crate) sent_at: Instant,
    pub(crate) received_at: Instant,
    json: String,
}

/// One of the leases of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasePart {
    /// The lock.
    pub name: LockName,
    /// The fencing token of this lock.
    pub fence: FencingToken,
    /// Whether it holds this lock alone or beside others, and its slot there.
    pub mode: Mode,
}

/// The answer to an acquire or a renewal: one lease, or several that have all but names, fencing tokens and modes in common.
#[derive(Deserialize)]
struct Wire {
    name: Option<String>,
    #[serde(default)]
    leases: Vec<PartWire>,
    token: String,
    renew_after_ms: u64,
    #[serde(default)]
    waited_ms: u64,
    #[serde(flatten)]
    lease: Holder,
}

#[derive(Deserialize)]
struct PartWire {
    name: String,
    #[serde(flatten)]
    lease: Holder,
}

// === impl Lease ===

impl Lease {
    /// Until when the lease certainly lasts: its time is counted from when the request was sent,
    /// because nobody knows when it was granted after that. A lease that was waited for may be said
    /// to be over when it comes; renew it first, as [`crate::LeaseRenewer::start`] does.
    pub fn good_until(&self) -> Instant {
        self.sent_at + self.good_for()
    }

    /// How much of it may be counted on: one that is to be released is broken when the time for that is over.
    pub(crate) fn good_for(&self) -> Duration {
        let request = self.release_requested.as_ref();
        request.map_or(self.expires_in, |request| {
            self.expires_in.min(request.within())
        })
    }

    /// How long the request and its answer took, the wait included.
    pub(crate) fn took(&self) -> Duration {
        self.received_at - self.sent_at
    }

    /// The answer as the gateway sent it, token included.
    pub fn json(&self) -> &str {
        &self.json
    }

    pub(crate) fn from_answer(answer: CallResponse) -> Result<Self, ClientError> {
        match Self::parse(&answer) {
            Some(lease) => Ok(lease),
            None => Err(answer.unusable("a lease")),
        }
    }

    fn parse(answer: &CallResponse) -> Option<Self> {
        let wire: Wire = serde_json::from_str(&answer.body).ok()?;
        let parts = wire
            .leases
            .iter()
            .map(|it| LeasePart::read(&it.name, &it.lease));
        let parts = parts.collect::<Option<Vec<_>>>()?;
        let first = match parts.first() {
            Some(first) => first.clone(),
            None => LeasePart::read(&wire.name?, &wire.lease)?,
        };
        let lease = wire.lease;
        if !lease.is_exact() || !are_exact(&[Some(wire.renew_after_ms), Some(wire.waited_ms)]) {
            return None;
        }
        let ttl = Ttl::from_millis(lease.ttl_ms?).ok()?.duration();
        Some(Self {
            name: first.name,
            parts,
            token: Token::parse(&wire.token).ok()?,
            fence: first.fence,
            mode: first.mode,
            ttl,
            // A gateway may say more after a renewal with a shorter TTL. What is believed here is held for so long.
            expires_in: Duration::from_millis(lease.expires_in_ms?).min(ttl),
            renew_after: Duration::from_millis(wire.renew_after_ms),
            hold_expires_in: lease.hold_expires_in_ms.map(Duration::from_millis),
            owner: lease.owner.as_deref().map(Owner::new).transpose().ok()?,
            metadata: Metadata::new(lease.metadata.unwrap_or_default()).ok()?,
            waited: Duration::from_millis(wire.waited_ms),
            release_requested: lease.release_requested,
            sent_at: answer.sent_at,
            received_at: answer.received_at,
            json: answer.body.clone(),
        })
    }
}

// === impl LeasePart ===

impl LeasePart {
    fn read(name: &str, lease: &Holder) -> Option<Self> {
        Some(Self {
            name: LockName::new(name).ok()?,
            fence: FencingToken::new(lease.fencing_token?).ok()?,
            mode: match &lease.mode {
                // A gateway that does not name it has no other.
                None => Mode::Exclusive,
                Some(word) => Mode::from_word(word, lease.slot)?,
            },
        })
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.name)
            .field("token", &self.token)
            .field("fence", &self.fence)
            .field("mode", &self.mode)
            .field("expires_in", &self.expires_in)
            .finish_non_exhaustive()
    }
}

// === Renew ===

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
        let renewal = renewal(format!("/locks/{name}/renew"), token, ttl);
        Self::renewed(renewal.send(self).await?)
    }

    pub(crate) fn renewed(answer: CallResponse) -> Result<Lease, ClientError> {
        if answer.status.is_success() {
            Lease::from_answer(answer)
        } else {
            Err(answer.refusal())
        }
    }
}

/// The renewal of the lock or of the locks at this path.
pub(crate) fn renewal(path: String, token: &Token, ttl: Option<Duration>) -> Call {
    let body = json!({"ttl_ms": ttl.map(millis)});
    Call::at(Method::PUT, path).token(token).json(body)
}

// === Release ===

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
        mut retry: Retry,
    ) -> Result<(), ClientError> {
        let call = Call::new(Method::DELETE, name, "").token(token);
        let answer = call.send_with(self, &mut retry).await?;
        if answer.status == StatusCode::NO_CONTENT {
            return Ok(());
        }
        if answer.status.is_success() {
            return Err(answer.unusable("the end of the lease"));
        }
        let in_doubt = answer.in_doubt;
        Err(answer.refusal().of_release(in_doubt))
    }
}
