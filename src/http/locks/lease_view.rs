//! A lease as it is told outside: to its holder, alone or with others, to others who want the lock, and to those who view
//! it.

use std::{
    borrow::Cow,
    fmt,
    time::{Duration, SystemTime},
};

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use humantime::Rfc3339Timestamp;
use serde::{Serialize, Serializer, ser::Error};
use serde_json::value::RawValue;
use tokio::time::Instant;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema, schema::SchemaType},
};

use crate::{
    auth::Access,
    config::LimitsConfig,
    http::{
        extract::{Field, Form, declare_fields},
        json_response::{JSON, ObjectWriter, json_by},
    },
    lock::{ForeignMark, HeldLease, Lease, LockName, Metadata, Owner, ReleaseRequest, Token},
    store::contract::{Holder, SHOWN_HOLDERS},
};

/// Everything that is ever told of a lease, or of a foreign client that holds a lock. An answer has those fields that
/// its audience is told ([`Told`]).
#[derive(Debug, Clone, Default, ToSchema)]
pub(in crate::http) struct LeaseView {
    /// The lock that is held.
    #[schema(value_type = Option<String>, required = true)]
    name: Option<LockName>,
    /// The secret that renews and releases the lease. Whoever has it may do both.
    #[schema(value_type = Option<String>, required = true, min_length = 43, max_length = 43)]
    token: Option<Token>,
    /// A number that is larger for each new grant of the lock; null for a foreign client.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64, required = true)]
    fencing_token: Option<u64>,
    /// `exclusive` or `shared`; null for a foreign client.
    #[schema(required = true)]
    mode: Option<&'static str>,
    /// With a `limit`: the smallest number from 0 that no other lease of the lock has. Else null.
    #[schema(required = true)]
    slot: Option<u16>,
    /// For how long the lease was last granted; null for a foreign client.
    #[schema(required = true)]
    ttl_ms: Option<u64>,
    /// What is left of the lease, at least; null if a foreign client holds the lock without an expiry.
    #[schema(required = true)]
    expires_in_ms: Option<u64>,
    /// When the lease ends, by the clock of the gateway; null if it has no expiry.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    expires_at: Option<Timestamp>,
    /// When the lease was granted, by the clock of the gateway; null for a foreign client.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    acquired_at: Option<Timestamp>,
    /// After how long to renew the lease: a third of what is left.
    #[schema(required = true)]
    renew_after_ms: Option<u64>,
    /// What is left until `max_hold_ms`, past which no renewal goes; null if it was not given.
    #[schema(required = true)]
    hold_expires_in_ms: Option<u64>,
    /// Who asked for the lease; null if nobody was named, or the API key may not view the lock.
    #[schema(value_type = Option<String>, required = true)]
    owner: Option<Owner>,
    /// What the holder attached to the lease; empty if the API key may not view the lock.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    metadata: MetadataBody,
    /// How long the request waited for the lock, with the earlier requests under its `Idempotency-Key` whose place it went
    /// on with.
    #[schema(required = true)]
    waited_ms: Option<u64>,
    /// Whether a client that does not use the gateway took the lock in the store itself.
    foreign: bool,
    /// What distinguishes one foreign holder from another, for a break: a hash of what it has written. Null for
    /// a lease, and for what no client writes into a lock.
    #[schema(value_type = Option<String>, required = true, min_length = 40, max_length = 40, pattern = "^[0-9a-f]{40}$")]
    foreign_mark: Option<ForeignMark>,
    /// The request for several locks that the lease is a part of; else null.
    #[schema(required = true)]
    group: Option<GroupBody>,
    /// A lease of each lock, in the order of the names.
    #[schema(min_items = 2, max_items = 16)]
    leases: Vec<GroupPartBody>,
    /// Only if the holder was asked to release the lock, and the API key may know.
    #[schema(value_type = ReleaseRequestBody, required = false)]
    release_requested: Option<Box<ReleaseRequest>>,
}

/// A lease as an audience is told of it.
#[derive(Debug, Clone)]
pub(in crate::http) struct Told<const AUDIENCE: u8>(LeaseView);

/// The holder of a lease, as the answer to its request.
const HOLDER: u8 = 1;
/// The holder of several leases, as one of them.
const PART: u8 = 2;
/// Those who may view the lock.
const VIEWER: u8 = 4;
/// Those who asked for the lock and did not get it.
const REFUSED: u8 = 8;
/// The holder of several leases, of all together.
const GROUP: u8 = 16;
/// Those who have a token.
const OWN: u8 = HOLDER | GROUP;
/// Those who are told of one lease.
const ONE: u8 = HOLDER | PART | VIEWER | REFUSED;

// The names are for the OpenAPI document, whose types have no parameters.
pub(in crate::http) type LeaseBody = Told<HOLDER>;
pub(in crate::http) type GroupPartBody = Told<PART>;
pub(in crate::http) type HolderBody = Told<VIEWER>;
pub(in crate::http) type CurrentHolder = Told<REFUSED>;
pub(in crate::http) type GroupLeaseBody = Told<GROUP>;

/// Several locks that were acquired as one.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Group)]
pub(in crate::http) struct GroupBody {
    /// The first of their names; null if the API key may not view that lock.
    #[schema(required = true)]
    first: Option<String>,
    /// How many they were.
    #[schema(minimum = 2, maximum = 16)]
    count: u8,
}

/// Somebody wants the lock: its holder is asked to release it in time. What is left of the lease then is broken.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ReleaseRequest)]
pub(in crate::http) struct ReleaseRequestBody {
    /// The name of the API key that asked; null if the gateway has none.
    #[schema(required = true)]
    by: Option<String>,
    /// Why, as whoever asked has said it.
    reason: String,
    /// How much time is left, rounded down. Release the lock before it is over.
    within_ms: u64,
}

/// Metadata as a JSON object; an empty one if there is none.
#[derive(Debug, Clone, Default)]
pub(in crate::http) struct MetadataBody(Metadata);

/// RFC 3339 in UTC.
#[derive(Debug, Clone)]
pub(in crate::http) struct Timestamp(Rfc3339Timestamp);

declare_fields! {
    /// A lease, as only its holder gets to see it: it has the token.
    ///
    /// Hand the fencing token to whatever the lock protects, and let that refuse any number smaller than the largest it has
    /// seen. The fencing token of a shared lease orders grants, and does not exclude the other holders.
    ///
    /// The gateway has subtracted the time since it asked the store from `expires_in_ms`. Count it from when you *received*
    /// the answer, and leave the time that the answer may have travelled. To be certain, count from when you sent the
    /// request, and renew first if it waited.
    const TO_HOLDER: "Lease" => Form::TEXT.example(r#"{
        "name": "deploy:prod",
        "token": "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU",
        "fencing_token": 1795170000000042,
        "mode": "exclusive", "slot": null,
        "ttl_ms": 30000, "expires_in_ms": 30000, "expires_at": "2026-11-20T12:00:30.000Z",
        "acquired_at": "2026-11-20T12:00:00.000Z",
        "renew_after_ms": 10000, "hold_expires_in_ms": null,
        "owner": "ci-runner-7", "metadata": {"job": "4711"},
        "waited_ms": 0
    }"#);
    /// One of the leases.
    const TO_HOLDER_OF_PART: "GroupPart" => Form::TEXT;
    /// Leases of several locks, as only their holder gets to see them: the token renews and releases all of them, together
    /// or one by one.
    ///
    /// `ttl_ms`, `expires_in_ms` and `expires_at` are those of the lease that ends first; count them as those of one lease.
    /// `hold_expires_in_ms` is that of the first `max_hold_ms` that is over. It counts from the grant of each lock, so the wait
    /// for the others is a part of it.
    const TO_HOLDER_OF_GROUP: "GroupLease" => Form::TEXT.example(r#"{
        "leases": [{
            "name": "cluster:eu", "fencing_token": 1795170000000042, "mode": "exclusive",
            "slot": null, "expires_in_ms": 30000, "acquired_at": "2026-11-20T12:00:00.000Z",
            "hold_expires_in_ms": null
        }, {
            "name": "database", "fencing_token": 1795170000000007, "mode": "exclusive",
            "slot": null, "expires_in_ms": 30000, "acquired_at": "2026-11-20T12:00:00.000Z",
            "hold_expires_in_ms": null
        }],
        "token": "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU",
        "ttl_ms": 30000, "expires_in_ms": 30000, "expires_at": "2026-11-20T12:00:30.000Z",
        "renew_after_ms": 10000, "hold_expires_in_ms": null,
        "owner": "ci-runner-7", "metadata": {"job": "4711"}, "waited_ms": 0
    }"#);
    /// Who holds a lock. Of a foreign client only its expiry and its mark are known.
    const TO_VIEWER: "Holder" => Form::TEXT;
    /// Who holds the lock that was asked for.
    const TO_REFUSED: "CurrentHolder" => Form::TEXT;
}

// === impl LeaseView ===

impl LeaseView {
    /// A lease as it is now, of which so much is left. `now` is the wall time of the gateway, for the timestamps.
    fn new(held: HeldLease, left: Duration, now: SystemTime) -> Self {
        Self {
            fencing_token: Some(held.fence.get()),
            mode: Some(held.mode.as_str()),
            slot: held.mode.slot(),
            ttl_ms: Some(held.ttl.as_millis()),
            expires_in_ms: Some(millis(left)),
            expires_at: Some(displayed(now.checked_add(left))),
            acquired_at: Some(displayed(now.checked_sub(held.held_for))),
            renew_after_ms: Some(millis(held.renew_after())),
            hold_expires_in_ms: held.hold_expires_in.map(millis),
            owner: held.owner,
            metadata: MetadataBody(held.metadata),
            release_requested: held.release_requested,
            ..Self::default()
        }
    }

    /// A lease that its holder is told of.
    pub(super) fn of_own(lease: Lease, now: SystemTime) -> Self {
        // Here, and not where the store has answered: the gateway may have stood still since.
        let held = lease.held.at(Instant::now());
        let left = held.good_for();
        Self {
            name: Some(lease.name),
            token: Some(lease.token),
            waited_ms: Some(millis(lease.waited)),
            ..Self::new(held, left, now)
        }
    }

    /// Leases of several locks that their holder is told of.
    fn of_group(leases: Vec<Lease>, waited: Duration, now: SystemTime) -> Self {
        let leases = leases.into_iter().map(|lease| Self::of_own(lease, now));
        let leases: Vec<_> = leases.collect();
        let least = |field: fn(&Self) -> Option<u64>| leases.iter().filter_map(field).min();
        let ends_first = leases.iter().min_by_key(|lease| lease.expires_in_ms);
        let group = Self {
            renew_after_ms: least(|lease| lease.renew_after_ms),
            hold_expires_in_ms: least(|lease| lease.hold_expires_in_ms),
            waited_ms: Some(millis(waited)),
            ..ends_first.cloned().unwrap_or_default()
        };
        let leases = leases.into_iter().map(Told).collect();
        Self { leases, ..group }
    }

    /// Who holds a lock, as many as are shown of them. `group` says what is told of the locks that a lease was acquired with.
    pub(in crate::http) fn of_holders(
        holder: Holder,
        now: SystemTime,
        group: impl Fn(&Metadata) -> Option<GroupBody>,
    ) -> Vec<Self> {
        let as_of = Instant::now();
        let of_lease = |lease: HeldLease| {
            let lease = lease.at(as_of);
            let (left, group) = (lease.expires_in, group(&lease.metadata));
            Self {
                group,
                ..Self::new(lease, left, now)
            }
        };
        match holder {
            Holder::Lease(lease) => vec![of_lease(lease)],
            Holder::Shared(holders) => {
                let shown = holders.leases.into_iter().take(SHOWN_HOLDERS);
                shown.map(of_lease).collect()
            }
            Holder::Foreign { expires_in, mark } => vec![Self {
                expires_in_ms: expires_in.map(millis),
                expires_at: expires_in.map(|left| displayed(now.checked_add(left))),
                foreign: true,
                foreign_mark: mark,
                ..Self::default()
            }],
        }
    }

    /// What an audience is told, as JSON. Written field by field, since most answers are leases: a serializer takes 2.7
    /// times as many instructions.
    ///
    /// Each field names those who are told of it, so that no other is shown a new one by mistake.
    fn tell(&self, audience: u8, json: &mut Vec<u8>) {
        let mut token = [0; Token::TEXT_LEN];
        let token = self.token.as_ref().map(|it| it.expose_into(&mut token));
        let name = self.name.as_ref().map(LockName::as_str);
        let owner = self.owner.as_ref().map(Owner::as_str);
        let mark = self.foreign_mark.as_ref().map(ForeignMark::as_str);
        let mut object = ObjectWriter::new(json);
        let told = |audiences: u8| audiences & audience != 0;
        object.field_if(told(GROUP), "leases", &self.leases);
        object.field_if(told(HOLDER | PART), "name", name);
        object.field_if(told(OWN), "token", token);
        object.field_if(told(ONE), "fencing_token", self.fencing_token);
        object.field_if(told(ONE), "mode", self.mode);
        object.field_if(told(ONE), "slot", self.slot);
        object.field_if(told(OWN | VIEWER), "ttl_ms", self.ttl_ms);
        object.field_if(true, "expires_in_ms", self.expires_in_ms);
        object.field_if(told(OWN | VIEWER), "expires_at", &self.expires_at);
        object.field_if(told(ONE & !REFUSED), "acquired_at", &self.acquired_at);
        object.field_if(told(OWN), "renew_after_ms", self.renew_after_ms);
        let hold_expires_in_ms = self.hold_expires_in_ms;
        object.field_if(told(!REFUSED), "hold_expires_in_ms", hold_expires_in_ms);
        object.field_if(told(!PART), "owner", owner);
        object.field_if(told(!PART), "metadata", &self.metadata);
        object.field_if(told(OWN), "waited_ms", self.waited_ms);
        object.field_if(told(VIEWER | REFUSED), "foreign", self.foreign);
        object.field_if(told(VIEWER), "foreign_mark", mark);
        object.field_if(told(VIEWER), "group", &self.group);
        let request = self
            .release_requested
            .as_deref()
            .map(ReleaseRequestBody::of);
        object.field_if(request.is_some() && told(ONE), "release_requested", request);
        object.end();
    }
}

// === impl Told ===

impl<const AUDIENCE: u8> Told<AUDIENCE> {
    fn about() -> &'static Field {
        match AUDIENCE {
            HOLDER => &TO_HOLDER,
            PART => &TO_HOLDER_OF_PART,
            GROUP => &TO_HOLDER_OF_GROUP,
            VIEWER => &TO_VIEWER,
            _ => &TO_REFUSED,
        }
    }

    pub(super) fn to_json(&self) -> Bytes {
        json_by(|json| self.0.tell(AUDIENCE, json))
    }
}

impl LeaseBody {
    /// The lease as it is now. `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(lease: Lease, now: SystemTime) -> Self {
        Self(LeaseView::of_own(lease, now))
    }
}

impl GroupLeaseBody {
    /// The leases as they are now. `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(leases: Vec<Lease>, waited: Duration, now: SystemTime) -> Self {
        Self(LeaseView::of_group(leases, waited, now))
    }
}

impl HolderBody {
    /// Who holds a lock. `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn all_of(holder: Holder, now: SystemTime, viewer: &Access) -> Vec<Self> {
        let group = |metadata: &Metadata| {
            metadata.group().map(|group| GroupBody {
                first: viewer
                    .views(&group.first)
                    .then(|| group.first.as_str().to_owned()),
                count: group.count,
            })
        };
        let views = LeaseView::of_holders(holder, now, group).into_iter();
        views.map(Self).collect()
    }
}

impl CurrentHolder {
    pub(in crate::http) fn all_of(holder: Holder) -> Vec<Self> {
        // No timestamp is told.
        let views = LeaseView::of_holders(holder, SystemTime::UNIX_EPOCH, |_| None);
        views.into_iter().map(Self).collect()
    }
}

impl IntoResponse for LeaseBody {
    fn into_response(self) -> Response {
        (JSON, self.to_json()).into_response()
    }
}

impl<const AUDIENCE: u8> Serialize for Told<AUDIENCE> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = Vec::new();
        self.0.tell(AUDIENCE, &mut json);
        let json = String::from_utf8(json).map(RawValue::from_string);
        json.map_err(S::Error::custom)?
            .map_err(S::Error::custom)?
            .serialize(serializer)
    }
}

impl<const AUDIENCE: u8> ToSchema for Told<AUDIENCE> {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed(Self::about().name)
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        // A part has what the whole group has, and would name itself among it.
        if AUDIENCE != PART {
            LeaseView::schemas(schemas);
        }
    }
}

/// The part of the schema of all fields that this audience is told.
impl<const AUDIENCE: u8> PartialSchema for Told<AUDIENCE> {
    fn schema() -> RefOr<Schema> {
        let told = serde_json::to_value(Self(LeaseView::default()));
        let told = told.expect("a lease has text keys");
        let is_told = |name: &String| {
            told.get(name).is_some() || AUDIENCE != GROUP && name == "release_requested"
        };
        let mut schema = LeaseView::schema();
        let RefOr::T(Schema::Object(object)) = &mut schema else {
            unreachable!("a struct is described as an object")
        };
        object.properties.retain(|name, _| is_told(name));
        object.required.retain(is_told);
        for (name, property) in &mut object.properties {
            // What is always there for the holder of a lease is not known of a foreign client.
            let is_of_lease = AUDIENCE & (OWN | PART) != 0;
            let may_be_null = matches!(&**name, "slot" | "hold_expires_in_ms" | "owner");
            if let RefOr::T(Schema::Object(property)) = property
                && is_of_lease
                && !may_be_null
            {
                if let SchemaType::Array(types) = &property.schema_type {
                    property.schema_type = types[0].clone().into();
                }
                if let Some(text) = &mut property.description
                    && let Some(at) = text.find("; ")
                {
                    text.replace_range(at.., ".");
                }
            }
        }
        Self::about().describe(object, &LimitsConfig::default());
        schema
    }
}

// === impl ReleaseRequestBody ===

impl ReleaseRequestBody {
    pub(in crate::http) fn of(request: &ReleaseRequest) -> Self {
        Self {
            by: request.by.as_deref().map(str::to_owned),
            reason: request.reason.as_str().to_owned(),
            within_ms: millis(request.within),
        }
    }

    /// What was asked of the holder of a lease, if anything.
    pub(in crate::http) fn of_lease(lease: &HeldLease) -> Option<Self> {
        lease.release_requested.as_deref().map(Self::of)
    }
}

// === impl MetadataBody ===

impl Serialize for MetadataBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
    }
}

// === impl Timestamp ===

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Whole milliseconds, rounded down: what is left of a lease is never told too long.
pub(in crate::http) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// RFC 3339 in UTC. A gateway whose clock is not within the years that can be written shows the
/// beginning of 1970: the timestamp is for display only and no reason to fail.
pub(in crate::http) fn timestamp(time: Option<SystemTime>) -> String {
    displayed(time).to_string()
}

fn displayed(time: Option<SystemTime>) -> Timestamp {
    /// The end of the year 9999, in seconds.
    const END: Duration = Duration::from_secs(253_402_300_799);
    let time = time
        .filter(|time| {
            time.duration_since(SystemTime::UNIX_EPOCH)
                .is_ok_and(|since| since <= END)
        })
        .unwrap_or(SystemTime::UNIX_EPOCH);
    Timestamp(humantime::format_rfc3339_millis(time))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::lock::{FencingToken, HeldLease, Mode, Ttl};

    use super::*;

    #[test]
    fn is_written_as_json_whatever_its_owner_and_metadata_say() {
        let metadata = BTreeMap::from([("\\".to_owned(), "a \"b\"".to_owned())]);
        let lease = Lease {
            name: LockName::new("deploy:eu").unwrap(),
            token: Token::random(),
            held: HeldLease {
                fence: FencingToken::new(17).unwrap(),
                mode: Mode::Shared { slot: Some(2) },
                ttl: Ttl::from_millis(30_000).unwrap(),
                expires_in: Duration::from_secs(20),
                held_for: Duration::from_millis(1_500),
                hold_expires_in: None,
                owner: Some(Owner::new("\"me\", \u{fc}").unwrap()),
                metadata: Metadata::new(metadata).unwrap(),
                release_requested: None,
                as_of: Instant::now() + Duration::from_mins(1),
            },
            waited: Duration::from_millis(7),
        };
        let token = lease.token.expose();
        let json = LeaseBody::new(lease, SystemTime::UNIX_EPOCH + Duration::from_secs(2)).to_json();
        let told: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(
            told,
            serde_json::json!({
                "name": "deploy:eu", "token": token, "fencing_token": 17, "mode": "shared", "slot": 2,
                "ttl_ms": 30_000, "expires_in_ms": 20_000,
                "expires_at": "1970-01-01T00:00:22.000Z",
                "acquired_at": "1970-01-01T00:00:00.500Z", "renew_after_ms": 6_666,
                "hold_expires_in_ms": null, "owner": "\"me\", \u{fc}",
                "metadata": {"\\": "a \"b\""}, "waited_ms": 7,
            })
        );
        assert!(json.ends_with(b"}\n"));
    }

    #[test]
    fn shows_a_timestamp_whatever_the_clock_says() {
        let epoch = SystemTime::UNIX_EPOCH;
        let day = Duration::from_hours(24);
        for (time, text) in [
            (
                epoch.checked_add(Duration::from_millis(1_234)),
                "1970-01-01T00:00:01.234Z",
            ),
            (epoch.checked_sub(day), "1970-01-01T00:00:00.000Z"),
            (
                epoch.checked_add(day * 4_000_000),
                "1970-01-01T00:00:00.000Z",
            ),
            (None, "1970-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(time), text);
        }
    }
}
