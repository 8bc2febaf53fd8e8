//! A lease, with its renewal and its release.

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

/// A lease that the caller holds, of one lock or of a group of locks.
#[derive(Clone)]
pub struct Lease {
    /// The name of the lock; for a group, the name of its first lock.
    pub name: LockName,
    /// All locks of a group with their fencing tokens; empty for a lease of one lock.
    pub parts: Vec<LeasePart>,
    /// The secret that renews and releases the lease.
    pub token: Token,
    /// The fencing token of the lease, for the resource that the lock protects. For a group: the fencing token of its
    /// first lock.
    pub fence: FencingToken,
    /// The mode of the lease: exclusive, or shared with its slot. For a group: the mode of its first lock.
    pub mode: Mode,
    /// The TTL of the lease's last grant or renewal.
    pub ttl: Duration,
    /// The time that was left of the lease when the gateway answered.
    pub expires_in: Duration,
    /// The time after the answer at which the lease should be renewed.
    pub renew_after: Duration,
    /// The time that was left until the hold limit when the gateway answered, if the lease has a hold limit.
    pub hold_expires_in: Option<Duration>,
    /// The owner that the request for the lease named.
    pub owner: Option<Owner>,
    /// The metadata of the lease.
    pub metadata: Metadata,
    /// How long the caller waited in the queue.
    pub waited: Duration,
    /// The release request, if another caller wants the lock: release the lease in time.
    pub release_requested: Option<ReleaseRequest>,
    /// Whether the lock rests after an early release, because the request had a minimum hold.
    pub(crate) rests: bool,
    /// When the client sent the copy of the request that was answered.
    pub(crate) sent_at: Instant,
    pub(crate) received_at: Instant,
    json: String,
}

/// A lock of a group, with the fencing token and the mode of the lease of this lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasePart {
    /// The name of the lock.
    pub name: LockName,
    /// The fencing token of the lease of this lock.
    pub fence: FencingToken,
    /// The mode of the lease of this lock, exclusive or shared with its slot.
    pub mode: Mode,
}

/// The JSON answer to an acquire or a renewal: one lease, or the leases of a group, which differ only in name, fencing
/// token and mode.
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
    /// The instant until which the lease certainly lasts. The time is counted from the sending of the request, because
    /// the time of the grant after that is unknown. For a lease that came after a wait, this instant may have passed
    /// already. Renew such a lease first, as [`crate::LeaseRenewer::start`] does.
    pub fn good_until(&self) -> Instant {
        self.sent_at + self.good_for()
    }

    /// The time for which the holder may count on the lease: after a release request, only until the gateway breaks it.
    pub(crate) fn good_for(&self) -> Duration {
        let request = self.release_requested.as_ref();
        request.map_or(self.expires_in, |request| {
            self.expires_in.min(request.within())
        })
    }

    /// The time from sending the request to the end of its answer, including the wait in the queue.
    pub(crate) fn took(&self) -> Duration {
        self.received_at - self.sent_at
    }

    /// The lease as the gateway sent it, as JSON with the token.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Reads the lease in an answer to a request for the lock `asked`; `None`: for any lock.
    pub(crate) fn from_answer(
        answer: CallResponse,
        asked: Option<&LockName>,
    ) -> Result<Self, ClientError> {
        if let Some(why) = asked.and_then(|name| answer.names_other(name)) {
            return Err(ClientError::unknown(why, None));
        }
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
            // After a renewal with a shorter TTL, the gateway may report a longer remaining time. This client counts on
            // no more than the TTL.
            expires_in: Duration::from_millis(lease.expires_in_ms?).min(ttl),
            renew_after: Duration::from_millis(wire.renew_after_ms),
            hold_expires_in: lease.hold_expires_in_ms.map(Duration::from_millis),
            owner: lease.owner.as_deref().map(Owner::new).transpose().ok()?,
            metadata: Metadata::new(lease.metadata.unwrap_or_default()).ok()?,
            waited: Duration::from_millis(wire.waited_ms),
            release_requested: lease.release_requested,
            rests: false,
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
                // A gateway that sends no mode has only exclusive leases.
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
    /// Renews a lease: the lease then lasts `ttl` from now, or its current TTL if `ttl` is `None`.
    ///
    /// An unanswered renewal is sent again, because a second copy does no harm. A renewal never ends a lease earlier: a
    /// shorter `ttl` counts only for later renewals. If no answer comes at all, the lease lasts at least as long as the
    /// last answer said.
    pub async fn renew(
        &self,
        name: &LockName,
        token: &Token,
        ttl: Option<Duration>,
    ) -> Result<Lease, ClientError> {
        let renewal = renewal(format!("/locks/{}/renew", name.segment()), token, ttl);
        Self::renewed(renewal.send(self).await?, name)
    }

    pub(crate) fn renewed(answer: CallResponse, name: &LockName) -> Result<Lease, ClientError> {
        if answer.status.is_success() {
            Lease::from_answer(answer, Some(name))
        } else {
            Err(answer.refusal())
        }
    }
}

/// Makes the request that renews the lock or the group at this path.
pub(crate) fn renewal(path: String, token: &Token, ttl: Option<Duration>) -> Call {
    let body = json!({"ttl_ms": ttl.map(millis)});
    Call::at(Method::PUT, path).token(token).json(body)
}

// === Release ===

// === impl Client ===

impl Client {
    /// Releases a lease.
    ///
    /// An unanswered release is sent again. If the lease was acquired with an idempotency key, as this client always
    /// does, the second copy gets the same answer as the first. For a lease without a key that has ended by then, it is
    /// unknown whether the first copy ended the lease.
    pub async fn release(&self, name: &LockName, token: &Token) -> Result<(), ClientError> {
        let retry = Retry::until(self, Instant::now() + self.options.deadline);
        self.release_with(name, token, "", retry).await
    }

    /// Like `release`, with the query of the request, and with the limits of `retry` on attempts and time.
    pub(crate) async fn release_with(
        &self,
        name: &LockName,
        token: &Token,
        query: &str,
        mut retry: Retry,
    ) -> Result<(), ClientError> {
        let call = Call::new(Method::DELETE, name, query).token(token);
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
