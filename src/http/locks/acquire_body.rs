//! What acquire and hold take.

use std::{collections::BTreeMap, time::Duration};

use utoipa::{
    ToSchema,
    openapi::{
        Object, ObjectBuilder,
        schema::{SchemaType, Type},
    },
};

use crate::{
    auth::Access,
    config::LimitsConfig,
    engine::{AcquireRequest, ExplicitTerms},
    http::{
        extract::{AppliedWait, Fields, PreferredWait, RequestBody},
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

/// What is asked for. Every field may be left out; null is the same as leaving it out.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AcquireBody, example = json!({"ttl_ms": 30_000, "wait_ms": 10_000, "owner": "ci-runner-7", "metadata": {"job": "4711"}}))]
#[expect(dead_code, reason = "it only describes what `AcquireBody` reads")]
pub(in crate::http) struct AcquireSchema {
    /// For how long the lease is granted, in milliseconds. It ends by itself then, unless it is
    /// renewed before: there is no lock without an expiry. Left out: 30000.
    #[schema(minimum = 100, maximum = 86_400_000)]
    ttl_ms: Option<u64>,
    /// How long to wait for a lock that is held, in milliseconds. 0, or left out: not at all. Your own
    /// time-out must be longer, and so must that of every proxy on the way.
    #[schema(minimum = 0, maximum = 55_000)]
    wait_ms: Option<u64>,
    /// The longest time that the lease may be kept with renewals, in milliseconds from its grant.
    /// Not less than `ttl_ms`. Left out: renewals may go on for ever.
    #[schema(minimum = 100, maximum = 604_800_000)]
    max_hold_ms: Option<u64>,
    /// `exclusive`, to hold the lock alone, or `shared`. Left out: `exclusive`, or with a `limit` `shared`.
    #[schema(pattern = "^(exclusive|shared)$")]
    mode: Option<String>,
    /// With `shared`: the lock is granted while fewer than so many hold it, and the lease has a `slot`. It binds
    /// at this grant only, so use one limit per name.
    #[schema(minimum = 1, maximum = 1_000)]
    limit: Option<u64>,
    /// Who asks, for people to read: shown to those who find the lock held, never trusted. No
    /// control characters.
    #[schema(
        min_length = 1,
        max_length = 128,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    owner: Option<String>,
    /// Small facts to attach to the lease, shown like the owner: at most 16 texts, names and values
    /// together at most 2048 bytes. No empty names, no control characters.
    #[schema(schema_with = metadata_schema, required = false)]
    metadata: Option<BTreeMap<String, String>>,
}

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
    fn read(fields: &mut Fields<'_>, limits: &LimitsConfig) -> Self {
        let default = Ttl::from_millis(limits.default_ttl_ms.0)
            .expect("the default TTL was checked when the configuration was read");
        let asked_ttl = ttl(fields, limits);
        let ttl = asked_ttl.unwrap_or(default);
        let wait = wait(fields, limits);
        let hold_limit = hold_limit(fields, limits, ttl);
        let explicit = ExplicitTerms {
            ttl: asked_ttl,
            hold_limit,
        };
        Self {
            ttl,
            explicit,
            wait,
            hold_limit,
            sharing: sharing(fields, limits),
            owner: owner(fields),
            metadata: metadata(fields),
        }
    }
}

/// The field `ttl_ms`, which renew has too.
pub(super) fn ttl(fields: &mut Fields<'_>, limits: &LimitsConfig) -> Option<Ttl> {
    let ms = fields.whole("ttl_ms")?;
    let (least, most) = (limits.min_ttl_ms.0, limits.max_ttl_ms.0);
    if !(least..=most).contains(&ms) {
        let reason = format!("is {ms} ms; allowed are {least} to {most} ms");
        fields.refuse("ttl_ms", reason);
        return None;
    }
    fields.check("ttl_ms", Ttl::from_millis(ms))
}

fn wait(fields: &mut Fields<'_>, limits: &LimitsConfig) -> Option<Duration> {
    let ms = fields.whole("wait_ms")?;
    let most = limits.max_wait_ms.0;
    if ms > most {
        let reason = format!("is {ms} ms; at most {most} ms are allowed");
        fields.refuse("wait_ms", reason);
    }
    Some(Duration::from_millis(ms))
}

fn hold_limit(fields: &mut Fields<'_>, limits: &LimitsConfig, ttl: Ttl) -> Option<HoldLimit> {
    let ms = fields.whole("max_hold_ms")?;
    let most = limits.max_hold_limit_ms.0;
    if ms > most {
        let reason = format!("is {ms} ms; at most {most} ms are allowed");
        fields.refuse("max_hold_ms", reason);
        return None;
    }
    fields.check("max_hold_ms", HoldLimit::from_millis(ms, ttl))
}

fn sharing(fields: &mut Fields<'_>, limits: &LimitsConfig) -> Option<Sharing> {
    let mode = fields.text("mode");
    let limit = fields.whole("limit");
    let is_shared = match mode.as_deref() {
        None => limit.is_some(),
        Some("shared") => true,
        Some("exclusive") => {
            if limit.is_some() {
                let reason = "is of a shared lock; leave it out, or ask for the mode shared";
                fields.refuse("limit", reason);
            }
            return None;
        }
        Some(_) => {
            fields.refuse("mode", "is not known; the modes are exclusive and shared");
            return None;
        }
    };
    let most = limits.max_holders;
    let asked = limit.unwrap_or(most);
    if !(1..=most).contains(&asked) {
        fields.refuse("limit", format!("is {asked}; allowed are 1 to {most}"));
        return None;
    }
    let checked = fields.check("limit", Limit::new(asked))?;
    is_shared.then_some(Sharing {
        limit: checked,
        has_slot: limit.is_some(),
    })
}

fn owner(fields: &mut Fields<'_>) -> Option<Owner> {
    let text = fields.text("owner")?;
    fields.check("owner", Owner::new(&text))
}

fn metadata(fields: &mut Fields<'_>) -> Metadata {
    let Some(texts) = fields.texts("metadata") else {
        return Metadata::default();
    };
    fields
        .check("metadata", Metadata::new(texts))
        .unwrap_or_default()
}

fn metadata_schema() -> Object {
    let text = |least, most| {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .min_length(least)
            .max_length(Some(most))
            .pattern(Some(r"^[^\u0000-\u001f\u007f-\u009f]*$"))
    };
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .description(Some(
            "Small facts to attach to the lease, shown like the owner: at most 16 texts, names and \
             values together at most 2048 bytes. No empty names, no control characters.",
        ))
        .max_properties(Some(Metadata::MAX_ENTRIES))
        .property_names(Some(text(Some(1), Metadata::MAX_BYTES)))
        .additional_properties(Some(text(None, Metadata::MAX_BYTES)))
        .build()
}
