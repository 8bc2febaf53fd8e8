//! What acquire and hold take.

use std::time::Duration;

use crate::{
    auth::Access,
    config::LimitsConfig,
    engine::{AcquireRequest, ExplicitTerms},
    http::{
        extract::{
            ApiJson, AppliedWait, Field, Fields, Form, PreferredWait, RequestBody, declare_fields,
        },
        problem::Problem,
    },
    lock::{HoldLimit, IdempotencyKey, Limit, LockName, Metadata, Owner, Sharing, Ttl},
};

/// What is asked for, as it was sent.
#[derive(Clone)]
pub(in crate::http) struct AcquireBody {
    ttl: Ttl,
    explicit: ExplicitTerms,
    wait: Option<Duration>,
    hold_limit: Option<HoldLimit>,
    sharing: Option<Sharing>,
    owner: Option<Owner>,
    metadata: Metadata,
}

/// The body in the OpenAPI document.
pub(in crate::http) type AcquireJson = ApiJson<AcquireBody>;

declare_fields! {
    /// What is asked for. Every field may be left out; null is the same as leaving it out.
    const ACQUIRE: "AcquireBody" => Form::TEXT.example(r#"{
        "ttl_ms": 30000, "wait_ms": 10000, "owner": "ci-runner-7", "metadata": {"job": "4711"}
    }"#);
    /// For how long the lease is granted, in milliseconds. It ends by itself then, unless it is
    /// renewed before: there is no lock without an expiry.
    const TTL: "ttl_ms" => TTL_MS.or_else(|limits| limits.default_ttl_ms.0);
    /// How long to wait for a lock that is held, in milliseconds. 0, or left out: not at all. Your own
    /// time-out must be longer, and so must that of every proxy on the way.
    const WAIT: "wait_ms" => Form::millis(|limits| (0, limits.max_wait_ms.0));
    /// The longest time that the lease may be kept with renewals, in milliseconds from its grant.
    /// Not less than `ttl_ms`. Left out: renewals may go on for ever.
    const MAX_HOLD: "max_hold_ms" => Form::millis(|limits| (100, limits.max_hold_limit_ms.0));
    /// `exclusive`, to hold the lock alone, or `shared`. Left out: `exclusive`, or with a `limit` `shared`.
    const MODE: "mode" => Form::text(0, usize::MAX, "^(exclusive|shared)$");
    /// With `shared`: the lock is granted while fewer than so many hold it, and the lease has a `slot`. It binds
    /// at this grant only, so use one limit per name.
    const LIMIT: "limit" => Form::whole(|limits| (1, limits.max_holders));
    /// Who asks, for people to read: shown to those who find the lock held, never trusted. No
    /// control characters.
    const OWNER: "owner" => Form::prose(Owner::MAX_CHARS);
    /// Small facts to attach to the lease, shown like the owner: at most 16 texts, names and values
    /// together at most 2048 bytes. No empty names, no control characters.
    const METADATA: "metadata" => Form::texts(Metadata::MAX_ENTRIES, Metadata::MAX_BYTES);
}

/// A TTL that the limits allow.
pub(super) const TTL_MS: Form = Form::millis(|limits| (limits.min_ttl_ms.0, limits.max_ttl_ms.0));

/// The hold limit of a lock that is held by a stream, if none is asked for: a client that is frozen
/// and a proxy that buffers cannot be told from a client that listens.
const DEFAULT_HOLD_LIMIT: Duration = Duration::from_hours(24);

// === impl AcquireBody ===

impl AcquireBody {
    /// Lets the request wait for as long as its header prefers, if the body does not say. Answers for how long
    /// that is.
    pub(super) fn prefer(
        &mut self,
        preferred: PreferredWait,
        limits: &LimitsConfig,
    ) -> Option<AppliedWait> {
        if self.wait.is_some() {
            return None;
        }
        let applied = preferred.applied(limits)?;
        self.wait = Some(applied.duration());
        Some(applied)
    }

    /// What a stream asks for: the same, but never without a hold limit.
    pub(super) fn into_hold_request(
        mut self,
        name: LockName,
        idempotency_key: Option<IdempotencyKey>,
        limits: &LimitsConfig,
        caller: &Access,
    ) -> Result<AcquireRequest, Problem> {
        if self.hold_limit.is_none() {
            let default = DEFAULT_HOLD_LIMIT
                .min(limits.max_hold_limit_ms.duration())
                .max(self.ttl.duration());
            let ms = u64::try_from(default.as_millis()).unwrap_or(u64::MAX);
            let limit = HoldLimit::from_millis(ms, self.ttl);
            self.hold_limit = Some(limit.expect("a day is a hold limit, and no TTL is longer"));
        }
        self.into_request(name, idempotency_key, caller)
    }

    pub(super) fn into_request(
        self,
        name: LockName,
        idempotency_key: Option<IdempotencyKey>,
        caller: &Access,
    ) -> Result<AcquireRequest, Problem> {
        // One that was not asked for is no longer than that.
        Problem::check_ttl(self.ttl, caller)?;
        Ok(AcquireRequest {
            ttl: self.ttl,
            hold_limit: self.hold_limit,
            sharing: self.sharing,
            explicit: self.explicit,
            wait: self.wait.unwrap_or_default(),
            owner: self.owner,
            metadata: self.metadata,
            authorization: caller.authorization(&name),
            name,
            caller: caller.id(),
            idempotency_key,
        })
    }
}

impl RequestBody for AcquireBody {
    const ABOUT: Field = ACQUIRE;

    fn read(fields: &mut Fields<'_>) -> Self {
        let default = Ttl::from_millis(fields.limits.default_ttl_ms.0)
            .expect("the default TTL was checked when the configuration was read");
        let asked_ttl = ttl(fields, &TTL);
        let ttl = asked_ttl.unwrap_or(default);
        let wait = fields.whole(&WAIT).map(Duration::from_millis);
        let hold_limit = fields.whole(&MAX_HOLD);
        let hold_limit =
            hold_limit.and_then(|ms| fields.check(&MAX_HOLD, HoldLimit::from_millis(ms, ttl)));
        let explicit = ExplicitTerms {
            ttl: asked_ttl,
            hold_limit,
        };
        let sharing = sharing(fields);
        let owner = fields.parsed(&OWNER, Owner::new);
        let metadata = fields.texts(&METADATA);
        let metadata = metadata.and_then(|texts| fields.check(&METADATA, Metadata::new(texts)));
        Self {
            ttl,
            explicit,
            wait,
            hold_limit,
            sharing,
            owner,
            metadata: metadata.unwrap_or_default(),
        }
    }
}

/// A field with a TTL.
pub(super) fn ttl(fields: &mut Fields<'_>, field: &'static Field) -> Option<Ttl> {
    let ms = fields.whole(field)?;
    fields.check(field, Ttl::from_millis(ms))
}

fn sharing(fields: &mut Fields<'_>) -> Option<Sharing> {
    let mode = fields.text(&MODE);
    let limit = fields.whole(&LIMIT);
    match mode.as_deref() {
        None => _ = limit?,
        Some("shared") => {}
        Some("exclusive") => {
            if limit.is_some() {
                let reason = "is of a shared lock; leave it out, or ask for the mode shared";
                fields.refuse(&LIMIT, reason);
            }
            return None;
        }
        Some(_) => {
            fields.refuse(&MODE, "is not known; the modes are exclusive and shared");
            return None;
        }
    }
    let asked = limit.unwrap_or(fields.limits.max_holders);
    Some(Sharing {
        limit: fields.check(&LIMIT, Limit::new(asked))?,
        has_slot: limit.is_some(),
    })
}
