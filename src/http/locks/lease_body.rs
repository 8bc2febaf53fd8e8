//! A lease as its holder gets it.

use std::{
    fmt::Display,
    time::{Duration, SystemTime},
};

use humantime::Rfc3339Timestamp;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::lock::{Lease, LockName, Metadata, Owner, Token};

/// A lease, as only its holder gets to see it: it has the token.
#[derive(Serialize, ToSchema)]
#[schema(as = Lease, example = json!({
    "name": "deploy:prod",
    "token": "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU",
    "fencing_token": 1_795_170_000_000_042_u64,
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
    #[serde(serialize_with = "text")]
    #[schema(value_type = String)]
    name: LockName,
    /// The secret that renews and releases the lease. Whoever has it may do both.
    #[serde(serialize_with = "secret")]
    #[schema(value_type = String, min_length = 43, max_length = 43)]
    token: Token,
    /// A number that is larger for each new grant of the lock. Hand it to whatever the lock
    /// protects, and let that refuse any number smaller than the largest it has seen.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    fencing_token: u64,
    /// For how long the lease was last granted.
    ttl_ms: u64,
    /// What is left of it, counted from the answer: subtract how long the request took.
    expires_in_ms: u64,
    /// When it ends, by the clock of the gateway. For display only: work with `expires_in_ms`.
    #[serde(serialize_with = "text")]
    #[schema(value_type = String, format = DateTime)]
    expires_at: Rfc3339Timestamp,
    /// When it was granted, by the clock of the gateway. For display only.
    #[serde(serialize_with = "text")]
    #[schema(value_type = String, format = DateTime)]
    acquired_at: Rfc3339Timestamp,
    /// After how long to renew it: a third of what is left.
    renew_after_ms: u64,
    /// What is left until `max_hold_ms`, past which no renewal goes; null if it was not given.
    #[schema(required = true)]
    hold_expires_in_ms: Option<u64>,
    /// Who asked for it; null if that was not said.
    #[serde(serialize_with = "optional_text")]
    #[schema(value_type = Option<String>, required = true)]
    owner: Option<Owner>,
    /// What was attached to it.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    metadata: MetadataBody,
    /// How long the request waited for the lock.
    waited_ms: u64,
}

// === impl LeaseBody ===

impl LeaseBody {
    /// `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(lease: Lease, now: SystemTime) -> Self {
        let held = lease.held;
        Self {
            name: lease.name,
            token: lease.token,
            fencing_token: held.fence.get(),
            ttl_ms: held.ttl.as_millis(),
            expires_in_ms: millis(held.expires_in),
            expires_at: displayed(now.checked_add(held.expires_in)),
            acquired_at: displayed(now.checked_sub(held.held_for)),
            renew_after_ms: millis(held.expires_in / 3),
            hold_expires_in_ms: held.hold_expires_in.map(millis),
            owner: held.owner,
            metadata: MetadataBody(held.metadata),
            waited_ms: millis(lease.waited),
        }
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

/// Writes what is displayed as a text, without a copy of it.
fn text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
fn optional_text<S: Serializer>(
    value: &Option<impl Display>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

fn secret<S: Serializer>(token: &Token, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(token.expose_into(&mut [0; Token::TEXT_LEN]))
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
    use super::*;

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
