//! Views of a lease for its holder (alone or in a group), for callers that want the lock, and for callers
//! that may view it.

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
    clock::rfc3339,
    config::LimitsConfig,
    engine::AwaitedLock,
    http::{
        extract::{Field, Form, declare_fields},
        json_response::{JSON, ObjectWriter, json_by},
    },
    lock::{
        FencingToken, ForeignMark, Group, HeldLease, Lease, LockName, Metadata, Owner, Reason,
        ReleaseRequest, Reservation, Said, Token,
        answers::{self, LockState, Rest},
    },
    store::contract::{Holder, SHOWN_HOLDERS},
};

/// All fields that any answer shows of a lease, or of a foreign client that holds a lock. An answer has only
/// the fields that its audience may see ([`Told`]).
#[derive(Debug, Clone, Default, ToSchema)]
pub(in crate::http) struct LeaseView {
    /// The name of the lock.
    #[schema(value_type = Option<String>, required = true)]
    name: Option<LockName>,
    /// The secret that renews and releases the lease. Every caller that has the token may do both.
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
    /// The TTL of the lease at its last grant or renewal; null for a foreign client.
    #[schema(required = true)]
    ttl_ms: Option<u64>,
    /// Time left of the lease, at least; null if a foreign client holds the lock without an expiry.
    #[schema(required = true)]
    expires_in_ms: Option<u64>,
    /// When the lease ends, by the clock of the gateway; null if the lock has no expiry.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    expires_at: Option<Timestamp>,
    /// When the lease was granted, by the clock of the gateway; null for a foreign client.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    acquired_at: Option<Timestamp>,
    /// After how long to renew the lease: a third of what is left.
    #[schema(required = true)]
    renew_after_ms: Option<u64>,
    /// Time left until `max_hold_ms`, past which no renewal goes; null if it was not given.
    #[schema(required = true)]
    hold_expires_in_ms: Option<u64>,
    /// Owner text of the lease; null if none was given, or the API key may not view the lock.
    #[schema(value_type = Option<String>, required = true)]
    owner: Option<Owner>,
    /// What the holder attached to the lease; empty if the API key may not view the lock.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    metadata: MetadataBody,
    /// How long the request waited for the lock, including earlier requests with its `Idempotency-Key` whose
    /// position it continued.
    #[schema(required = true)]
    waited_ms: Option<u64>,
    /// Whether a client that does not use the gateway took the lock in the store itself.
    foreign: bool,
    /// The mark of a foreign holder, for a break: a hash of the value that it has written. Null for a lease,
    /// and for a value that no lock client writes.
    #[schema(value_type = Option<String>, required = true, min_length = 40, max_length = 40, pattern = "^[0-9a-f]{40}$")]
    foreign_mark: Option<ForeignMark>,
    /// The request for several locks that the lease is a part of; null for a single lock.
    #[schema(required = true)]
    group: Option<GroupBody>,
    /// True if the holder has not got its locks yet: the lease is part of a group that waits for another lock, and
    /// keeps this lock for the group. Breaking the lease does not help the group. Only if it is so, and the API key may
    /// view the lock.
    #[schema(value_type = bool, required = false)]
    waiting: bool,
    /// The lock that the group of a `waiting` holder waits for. Only in the answer to an inspection.
    #[schema(value_type = AwaitedBody, required = false)]
    waits_for: Option<Box<AwaitedBody>>,
    /// A lease of each lock, in the order of the names.
    #[schema(min_items = 2, max_items = 16)]
    leases: Vec<GroupPartBody>,
    /// The reservation that the lease is. Only if it is one, and the API key may see it.
    #[schema(value_type = answers::Reservation, required = false)]
    reservation: Option<Box<Reservation>>,
    /// The order with which the lease was granted. Only if it has one, and the API key may see it.
    #[schema(value_type = u64, required = false, maximum = 9_007_199_254_740_991_u64)]
    order: Option<u64>,
    /// Why the lease goes back to an older order. Only if it does, and the API key may see it.
    #[schema(value_type = String, required = false)]
    rollback: Option<Reason>,
    /// The release request for the lease. Only if there is one, and the API key may see it.
    #[schema(value_type = answers::ReleaseRequest, required = false)]
    release_requested: Option<Box<ReleaseRequest>>,
}

/// A lease as one audience sees it.
#[derive(Debug, Clone)]
pub(in crate::http) struct Told<const AUDIENCE: u8>(LeaseView);

/// How many holders of a lock an answer shows to say what a group waits for: many groups may wait for one lock.
const AWAITED_HOLDERS: usize = 3;

/// Audience: the holder of a lease, in the answer to its request.
const HOLDER: u8 = 1;
/// Audience: the holder of several leases, for one of the leases.
const PART: u8 = 2;
/// Audience: callers that may view the lock.
const VIEWER: u8 = 4;
/// Audience: callers that asked for the lock and did not get it.
const REFUSED: u8 = 8;
/// Audience: the holder of several leases, for all of them together.
const GROUP: u8 = 16;
/// Audiences that see a token.
const OWN: u8 = HOLDER | GROUP;
/// Audiences that see the fields of a single lease.
const ONE: u8 = HOLDER | PART | VIEWER | REFUSED;

// The OpenAPI document needs a named type for each audience: its types have no parameters.
pub(in crate::http) type LeaseBody = Told<HOLDER>;
pub(in crate::http) type GroupPartBody = Told<PART>;
pub(in crate::http) type HolderBody = Told<VIEWER>;
pub(in crate::http) type CurrentHolder = Told<REFUSED>;
pub(in crate::http) type GroupLeaseBody = Told<GROUP>;

/// Several locks that were acquired with one request.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Group)]
pub(in crate::http) struct GroupBody {
    /// The first name of the group; null if the API key may not view that lock.
    #[schema(required = true)]
    first: Option<String>,
    /// The number of locks in the group.
    #[schema(minimum = 2, maximum = 16)]
    count: u8,
}

/// The lock that a group waits for.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = AwaitedLock)]
pub(in crate::http) struct AwaitedBody {
    /// The name of the lock; null if the API key may not view the lock.
    #[schema(required = true)]
    name: Option<String>,
    /// For how long the group has waited for the lock.
    since_ms: u64,
    /// The state of the lock; null if the API key may not view the lock.
    #[schema(required = true)]
    state: Option<LockState>,
    /// The first holders of the lock, as an inspection of the lock shows them, but without their own `waits_for`. Empty
    /// if the lock has no holder, or if the API key may not view the lock.
    #[schema(max_items = 3, no_recursion)]
    holders: Vec<HolderBody>,
    /// The number of all holders of the lock.
    holder_count: u64,
}

/// Metadata as a JSON object, empty if the lease has no metadata.
#[derive(Debug, Clone, Default)]
pub(in crate::http) struct MetadataBody(Metadata);

/// A time as RFC 3339 text in UTC.
#[derive(Debug, Clone)]
pub(in crate::http) struct Timestamp(Rfc3339Timestamp);

declare_fields! {
    /// A lease as its holder sees it, with the token. No other caller sees the token.
    ///
    /// Hand the fencing token to the resource that the lock protects, and let the resource refuse any number
    /// smaller than the largest it has seen. The fencing token of a shared lease orders grants, and does not
    /// exclude the other holders.
    ///
    /// The gateway has subtracted the time since it asked the store from `expires_in_ms`. Count from when you
    /// *received* the answer, and subtract the time that the answer may have travelled. To be certain, count
    /// from when you sent the request, and renew first if the request waited.
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
    /// One lease of a group.
    const TO_HOLDER_OF_PART: "GroupPart" => Form::TEXT;
    /// Leases of several locks as their holder sees them. Their one token renews and releases all of them,
    /// together or one by one.
    ///
    /// `ttl_ms`, `expires_in_ms` and `expires_at` are those of the lease that ends first; count them like
    /// those of one lease. `hold_expires_in_ms` is the time until the first `max_hold_ms` is over. It counts
    /// from the grant of each lock, so the wait for the other locks is a part of it.
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
    /// The holder of a lock. Of a foreign client only its expiry and its mark are known.
    const TO_VIEWER: "Holder" => Form::TEXT;
    /// The holder of the requested lock.
    const TO_REFUSED: "CurrentHolder" => Form::TEXT;
}

// === impl LeaseView ===

impl LeaseView {
    /// View of a lease with `left` as its remaining time. `now` is the wall time of the gateway, for the
    /// timestamps.
    fn new(held: HeldLease, left: Duration, now: SystemTime) -> Self {
        let (renew_after, waiting) = (held.renew_after(), held.is_waiting());
        // Both this pattern and the view name every field, so that a new field cannot be forgotten here.
        let HeldLease {
            fence,
            mode,
            ttl,
            expires_in: _,
            held_for,
            hold_expires_in,
            reservation,
            said:
                Said {
                    owner,
                    metadata,
                    group: _,
                    order,
                },
            release_requested,
            is_resting: _,
            as_of: _,
        } = held;
        Self {
            name: None,
            token: None,
            fencing_token: Some(fence.get()),
            mode: Some(mode.as_str()),
            slot: mode.slot(),
            ttl_ms: Some(ttl.as_millis()),
            expires_in_ms: Some(millis(left)),
            expires_at: Some(displayed(now.checked_add(left))),
            acquired_at: Some(displayed(now.checked_sub(held_for))),
            renew_after_ms: Some(millis(renew_after)),
            hold_expires_in_ms: hold_expires_in.map(millis),
            owner,
            metadata: MetadataBody(metadata),
            waited_ms: None,
            foreign: false,
            foreign_mark: None,
            group: None,
            waiting,
            waits_for: None,
            leases: Vec::new(),
            reservation,
            order: order.as_ref().map(|it| it.number.get()),
            rollback: order.and_then(|it| it.rollback),
            release_requested,
        }
    }

    /// View of a lease for its holder.
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

    /// View of the leases of several locks for their holder.
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

    /// Views of the holders of a lock, without its rests, at most `SHOWN_HOLDERS`. `group` shows the
    /// group of a lease.
    pub(in crate::http) fn of_holders(
        holder: Holder,
        now: SystemTime,
        group: impl Fn(&Group) -> Option<GroupBody>,
    ) -> Vec<Self> {
        let as_of = Instant::now();
        let of_lease = |lease: HeldLease| {
            let lease = lease.at(as_of);
            let left = lease.expires_in;
            let group = lease.said.group.as_deref().and_then(&group);
            Self {
                group,
                ..Self::new(lease, left, now)
            }
        };
        match holder {
            Holder::Lease(lease) if lease.is_resting => Vec::new(),
            Holder::Lease(lease) => vec![of_lease(lease)],
            Holder::Shared(holders) => {
                let shown = holders.leases.into_iter().take(SHOWN_HOLDERS);
                let held = shown.filter(|lease| !lease.is_resting);
                held.map(of_lease).collect()
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

    /// Writes the fields that `audience` sees, as JSON. The fields are written by hand, since most answers
    /// are leases: a serializer takes 2.7 times as many instructions.
    ///
    /// Each field names its audiences, so that a new field is not shown to another audience by mistake.
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
        object.field_if(self.waiting && told(VIEWER | REFUSED), "waiting", true);
        let waits_for = self.waits_for.as_deref();
        object.field_if(waits_for.is_some() && told(VIEWER), "waits_for", waits_for);
        let reservation = self.reservation.as_deref().map(reservation_body);
        object.field_if(
            reservation.is_some() && told(ONE),
            "reservation",
            reservation,
        );
        object.field_if(self.order.is_some() && told(ONE), "order", self.order);
        let rollback = self.rollback.as_ref().map(Reason::as_str);
        object.field_if(rollback.is_some() && told(ONE), "rollback", rollback);
        let request = self.release_requested.as_deref().map(release_request_body);
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
    /// View of a lease for its holder, with the time that is left now. `now` is the wall time of the gateway,
    /// for the timestamps.
    pub(super) fn new(lease: Lease, now: SystemTime) -> Self {
        Self(LeaseView::of_own(lease, now))
    }
}

impl GroupLeaseBody {
    /// View of the leases of several locks for their holder, with the time that is left now. `now` is the
    /// wall time of the gateway, for the timestamps.
    pub(super) fn new(leases: Vec<Lease>, waited: Duration, now: SystemTime) -> Self {
        Self(LeaseView::of_group(leases, waited, now))
    }
}

impl HolderBody {
    /// Views of the holders of a lock. `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn all_of(holder: Holder, now: SystemTime, viewer: &Access) -> Vec<Self> {
        let group = |group: &Group| {
            Some(GroupBody {
                first: viewer
                    .views(&group.first)
                    .then(|| group.first.as_str().to_owned()),
                count: group.count,
            })
        };
        let views = LeaseView::of_holders(holder, now, group).into_iter();
        views.map(Self).collect()
    }

    /// Adds to the holders of a lock what their groups wait for, as far as the viewer may know it.
    pub(super) fn add_awaited(
        holders: &mut [Self],
        awaited: Vec<(FencingToken, AwaitedLock)>,
        now: SystemTime,
        viewer: &Access,
    ) {
        for (fence, lock) in awaited {
            let fence = Some(fence.get());
            let Some(waiting) = holders.iter_mut().find(|it| it.0.fencing_token == fence) else {
                continue;
            };
            let is_viewed = viewer.views(&lock.name);
            let holder = lock.holder.filter(|_| is_viewed);
            let (state, holder_count) = state_of(holder.as_ref());
            let mut holders = holder.map_or_else(Vec::new, |it| Self::all_of(it, now, viewer));
            holders.truncate(AWAITED_HOLDERS);
            waiting.0.waits_for = Some(Box::new(AwaitedBody {
                name: is_viewed.then(|| lock.name.as_str().to_owned()),
                since_ms: millis(lock.waited),
                state: is_viewed.then_some(state),
                holders,
                holder_count,
            }));
        }
    }
}

impl CurrentHolder {
    pub(in crate::http) fn all_of(holder: Holder) -> Vec<Self> {
        // A refused caller sees no timestamp, so any time will do.
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
        // `LeaseView` contains parts, so collecting its schemas from a part would never end.
        if AUDIENCE != PART {
            LeaseView::schemas(schemas);
        }
    }
}

/// The schema of all fields, reduced to the fields that this audience sees.
impl<const AUDIENCE: u8> PartialSchema for Told<AUDIENCE> {
    fn schema() -> RefOr<Schema> {
        let told = serde_json::to_value(Self(LeaseView::default()));
        let told = told.expect("a lease has text keys");
        let is_told = |name: &String| {
            told.get(name).is_some()
                || AUDIENCE & (VIEWER | REFUSED) != 0 && name == "waiting"
                || AUDIENCE == VIEWER && name == "waits_for"
                || AUDIENCE != GROUP
                    && matches!(
                        &**name,
                        "release_requested" | "reservation" | "order" | "rollback"
                    )
        };
        let mut schema = LeaseView::schema();
        let RefOr::T(Schema::Object(object)) = &mut schema else {
            unreachable!("a struct is described as an object")
        };
        object.properties.retain(|name, _| is_told(name));
        object.required.retain(is_told);
        for (name, property) in &mut object.properties {
            // For the holder of a lease these fields are never null: null is for foreign clients.
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

/// The state of a lock, and the number of its holders.
pub(super) fn state_of(holder: Option<&Holder>) -> (LockState, u64) {
    match holder.map(Holder::holders) {
        Some(count @ 1..) => (LockState::Held, count),
        // All leases of the lock rest.
        Some(0) => (LockState::Resting, 0),
        None => (LockState::Free, 0),
    }
}

/// The rests of a lock.
pub(in crate::http) fn rests(holder: Option<&Holder>) -> Vec<Rest> {
    let now = Instant::now();
    let leases = holder.map_or(&[][..], Holder::leases).iter();
    let rests = leases.take(SHOWN_HOLDERS).filter(|lease| lease.is_resting);
    let rest = |lease: &HeldLease| Rest {
        fencing_token: lease.fence.get(),
        slot: lease.mode.slot(),
        available_in_ms: millis(lease.left_at(now)),
    };
    rests.map(rest).collect()
}

/// A release request for the holder of a lease, and for those who may view the lease.
pub(in crate::http) fn release_request_body(request: &ReleaseRequest) -> answers::ReleaseRequest {
    answers::ReleaseRequest {
        by: request.by.as_deref().map(str::to_owned),
        reason: request.reason.as_str().to_owned(),
        within_ms: millis(request.within),
        name: None,
    }
}

fn reservation_body(reservation: &Reservation) -> answers::Reservation {
    answers::Reservation {
        until: displayed(Some(reservation.until())).to_string(),
        reason: reservation.reason.as_str().to_owned(),
        reserved_by: reservation.by_label().map(str::to_owned),
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

/// Whole milliseconds, rounded down, so that the time left of a lease is never shown too long.
pub(in crate::http) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn displayed(time: Option<SystemTime>) -> Timestamp {
    Timestamp(rfc3339(time))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::lock::{FencingToken, Mode, Terms, Ttl};

    use super::*;

    #[test]
    fn is_written_as_json_whatever_its_owner_and_metadata_say() {
        let metadata = BTreeMap::from([("\\".to_owned(), "a \"b\"".to_owned())]);
        let mut terms = Terms::lasting(Ttl::from_millis(30_000).unwrap());
        terms.said.owner = Owner::new("\"me\", \u{fc}").ok();
        terms.said.metadata = Metadata::new(metadata).unwrap();
        let fence = FencingToken::new(17).unwrap();
        let as_of = Instant::now() + Duration::from_mins(1);
        let lease = Lease {
            name: LockName::new("deploy:eu").unwrap(),
            token: Token::random(),
            held: HeldLease {
                expires_in: Duration::from_secs(20),
                held_for: Duration::from_millis(1_500),
                ..terms.granted(fence, Mode::Shared { slot: Some(2) }, as_of)
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
            assert_eq!(displayed(time).to_string(), text);
        }
    }
}
