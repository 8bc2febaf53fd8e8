//! A request as it is sent, and the meaning of its answer.

use serde_json::{Value, json};

use super::{group_exchange, process::SHARED, worker::Request};
use crate::{
    history::{Ask, Mode, Past, RecordedAnswer, Seen},
    wire::Reply,
};

/// A request as it is sent.
pub(super) struct Exchange {
    pub(super) line: String,
    pub(super) headers: String,
    pub(super) body: String,
}

/// The problem code of a reservation whose time is over.
const OVER: &str = "reservation-over";
/// Problem codes that say that the request had no effect.
const NOTHING: [&str; 11] = [
    "store-unavailable",
    "draining",
    "overloaded",
    "request-replaced",
    "newer-waiter",
    "idempotency-expired",
    OVER,
    "too-many-waiters",
    "rate-limited",
    "holder-changed",
    "not-held",
];

// === impl Exchange ===

impl Exchange {
    /// The exchange for a request, or for the parts of a group request.
    pub(super) fn from_requests(parts: &[Request]) -> Self {
        let [request] = parts else {
            return group_exchange::exchange(parts);
        };
        let Request {
            errand,
            lock,
            ask,
            token,
            ..
        } = request;
        let with_token = format!("Lock-Token: {token}\r\n");
        let (line, headers, body) = match ask {
            Ask::Acquire {
                ttl_ms,
                wait_ms,
                keyed,
                mode,
                min_hold_ms,
                reserve,
                order,
            } => {
                let mut body = wanted(*ttl_ms, *wait_ms, *mode, errand);
                if let Some(reserve) = reserve {
                    body["reserve"] = json!({"until": reserve.text(), "reason": "torture"});
                    body.as_object_mut()
                        .expect("it is made as one")
                        .remove("ttl_ms");
                }
                if *min_hold_ms > 0 {
                    body["min_hold_ms"] = (*min_hold_ms).into();
                }
                if let Some(order) = order {
                    body["order"] = (*order).into();
                }
                if lock == SHARED[0] && *mode == Mode::Exclusive {
                    // Of the writers that wait, only the newest stays in the queue.
                    body["supersedes"] = "writer".into();
                }
                let line = format!("POST /locks/{lock}");
                (line, key(*keyed, errand), body.to_string())
            }
            Ask::Hold {
                ttl_ms,
                wait_ms,
                mode,
            } => (
                format!("POST /locks/{lock}/hold"),
                String::new(),
                wanted(*ttl_ms, *wait_ms, *mode, errand).to_string(),
            ),
            Ask::Renew { .. } | Ask::Forge { renews: true } => (
                format!("PUT /locks/{lock}/renew"),
                with_token,
                String::new(),
            ),
            Ask::Release { .. } | Ask::Forge { renews: false } => {
                (format!("DELETE /locks/{lock}"), with_token, String::new())
            }
            Ask::Break { fence, grace_ms } => {
                let mut body = json!({"reason": "torture", "fencing_token": fence});
                if let Some(grace_ms) = grace_ms {
                    body["grace_ms"] = (*grace_ms).into();
                }
                (
                    format!("POST /locks/{lock}/break"),
                    String::new(),
                    body.to_string(),
                )
            }
            Ask::RaiseOrder { from, to, .. } => {
                let body = json!({"order": to, "if_order": from, "reason": "torture"});
                let line = format!("PUT /locks/{lock}/granted-order");
                (line, String::new(), body.to_string())
            }
            Ask::Inspect => (format!("GET /locks/{lock}"), String::new(), String::new()),
            Ask::History => (
                format!("GET /locks/{lock}/history"),
                String::new(),
                String::new(),
            ),
            Ask::Check { fence } => (
                format!("GET /locks/{lock}/check"),
                format!("Fencing-Token: {fence}\r\n"),
                String::new(),
            ),
        };
        Self {
            line,
            headers,
            body,
        }
    }
}

/// The body of an acquire.
pub(super) fn wanted(ttl_ms: u64, wait_ms: u64, mode: Mode, errand: &str) -> Value {
    let body = json!({"ttl_ms": ttl_ms, "wait_ms": wait_ms, "owner": errand});
    in_mode(body, mode)
}

/// The object with the fields for this mode.
pub(super) fn in_mode(mut object: Value, mode: Mode) -> Value {
    if let Mode::Shared { limit } = mode {
        object["mode"] = word(mode).into();
        if let Some(limit) = limit {
            object["limit"] = limit.into();
        }
    }
    object
}

/// The header with the idempotency key of an errand, if it has one.
pub(super) fn key(keyed: bool, errand: &str) -> String {
    if keyed {
        format!("Idempotency-Key: key-of-this-errand-{errand}\r\n")
    } else {
        String::new()
    }
}

/// The word for a mode.
fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared { .. } => "shared",
    }
}

/// The meaning of an answer for each of the locks.
pub(super) fn answers(parts: &[Request], reply: &Reply) -> Vec<RecordedAnswer> {
    match parts {
        [request] => vec![answer(&request.ask, reply)],
        parts => group_exchange::answers(parts, reply),
    }
}

/// The meaning of an answer for its request.
pub(super) fn answer(ask: &Ask, reply: &Reply) -> RecordedAnswer {
    let Reply { status, body, .. } = reply;
    let code = body["code"].as_str().unwrap_or_default();
    let meant = match (ask, *status, code) {
        (_, 504, "outcome-unknown") => Some(RecordedAnswer::Unknown),
        (_, 409 | 429 | 503, code) if NOTHING.contains(&code) => Some(RecordedAnswer::Refused {
            code: code.to_owned(),
        }),
        (Ask::Acquire { .. } | Ask::Hold { .. }, 423, "locked") => {
            holders(body).map(|holders| RecordedAnswer::Locked { holders })
        }
        (Ask::Acquire { order: Some(_), .. }, 409, "outdated-order") => {
            let granted_order = body["granted_order"].as_u64();
            granted_order.map(|granted_order| RecordedAnswer::Outdated { granted_order })
        }
        (Ask::RaiseOrder { .. }, 200, _) => Some(RecordedAnswer::OrderRaised),
        (Ask::RaiseOrder { .. }, 409, "order-changed") => Some(RecordedAnswer::Refused {
            code: code.to_owned(),
        }),
        (
            Ask::Acquire {
                mode,
                reserve,
                order,
                ..
            },
            200 | 201,
            _,
        ) => {
            let reserved = body["reservation"]["until"].as_str();
            let as_asked = reserved == reserve.map(|it| it.text()).as_deref()
                && body["order"].as_u64() == *order;
            granted(body, *status == 200, *mode).filter(|_| as_asked)
        }
        (Ask::Hold { mode, .. }, 200 | 201, _) => granted(body, *status == 200, *mode),
        // The request came after the end of its reservation, or an earlier one with its key has made the reservation.
        (
            Ask::Acquire {
                reserve: Some(_), ..
            },
            400,
            _,
        ) if body["errors"][0]["reason"] == "is in the past" => Some(RecordedAnswer::Refused {
            code: OVER.to_owned(),
        }),
        (Ask::Renew { .. } | Ask::Forge { .. }, 200, _) => renewed(body),
        (Ask::Renew { .. } | Ask::Release { .. } | Ask::Forge { .. }, 410, "lease-lost") => {
            Some(RecordedAnswer::Lost)
        }
        (Ask::Release { .. } | Ask::Forge { .. }, 204, _) => Some(RecordedAnswer::Released),
        (Ask::Break { grace_ms: None, .. }, 200, _) => Some(RecordedAnswer::Broken),
        (
            Ask::Break {
                grace_ms: Some(_), ..
            },
            202,
            _,
        ) => Some(RecordedAnswer::Requested),
        (Ask::Inspect, 200, _) => shown(body),
        (Ask::History, 200, _) => told(body),
        (Ask::Check { .. }, 204, _) => Some(RecordedAnswer::Passed),
        (Ask::Check { .. }, 403, "stale-fencing-token") => Some(RecordedAnswer::Stale),
        // The lease lived when the store was asked, and may have ended before the answer.
        (Ask::Check { .. }, 403, "ends-too-soon") => Some(RecordedAnswer::Refused {
            code: code.to_owned(),
        }),
        _ => None,
    };
    meant.unwrap_or_else(|| wrong(&format!("{status} {body}")))
}

/// The meaning of the first event of a stream that is not `queued`.
pub(super) fn event(ask: &Ask, name: &str, data: &Value) -> RecordedAnswer {
    let code = data["code"].as_str().unwrap_or_default();
    let mode = match ask {
        Ask::Acquire { mode, .. } | Ask::Hold { mode, .. } => *mode,
        _ => Mode::Exclusive,
    };
    let meant = match (name, code) {
        ("granted", _) => granted(data, false, mode),
        ("refused", "locked") => holders(data).map(|holders| RecordedAnswer::Locked { holders }),
        ("refused", code) if NOTHING.contains(&code) => Some(RecordedAnswer::Refused {
            code: code.to_owned(),
        }),
        // No lease was announced, but there may have been one.
        ("refused", "outcome-unknown") | ("draining" | "lost", _) => Some(RecordedAnswer::Unknown),
        _ => None,
    };
    meant.unwrap_or_else(|| wrong(&format!("{name} {data}")))
}

pub(super) fn wrong(what: &str) -> RecordedAnswer {
    RecordedAnswer::Wrong {
        what: what.to_owned(),
    }
}

pub(super) fn granted(lease: &Value, again: bool, mode: Mode) -> Option<RecordedAnswer> {
    if lease["mode"] != word(mode) {
        return None;
    }
    Some(RecordedAnswer::Granted {
        fence: lease["fencing_token"].as_u64()?,
        left_ms: lease["expires_in_ms"].as_u64()?,
        again,
        slot: lease["slot"].as_u64(),
    })
}

pub(super) fn renewed(lease: &Value) -> Option<RecordedAnswer> {
    Some(RecordedAnswer::Renewed {
        fence: lease["fencing_token"].as_u64()?,
        left_ms: lease["expires_in_ms"].as_u64()?,
        slot: lease["slot"].as_u64(),
        asked_for: lease["release_requested"].is_object(),
    })
}

/// The holders of a lock. All must be shown, because there are fewer than the limit of an answer.
pub(super) fn holders(lock: &Value) -> Option<Vec<Seen>> {
    let holders = lock["holders"].as_array()?;
    let holders = holders.iter().map(|holder| {
        Some(Seen {
            fence: holder["fencing_token"].as_u64()?,
            owner: holder["owner"].as_str()?.to_owned(),
            shares: holder["mode"] == "shared",
            slot: holder["slot"].as_u64(),
        })
    });
    let holders: Vec<Seen> = holders.collect::<Option<_>>()?;
    let all = lock["holder_count"].as_u64()? == holders.len() as u64;
    all.then_some(holders)
}

fn told(history: &Value) -> Option<RecordedAnswer> {
    let entries = history["entries"].as_array()?.iter().map(|entry| {
        let text = |field: &str| entry[field].as_str().map(str::to_owned);
        let mut notes = entry["notes"].as_array()?.iter();
        let has_no_end = entry["ended"].is_null() && entry["ended_at_latest"].is_null();
        Some(Past {
            fence: entry["fencing_token"].as_u64()?,
            owner: text("owner"),
            ended: text("ended"),
            // If nothing was recorded of the lease itself, the entry is there because of its notes.
            held: has_no_end && entry["acquired_at"].is_string(),
            rest_ended: notes.any(|note| note["kind"] == "rest-ended"),
        })
    });
    Some(RecordedAnswer::History {
        entries: entries.collect::<Option<_>>()?,
        dropped: history["dropped"].as_u64()?,
    })
}

fn shown(lock: &Value) -> Option<RecordedAnswer> {
    let waiters = lock["waiters"].as_array().into_iter().flatten();
    Some(RecordedAnswer::Shown {
        holders: holders(lock)?,
        waiters: waiters
            .filter_map(|waiter| Some(waiter["owner"].as_str()?.to_owned()))
            .collect(),
    })
}
