//! A lease as a gateway answers it.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    ClientError, ReleaseRequest,
    http::CallResponse,
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
    /// Who asked.
    pub owner: Option<Owner>,
    /// What was attached to it.
    pub metadata: Metadata,
    /// How long the caller stood in the queue.
    pub waited: Duration,
    /// Present if somebody has asked for the lock: it is to be released in time.
    pub release_requested: Option<ReleaseRequest>,
    sent_at: Instant,
    received_at: Instant,
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

#[derive(Deserialize)]
struct GroupWire {
    leases: Vec<PartWire>,
    #[serde(flatten)]
    common: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct PartWire {
    name: String,
    fencing_token: u64,
    /// A gateway that does not name it has no other.
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    slot: Option<u16>,
}

#[derive(Deserialize)]
struct Wire {
    name: String,
    token: String,
    fencing_token: u64,
    /// A gateway that does not name it has no other.
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    slot: Option<u16>,
    ttl_ms: u64,
    expires_in_ms: u64,
    renew_after_ms: u64,
    #[serde(default)]
    hold_expires_in_ms: Option<u64>,
    #[serde(default)]
    owner: Option<String>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    waited_ms: u64,
    #[serde(default)]
    release_requested: Option<ReleaseRequest>,
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

    /// When the request was sent that was answered with this.
    pub(crate) fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// How long the request and its answer took, the wait included.
    pub(crate) fn took(&self) -> Duration {
        self.received_at - self.sent_at
    }

    /// The answer as the gateway sent it, token included.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The same lease, as it was answered to a later request.
    pub(crate) fn answered(self, sent_at: Instant, received_at: Instant) -> Self {
        Self {
            sent_at,
            received_at,
            ..self
        }
    }

    pub(crate) fn from_answer(answer: CallResponse) -> Result<Self, ClientError> {
        match Self::parse(&answer) {
            Some(lease) => Ok(lease),
            None => Err(answer.unusable("a lease")),
        }
    }

    fn parse(answer: &CallResponse) -> Option<Self> {
        let (wire, parts) = Wire::read(&answer.body)?;
        let times = [
            Some(wire.expires_in_ms),
            Some(wire.renew_after_ms),
            wire.hold_expires_in_ms,
            Some(wire.waited_ms),
            wire.release_requested.as_ref().map(|it| it.within_ms),
        ];
        if !are_exact(&times) {
            return None;
        }
        let owner = wire.owner.as_deref().map(Owner::new).transpose().ok()?;
        let ttl = Ttl::from_millis(wire.ttl_ms).ok()?.duration();
        Some(Self {
            name: LockName::new(&wire.name).ok()?,
            parts,
            token: Token::parse(&wire.token).ok()?,
            fence: FencingToken::new(wire.fencing_token).ok()?,
            mode: mode(wire.mode.as_deref(), wire.slot)?,
            ttl,
            // A gateway may say more after a renewal with a shorter TTL. What is believed here is held for so long.
            expires_in: Duration::from_millis(wire.expires_in_ms).min(ttl),
            renew_after: Duration::from_millis(wire.renew_after_ms),
            hold_expires_in: wire.hold_expires_in_ms.map(Duration::from_millis),
            owner,
            metadata: Metadata::new(wire.metadata.unwrap_or_default()).ok()?,
            waited: Duration::from_millis(wire.waited_ms),
            release_requested: wire.release_requested,
            sent_at: answer.sent_at,
            received_at: answer.received_at,
            json: answer.body.clone(),
        })
    }
}

// === impl Wire ===

impl Wire {
    /// One lease, or several that have all but names, fencing tokens and slots in common.
    fn read(body: &str) -> Option<(Self, Vec<LeasePart>)> {
        let group = serde_json::from_str::<GroupWire>(body);
        let Ok(GroupWire { leases, mut common }) = group else {
            return Some((serde_json::from_str(body).ok()?, Vec::new()));
        };
        let first = leases.first()?;
        common.insert("name".to_owned(), first.name.as_str().into());
        common.insert("fencing_token".to_owned(), first.fencing_token.into());
        common.insert("mode".to_owned(), first.mode.clone().into());
        common.insert("slot".to_owned(), first.slot.into());
        let parts = leases.iter().map(|part| {
            Some(LeasePart {
                name: LockName::new(&part.name).ok()?,
                fence: FencingToken::new(part.fencing_token).ok()?,
                mode: mode(part.mode.as_deref(), part.slot)?,
            })
        });
        let parts = parts.collect::<Option<Vec<_>>>()?;
        Some((serde_json::from_value(common.into()).ok()?, parts))
    }
}

/// Whether JSON carries these numbers exactly, as it does every number of a gateway.
pub(crate) fn are_exact(numbers: &[Option<u64>]) -> bool {
    let numbers = numbers.iter().flatten();
    numbers.copied().all(|it| it <= FencingToken::MAX.get())
}

fn mode(word: Option<&str>, slot: Option<u16>) -> Option<Mode> {
    match word {
        None => Some(Mode::Exclusive),
        Some(word) => Mode::from_word(word, slot),
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
