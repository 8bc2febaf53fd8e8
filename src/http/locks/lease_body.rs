//! A lease as its holder gets it.

use std::{
    io::Write,
    time::{Duration, SystemTime},
};

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use humantime::Rfc3339Timestamp;
use serde::{Serialize, Serializer};
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::{
    http::json_response::{JSON, json_by},
    lock::{Lease, LockName, Metadata, Owner, ReleaseRequest, Token},
};

use super::{millis::millis, release_request_body::ReleaseRequestBody};

/// A lease, as only its holder gets to see it: it has the token.
#[derive(ToSchema)]
#[schema(as = Lease, example = json!({
    "name": "deploy:prod",
    "token": "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU",
    "fencing_token": 1_795_170_000_000_042_u64,
    "mode": "exclusive",
    "slot": null,
    "ttl_ms": 30_000,
    "expires_in_ms": 30_000,
    "expires_at": "2026-11-20T12:00:30.000Z",
    "acquired_at": "2026-11-20T12:00:00.000Z",
    "renew_after_ms": 10_000,
    "hold_expires_in_ms": null,
    "owner": "ci-runner-7",
    "metadata": {"job": "4711"},
    "waited_ms": 0,
}))]
pub(in crate::http) struct LeaseBody {
    /// The lock that is held.
    #[schema(value_type = String)]
    name: LockName,
    /// The secret that renews and releases the lease. Whoever has it may do both.
    #[schema(value_type = String, min_length = 43, max_length = 43)]
    token: Token,
    /// A number that is larger for each new grant of the lock. Hand it to whatever the lock
    /// protects, and let that refuse any number smaller than the largest it has seen.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    fencing_token: u64,
    /// `exclusive` or `shared`. The fencing token of a shared lease orders grants, and does not exclude the
    /// other holders.
    mode: &'static str,
    /// With a `limit`: the smallest number from 0 that no other lease of the lock has, always below the limit.
    /// Else null.
    #[schema(required = true)]
    slot: Option<u16>,
    /// For how long the lease was last granted.
    ttl_ms: u64,
    /// What is left of it, without the time since the gateway asked the store. Count it from when you *received* the
    /// answer, and leave the time that the answer may have travelled. To be certain, count from when you sent the
    /// request, and renew first if it waited.
    expires_in_ms: u64,
    /// When it ends, by the clock of the gateway.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Rfc3339Timestamp,
    /// When it was granted, by the clock of the gateway.
    #[schema(value_type = String, format = DateTime)]
    acquired_at: Rfc3339Timestamp,
    /// After how long to renew it: a third of what is left.
    renew_after_ms: u64,
    /// What is left until `max_hold_ms`, past which no renewal goes; null if it was not given.
    #[schema(required = true)]
    hold_expires_in_ms: Option<u64>,
    /// Who asked for it; null if the request named nobody.
    #[schema(value_type = Option<String>, required = true)]
    owner: Option<Owner>,
    /// What was attached to it.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    metadata: MetadataBody,
    /// How long the request waited for the lock, with the earlier requests under its `Idempotency-Key` whose place it went
    /// on with.
    waited_ms: u64,
    /// Only if somebody has asked for the lock: finish, and release it in time.
    #[schema(value_type = ReleaseRequestBody, required = false)]
    release_requested: Option<Box<ReleaseRequest>>,
}

// === impl LeaseBody ===

impl LeaseBody {
    /// The lease as it is now. `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(lease: Lease, now: SystemTime) -> Self {
        // Here, and not where the store has answered: the gateway may have stood still since.
        let held = lease.held.at(Instant::now());
        let left = held.good_for();
        Self {
            name: lease.name,
            token: lease.token,
            fencing_token: held.fence.get(),
            mode: held.mode.as_str(),
            slot: held.mode.slot(),
            ttl_ms: held.ttl.as_millis(),
            expires_in_ms: millis(left),
            expires_at: displayed(now.checked_add(left)),
            acquired_at: displayed(now.checked_sub(held.held_for)),
            renew_after_ms: millis(held.renew_after()),
            hold_expires_in_ms: held.hold_expires_in.map(millis),
            owner: held.owner,
            metadata: MetadataBody(held.metadata),
            waited_ms: millis(lease.waited),
            release_requested: held.release_requested,
        }
    }

    /// As JSON. Written field by field, since most answers are leases: serde takes 2.7 times as many instructions.
    pub(super) fn to_json(&self) -> Bytes {
        json_by(|json| {
            let mut token = [0; Token::TEXT_LEN];
            // A name, a token and a timestamp have no character that JSON escapes.
            for (key, text) in [
                ("{\"name\":\"", self.name.as_str()),
                ("\",\"token\":\"", self.token.expose_into(&mut token)),
            ] {
                json.extend_from_slice(key.as_bytes());
                json.extend_from_slice(text.as_bytes());
            }
            json.push(b'"');
            field(json, "fencing_token", &self.fencing_token);
            field(json, "mode", &self.mode);
            field(json, "slot", &self.slot);
            field(json, "ttl_ms", &self.ttl_ms);
            field(json, "expires_in_ms", &self.expires_in_ms);
            let (ends, began) = (&self.expires_at, &self.acquired_at);
            write!(
                json,
                ",\"expires_at\":\"{ends}\",\"acquired_at\":\"{began}\""
            )
            .expect("memory takes what is written");
            field(json, "renew_after_ms", &self.renew_after_ms);
            field(json, "hold_expires_in_ms", &self.hold_expires_in_ms);
            field(json, "owner", &self.owner.as_ref().map(Owner::as_str));
            field(json, "metadata", &self.metadata);
            field(json, "waited_ms", &self.waited_ms);
            if let Some(request) = &self.release_requested {
                field(json, "release_requested", &ReleaseRequestBody::of(request));
            }
            json.push(b'}');
        })
    }
}

impl IntoResponse for LeaseBody {
    fn into_response(self) -> Response {
        (JSON, self.to_json()).into_response()
    }
}

fn field(json: &mut Vec<u8>, name: &str, value: &impl Serialize) {
    json.extend_from_slice(b",\"");
    json.extend_from_slice(name.as_bytes());
    json.extend_from_slice(b"\":");
    serde_json::to_writer(json, value).expect("numbers and texts can be written");
}

/// RFC 3339 in UTC. A gateway whose clock is not within the years that can be written shows the
/// beginning of 1970: the timestamp is for display only and no reason to fail.
pub(in crate::http) fn timestamp(time: Option<SystemTime>) -> String {
    displayed(time).to_string()
}

fn displayed(time: Option<SystemTime>) -> Rfc3339Timestamp {
    /// The end of the year 9999, in seconds.
    const END: Duration = Duration::from_secs(253_402_300_799);
    let time = time
        .filter(|time| {
            time.duration_since(SystemTime::UNIX_EPOCH)
                .is_ok_and(|since| since <= END)
        })
        .unwrap_or(SystemTime::UNIX_EPOCH);
    humantime::format_rfc3339_millis(time)
}

// === Metadata body ===
//
// Metadata in answers.

/// Metadata as a JSON object; an empty one if there is none.
#[derive(Debug, Clone, Default)]
pub(in crate::http) struct MetadataBody(pub(in crate::http) Metadata);

// === impl MetadataBody ===

impl Serialize for MetadataBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::lock::{FencingToken, HeldLease, Mode, Ttl};

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
