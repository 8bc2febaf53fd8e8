//! A group request as it is sent, and the meaning of its answer for each lock.

use serde_json::{Value, json};

use super::{
    exchange::{Exchange, answer, granted, holders, in_mode, key, renewed, wanted, wrong},
    worker::Request,
};
use crate::{
    history::{Ask, Mode, RecordedAnswer},
    wire::Reply,
};

/// The exchange for the parts of a group request, which differ only in locks, modes and fencing tokens.
pub(super) fn exchange(parts: &[Request]) -> Exchange {
    let names: Vec<_> = parts.iter().map(|part| part.lock.as_str()).collect();
    let Request {
        ask, errand, token, ..
    } = &parts[0];
    let query = format!("/locks?names={}", names.join(","));
    let with_token = format!("Lock-Token: {token}\r\n");
    let (line, headers, body) = match ask {
        Ask::Acquire {
            ttl_ms,
            wait_ms,
            keyed,
            mode,
            ..
        } => {
            let modes = parts.iter().map(|part| match part.ask {
                Ask::Acquire { mode, .. } => mode,
                _ => unreachable!("all parts are acquired"),
            });
            let body = if modes.clone().all(|other| other == *mode) {
                let mut body = wanted(*ttl_ms, *wait_ms, *mode, errand);
                body["names"] = json!(names);
                body
            } else {
                let locks = names.iter().zip(modes);
                let locks = locks.map(|(name, mode)| in_mode(json!({"name": name}), mode));
                let mut body = wanted(*ttl_ms, *wait_ms, Mode::Exclusive, errand);
                body["names"] = locks.collect();
                body
            };
            (
                "POST /locks".to_owned(),
                key(*keyed, errand),
                body.to_string(),
            )
        }
        Ask::Renew { .. } => (format!("PUT {query}"), with_token, String::new()),
        Ask::Release { .. } => (format!("DELETE {query}"), with_token, String::new()),
        Ask::Hold { .. }
        | Ask::Forge { .. }
        | Ask::Break { .. }
        | Ask::RaiseOrder { .. }
        | Ask::Inspect
        | Ask::History
        | Ask::Check { .. } => unreachable!("it is about one lock"),
    };
    Exchange {
        line,
        headers,
        body,
    }
}

/// The meaning of an answer for each part.
pub(super) fn answers(parts: &[Request], reply: &Reply) -> Vec<RecordedAnswer> {
    let Reply { status, body, .. } = reply;
    let meant = match (&parts[0].ask, *status) {
        (Ask::Acquire { .. }, 200 | 201) => all_granted(parts, reply),
        (Ask::Acquire { .. }, 423) => one_locked(parts, body),
        (Ask::Renew { .. } | Ask::Release { .. }, 200 | 410) => each(parts, &body["results"]),
        (ask, _) => Some(vec![answer(ask, reply); parts.len()]),
    };
    meant.unwrap_or_else(|| vec![wrong(&format!("{status} {body}")); parts.len()])
}

/// All parts were granted with one token, and no other lock was.
fn all_granted(parts: &[Request], reply: &Reply) -> Option<Vec<RecordedAnswer>> {
    let leases = named(parts, &reply.body["leases"])?;
    reply.body["token"].as_str()?;
    let granted = parts
        .iter()
        .zip(leases)
        .map(|(part, lease)| match part.ask {
            Ask::Acquire { mode, .. } => granted(lease, reply.status == 200, mode),
            _ => None,
        });
    granted.collect()
}

/// One lock was held, so no part was granted.
fn one_locked(parts: &[Request], body: &Value) -> Option<Vec<RecordedAnswer>> {
    let holders = holders(body)?;
    parts.iter().find(|part| body["name"] == part.lock)?;
    let answers = parts.iter().map(|part| {
        if body["name"] == part.lock {
            RecordedAnswer::Locked {
                holders: holders.clone(),
            }
        } else {
            RecordedAnswer::Refused {
                code: "locked".to_owned(),
            }
        }
    });
    Some(answers.collect())
}

/// The answer has a result for each part.
fn each(parts: &[Request], results: &Value) -> Option<Vec<RecordedAnswer>> {
    let results = named(parts, results)?;
    let answers = parts.iter().zip(results).map(|(part, result)| {
        let code = result["code"].as_str();
        match (&part.ask, code) {
            (Ask::Renew { .. }, None) => renewed(result),
            (Ask::Release { .. }, None) => Some(RecordedAnswer::Released),
            (_, Some("lease-lost")) => Some(RecordedAnswer::Lost),
            (_, Some("outcome-unknown")) => Some(RecordedAnswer::Unknown),
            (_, Some(code)) => Some(RecordedAnswer::Refused {
                code: code.to_owned(),
            }),
            (_, None) => None,
        }
    });
    answers.collect()
}

/// The entry of the answer for each part; none if a part has no entry, or if there are other entries.
fn named<'a>(parts: &[Request], said: &'a Value) -> Option<Vec<&'a Value>> {
    let said = said.as_array()?;
    let of = |part: &Request| said.iter().find(|it| it["name"] == part.lock);
    let named: Option<Vec<_>> = parts.iter().map(of).collect();
    named.filter(|named| named.len() == said.len())
}
