//! Errors of calls: client errors, the problem documents of gateways, and durations in their texts.

use std::{fmt, time::Duration};

use serde::Deserialize;

use crate::{Holder, Rest, lock::answers::OrderGrant};

/// Why a call failed, with one variant for each way in which the caller should react.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// Another caller holds the lock. Try again later.
    #[error("the lock is held{}{}", by(_0), described(_0))]
    Held(Box<Problem>),
    /// The wait ran out while other callers held the lock.
    #[error("the wait ran out: the lock is held{}{}", by(_0), described(_0))]
    WaitOver(Box<Problem>),
    /// The lock was granted for a higher order, so the work of this request would undo newer work. Do not ask again.
    #[error("{}", outdated(_0))]
    Outdated(Box<Problem>),
    /// The token does not hold the lock any more, or no lease with the checked fencing token does. Stop the work that
    /// the lock protected.
    #[error("the lease is lost: {0}")]
    Lost(Box<Problem>),
    /// No gateway was reached, so nothing happened.
    #[error("no gateway at {url}: {reason}")]
    Unreachable {
        /// The URL that was called.
        url: String,
        /// Why no gateway was reached.
        reason: String,
    },
    /// The gateway cannot serve (503), or the rate or the quota of the API key is exhausted (429). Nothing happened, so
    /// it is safe to call again.
    #[error("the gateway cannot serve: {0}")]
    Unavailable(Box<Problem>),
    /// The request was sent, but its outcome is unknown. The request may have been carried out, or may still be.
    #[error("the outcome is unknown: {reason}")]
    OutcomeUnknown {
        /// Why the outcome is unknown.
        reason: String,
        /// The problem document of the gateway, if it sent one.
        problem: Option<Box<Problem>>,
    },
    /// The gateway refused the request. The same request would be refused again.
    #[error("the gateway refused: {0}")]
    Refused(Box<Problem>),
    /// The answer does not come from a gateway, or from one that this client does not understand.
    #[error("{url} gave an answer that no gateway gives: {what}")]
    Unexpected {
        /// The URL that was called.
        url: String,
        /// A description of the answer without its body, which may contain a token.
        what: String,
    },
}

/// The code of the problem that the token does not hold the lock.
pub(crate) const LEASE_LOST: &str = "lease-lost";
pub(crate) const ENDED_BEFORE: &str =
    "the lease has ended, by an earlier copy of this release or before it";

// === impl ClientError ===

impl ClientError {
    /// Makes the error of a request that may have been carried out.
    pub(crate) fn unknown(reason: impl Into<String>, problem: Option<Box<Problem>>) -> Self {
        let reason = reason.into();
        Self::OutcomeUnknown { reason, problem }
    }

    /// Makes the error of a call if an earlier copy of its request was not answered. `last`: the result of the last
    /// copy.
    pub(crate) fn after_unanswered(last: impl fmt::Display, problem: Option<Box<Problem>>) -> Self {
        let reason = format!("an earlier copy of the request was not answered; then {last}");
        Self::unknown(reason, problem)
    }

    /// Makes this the error of a release. If `in_doubt`, an earlier copy of the release may have ended the lease.
    pub(crate) fn of_release(self, in_doubt: bool) -> Self {
        match self {
            Self::Lost(problem) if in_doubt => Self::unknown(ENDED_BEFORE, Some(problem)),
            error => error,
        }
    }

    /// Whether this error of a release says that the lease has ended, by an earlier copy of the release or before it.
    pub fn may_be_lost(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { problem: Some(problem), .. } if problem.code == LEASE_LOST)
    }

    /// The problem document that caused the error, if the gateway sent one.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Held(problem)
            | Self::WaitOver(problem)
            | Self::Outdated(problem)
            | Self::Lost(problem)
            | Self::Unavailable(problem)
            | Self::Refused(problem) => Some(problem),
            Self::OutcomeUnknown { problem, .. } => problem.as_deref(),
            Self::Unreachable { .. } | Self::Unexpected { .. } => None,
        }
    }
}

fn by(problem: &Problem) -> String {
    if problem.has_room {
        let first = match problem.waiters {
            Some(1) => "an earlier waiter comes".to_owned(),
            waiters => format!("{} earlier waiters come", waiters.unwrap_or_default()),
        };
        return format!(": it has room for this request, but {first} first");
    }
    let Some(holder) = problem.holders.first() else {
        let left = problem.available_in_ms.map(Duration::from_millis);
        let left = left.map(|left| format!(": it rests for another {}", format_duration(left)));
        return left.unwrap_or_default();
    };
    let who = match &holder.owner {
        Some(owner) => format!(" by {owner}"),
        None if holder.foreign => " by a client that uses no gateway".to_owned(),
        None => String::new(),
    };
    if let Some(reserved) = &holder.reservation {
        let by = reserved.reserved_by.as_ref();
        let by = by.map_or_else(String::new, |by| format!(" by {by}"));
        let (until, reason) = (&reserved.until, &reserved.reason);
        return format!(": it is reserved{by} until {until} because {reason}");
    }
    let how_long = match holder.expires_in_ms {
        Some(ms) => {
            let left = format_duration(Duration::from_millis(ms));
            format!(" for another {left} unless it is renewed")
        }
        None if holder.foreign => " without an expiry".to_owned(),
        None => String::new(),
    };
    who + &how_long
}

/// Says which order made a request outdated, and to whom the lock was granted for it.
fn outdated(problem: &Problem) -> String {
    let Some(order) = problem.granted_order else {
        return format!("outdated: {problem}");
    };
    match &problem.order_granted {
        Some(grant) => format!("outdated: {order} was granted {}", describe_grant(grant)),
        None => format!("outdated: the lock remembers the order {order}"),
    }
}

/// Says when and to whom a lock was granted, to be read after "granted".
pub fn describe_grant(grant: &OrderGrant) -> String {
    let key = grant.by.as_ref().map(|key| format!("API key {key}"));
    let to: Vec<_> = grant.owner.clone().into_iter().chain(key).collect();
    let to_whom = if to.is_empty() { "" } else { " to " };
    format!("at {}{to_whom}{}", grant.at, to.join(", "))
}

/// The `description` of a declared lock, in brackets, for the end of an error text; empty if it has none.
fn described(problem: &Problem) -> String {
    let text = problem.description.as_ref();
    text.map_or_else(String::new, |text| format!(" ({text})"))
}

// === Problem ===

/// A problem document: a gateway's answer that says why a request failed. The document contains no secret.
#[derive(Clone, Default, Deserialize)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// The code of the problem: `locked`, `lease-lost`, ..
    pub code: String,
    /// The title of the problem: what its code means.
    #[serde(default)]
    pub title: String,
    /// Why this request was refused, if there is more to say than the title.
    pub detail: Option<String>,
    /// The id of the request in the log of the gateway.
    pub request_id: Option<String>,
    /// With `lease-lost`: whether another lease holds the lock.
    pub held: Option<bool>,
    /// With `locked` and `outdated-order`, for a group of locks: the lock that is held, or that was granted for a higher
    /// order.
    pub name: Option<String>,
    /// With `locked`: the holders of the lock. The list is empty while the lock passes to the next waiter.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// With `locked`: the number of holders.
    pub holder_count: Option<u64>,
    /// With `locked`, if the lock is declared: what the declaration is for.
    pub description: Option<String>,
    /// With `locked`: what rests of the lock after a release.
    #[serde(default)]
    pub resting: Vec<Rest>,
    /// With `locked`, if the lock has no holder and only rests: after how long the request could be granted it, in
    /// milliseconds.
    pub available_in_ms: Option<u64>,
    /// With `locked`: the number of waiters.
    pub waiters: Option<u64>,
    /// With `locked`: whether the request could hold the lock beside its holders, so that only earlier waiters are in
    /// its way.
    #[serde(skip)]
    pub has_room: bool,
    /// With `outdated-order`: the order of the request.
    pub order: Option<u64>,
    /// With `outdated-order` and `order-changed`: the order that the lock remembers, if it remembers one.
    pub granted_order: Option<u64>,
    /// With `outdated-order` and `order-changed`: the grant for that order, if it is known and the API key may view the
    /// lock.
    pub order_granted: Option<OrderGrant>,
    /// With `invalid-request` and `declared-differently`: the fields that are wrong.
    #[serde(default)]
    pub errors: Vec<FieldError>,
    /// The time after which to try again, in milliseconds, if the gateway gave one.
    #[serde(default, rename = "retry_after_ms")]
    retry_after: Option<u64>,
    #[serde(skip)]
    json: String,
}

/// A field, a header or a parameter that a gateway refused, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FieldError {
    /// The name of the field, header or parameter.
    pub field: String,
    /// Why the gateway refused the field, header or parameter, to be read after its name.
    #[serde(default)]
    pub reason: String,
}

// === impl Problem ===

impl Problem {
    /// Parses a problem document; `None` if the text is not one.
    pub(crate) fn parse(body: &str) -> Option<Self> {
        let mut problem: Self = serde_json::from_str(body).ok()?;
        body.clone_into(&mut problem.json);
        Some(problem)
    }

    /// Makes a problem for the answer of a proxy, which has no problem document.
    pub(crate) fn of_proxy(status: u16, code: &str, detail: String) -> Self {
        Self {
            status,
            code: code.to_owned(),
            detail: Some(detail),
            ..Self::default()
        }
    }

    /// Makes the problem of one lease of a group, from its result in the gateway's answer.
    pub(crate) fn of_part(name: &str, code: &str, more: Option<&str>, held: Option<bool>) -> Self {
        let mut detail = match code {
            LEASE_LOST => format!("the lease of {name} is lost"),
            _ => format!("the lease of {name} was neither renewed nor released"),
        };
        if let Some(more) = more {
            detail += ": ";
            detail += more.trim_end_matches('.');
        }
        Self {
            code: code.to_owned(),
            detail: Some(detail),
            held,
            name: Some(name.to_owned()),
            ..Self::default()
        }
    }

    /// The problem document as the gateway sent it.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The time after which to try again, if the gateway gave one.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from_millis)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut detail = self.detail.clone().unwrap_or_else(|| self.title.clone());
        // A single field error is left out, because the detail already says the same.
        if let [_, _, ..] = self.errors.as_slice() {
            let errors = self.errors.iter();
            let errors = errors.map(|FieldError { field, reason }| format!("`{field}` {reason}"));
            detail = format!(
                "{}: {}",
                detail.trim_end_matches('.'),
                errors.collect::<Vec<_>>().join("; ")
            );
        }
        if self.status == 0 {
            return write!(f, "{detail} ({})", self.code);
        }
        write!(
            f,
            "{} ({}, {})",
            detail.trim_end_matches('.'),
            self.code,
            self.status
        )
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Problem({self})")
    }
}

// === Format duration ===

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Formats a duration for people with at most two units, rounded down: `999ms`, `29.9s`, `30s`, `2m 3s`, `23h 59m`,
/// `7d`.
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..MINUTE => match duration.subsec_millis() / 100 {
            0 => format!("{seconds}s"),
            tenths => format!("{seconds}.{tenths}s"),
        },
        MINUTE..HOUR => units((seconds / MINUTE, 'm'), (seconds % MINUTE, 's')),
        HOUR..DAY => units((seconds / HOUR, 'h'), (seconds % HOUR / MINUTE, 'm')),
        DAY.. => units((seconds / DAY, 'd'), (seconds % DAY / HOUR, 'h')),
    }
}

fn units((count, unit): (u64, char), (rest, smaller): (u64, char)) -> String {
    match rest {
        0 => format!("{count}{unit}"),
        rest => format!("{count}{unit} {rest}{smaller}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_no_more_than_people_read() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (29_987, "29.9s"),
            (30_000, "30s"),
            (30_099, "30s"),
            (59_999, "59.9s"),
            (60_000, "1m"),
            (123_000, "2m 3s"),
            (3_600_000, "1h"),
            (86_399_999, "23h 59m"),
            (604_800_000, "7d"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(ms)), text);
        }
    }
}
