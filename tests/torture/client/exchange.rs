//! A request as it is sent, and what its answer means.

use serde_json::{Value, json};

use crate::{
    history::{Ask, RecordedAnswer, Seen},
    wire::Reply,
};

/// A request as it is sent.
pub(super) struct Exchange {
    pub(super) line: String,
    pub(super) headers: String,
    pub(super) body: String,
}

/// What says that nothing happened.
const NOTHING: [&str; 9] = [
    "store-unavailable",
    "draining",
    "overloaded",
    "superseded",
    "idempotency-expired",
    "too-many-waiters",
    "rate-limited",
    "holder-changed",
    "not-held",
];

// === impl Exchange ===

impl Exchange {
    pub(super) fn of(ask: &Ask, lock: &str, errand: &str, token: &str) -> Self {
        let with_token = format!("Lock-Token: {token}\r\n");
        let (line, headers, body) = match ask {
            Ask::Acquire {
                ttl_ms,
                wait_ms,
                keyed,
            } => (
                format!("POST /locks/{lock}"),
                if *keyed {
                    format!("Idempotency-Key: key-of-this-errand-{errand}\r\n")
                } else {
                    String::new()
                },
                json!({"ttl_ms": ttl_ms, "wait_ms": wait_ms, "owner": errand}).to_string(),
            ),
            Ask::Hold { ttl_ms, wait_ms } => (
                format!("POST /locks/{lock}/hold"),
                String::new(),
                json!({"ttl_ms": ttl_ms, "wait_ms": wait_ms, "owner": errand}).to_string(),
            ),
            Ask::Renew { .. } | Ask::Forge { renews: true } => (
                format!("PUT /locks/{lock}/renew"),
                with_token,
                String::new(),
            ),
            Ask::Release { .. } | Ask::Forge { renews: false } => {
                (format!("DELETE /locks/{lock}"), with_token, String::new())
            }
            Ask::Break { fence } => (
                format!("POST /locks/{lock}/break"),
                String::new(),
                json!({"reason": "torture", "fencing_token": fence}).to_string(),
            ),
            Ask::Inspect => (format!("GET /locks/{lock}"), String::new(), String::new()),
        };
        Self {
            line,
            headers,
            body,
        }
    }
}

/// What an answer means to who has asked.
pub(super) fn answer(ask: &Ask, reply: &Reply) -> RecordedAnswer {
    let Reply { status, body, .. } = reply;
    let code = body["code"].as_str().unwrap_or_default();
    let meant = match (ask, *status, code) {
        (_, 504, "outcome-unknown") => Some(RecordedAnswer::Unknown),
        (_, 409 | 429 | 503, code) if NOTHING.contains(&code) => Some(RecordedAnswer::Refused {
            code: code.to_owned(),
        }),
        (Ask::Acquire { .. } | Ask::Hold { .. }, 423, "locked") => Some(RecordedAnswer::Locked {
            holder: seen(&body["holders"][0]),
        }),
        (Ask::Acquire { .. } | Ask::Hold { .. }, 200 | 201, _) => granted(body, *status == 200),
        (Ask::Renew { .. } | Ask::Forge { .. }, 200, _) => renewed(body),
        (Ask::Renew { .. } | Ask::Release { .. } | Ask::Forge { .. }, 410, "lease-lost") => {
            Some(RecordedAnswer::Lost)
        }
        (Ask::Release { .. } | Ask::Forge { .. }, 204, _) => Some(RecordedAnswer::Released),
        (Ask::Break { .. }, 200, _) => Some(RecordedAnswer::Broken),
        (Ask::Inspect, 200, _) => Some(shown(body)),
        _ => None,
    };
    meant.unwrap_or_else(|| wrong(&format!("{status} {body}")))
}

/// What the first event of a stream that is no wait means.
pub(super) fn event(name: &str, data: &Value) -> RecordedAnswer {
    let code = data["code"].as_str().unwrap_or_default();
    let meant = match (name, code) {
        ("granted", _) => granted(data, false),
        ("refused", "locked") => Some(RecordedAnswer::Locked {
            holder: seen(&data["holders"][0]),
        }),
        ("refused", code) if NOTHING.contains(&code) => Some(RecordedAnswer::Refused {
            code: code.to_owned(),
        }),
        // It was never told of a lease, and may have had one.
        ("refused", "outcome-unknown") | ("draining" | "lost", _) => Some(RecordedAnswer::Unknown),
        _ => None,
    };
    meant.unwrap_or_else(|| wrong(&format!("{name} {data}")))
}

fn wrong(what: &str) -> RecordedAnswer {
    RecordedAnswer::Wrong {
        what: what.to_owned(),
    }
}

fn granted(lease: &Value, again: bool) -> Option<RecordedAnswer> {
    Some(RecordedAnswer::Granted {
        fence: lease["fencing_token"].as_u64()?,
        left_ms: lease["expires_in_ms"].as_u64()?,
        again,
    })
}

fn renewed(lease: &Value) -> Option<RecordedAnswer> {
    Some(RecordedAnswer::Renewed {
        fence: lease["fencing_token"].as_u64()?,
        left_ms: lease["expires_in_ms"].as_u64()?,
    })
}

fn seen(holder: &Value) -> Option<Seen> {
    Some(Seen {
        fence: holder["fencing_token"].as_u64()?,
        owner: holder["owner"].as_str()?.to_owned(),
    })
}

fn shown(lock: &Value) -> RecordedAnswer {
    let waiters = lock["waiters"].as_array().into_iter().flatten();
    RecordedAnswer::Shown {
        holder: seen(&lock["holders"][0]),
        waiters: waiters
            .filter_map(|waiter| Some(waiter["owner"].as_str()?.to_owned()))
            .collect(),
    }
}
