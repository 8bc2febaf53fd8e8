//! What acquire takes.

use std::time::Duration;

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
        extract::{Fields, RequestBody},
        problem::Problem,
    },
    lock::{HoldLimit, IdempotencyKey, LockName, Metadata, Owner, Ttl},
};

/// What is asked for. Every field may be left out; null is the same as leaving it out.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"ttl_ms": 30_000, "wait_ms": 10_000, "owner": "ci-runner-7", "metadata": {"job": "4711"}}))]
pub(in crate::http) struct AcquireBody {
    /// For how long the lease is granted, in milliseconds. It ends by itself then, unless it is
    /// renewed before: there is no lock without an expiry.
    #[schema(
        rename = "ttl_ms", value_type = Option<u64>,
        minimum = 100, maximum = 86_400_000, default = 30_000
    )]
    ttl: Ttl,
    #[schema(ignore)]
    explicit: ExplicitTerms,
    /// How long to wait for a lock that is held, in milliseconds. 0 asks without waiting. Your own
    /// time-out must be longer, and so must that of every proxy on the way: stay at or below 25000
    /// behind an API gateway that gives up after 29 s.
    #[schema(
        rename = "wait_ms", value_type = Option<u64>,
        minimum = 0, maximum = 55_000, default = 0
    )]
    wait: Duration,
    /// The longest time that the lease may be kept with renewals, in milliseconds from its grant.
    /// Not less than `ttl_ms`. Left out: renewals may go on for ever.
    #[schema(
        rename = "max_hold_ms", value_type = Option<u64>,
        minimum = 100, maximum = 604_800_000
    )]
    hold_limit: Option<HoldLimit>,
    /// Who asks, for people to read: shown to those who find the lock held, never trusted. No
    /// control characters.
    #[schema(
        value_type = Option<String>,
        min_length = 1, max_length = 128, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    owner: Option<Owner>,
    /// Small facts to attach to the lease, shown like the owner: at most 16 texts, names and values
    /// together at most 2048 bytes. No empty names, no control characters.
    #[schema(schema_with = metadata_schema, required = false)]
    metadata: Metadata,
}

/// The hold limit of a lock that is held by a stream, if none is asked for: a client that is frozen
/// and a proxy that buffers cannot be told from a client that listens.
const DEFAULT_HOLD_LIMIT: Duration = Duration::from_hours(24);

// === impl AcquireBody ===

impl AcquireBody {
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
            explicit: self.explicit,
            wait: self.wait,
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
        let reason = format!("is {ms}; allowed are {least} to {most} milliseconds");
        fields.refuse("ttl_ms", reason);
        return None;
    }
    fields.check("ttl_ms", Ttl::from_millis(ms))
}

fn wait(fields: &mut Fields<'_>, limits: &LimitsConfig) -> Duration {
    let ms = fields.whole("wait_ms").unwrap_or(0);
    let most = limits.max_wait_ms.0;
    if ms > most {
        let reason = format!("is {ms}; at most {most} milliseconds are allowed");
        fields.refuse("wait_ms", reason);
    }
    Duration::from_millis(ms)
}

fn hold_limit(fields: &mut Fields<'_>, limits: &LimitsConfig, ttl: Ttl) -> Option<HoldLimit> {
    let ms = fields.whole("max_hold_ms")?;
    let most = limits.max_hold_limit_ms.0;
    if ms > most {
        let reason = format!("is {ms}; at most {most} milliseconds are allowed");
        fields.refuse("max_hold_ms", reason);
        return None;
    }
    fields.check("max_hold_ms", HoldLimit::from_millis(ms, ttl))
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
