//! Inspect: look at a lock.

use reqwest::{Method, StatusCode};
use serde::Deserialize;

use crate::{
    Client, ClientError, Holder,
    http::{Call, CallResponse},
    lock::LockName,
};

/// A lock as a gateway shows it.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// Whether somebody holds it.
    pub state: LockState,
    /// Who holds it, those first whose leases end soonest; nobody if it is free.
    pub holders: Vec<Holder>,
    /// How many hold it in all.
    pub holder_count: u64,
    /// Who waits for it, the next to be served first: the beginning of the queue.
    pub waiters: Vec<Waiter>,
    /// How many wait for it in all.
    pub waiter_count: u64,
    json: String,
}

/// One of those who wait for a lock.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Waiter {
    /// The place in the queue: 1 is the next to be served.
    pub position: u64,
    /// The owner that the request named.
    #[serde(default)]
    pub owner: Option<String>,
    /// How it wants to hold the lock: `exclusive` or `shared`.
    #[serde(default)]
    pub mode: Option<String>,
    /// As long as fewer than how many hold the lock it wants to share it.
    #[serde(default)]
    pub limit: Option<u16>,
    /// For how long already, in milliseconds.
    pub waited_ms: u64,
}

/// Whether somebody holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockState {
    /// Nobody does.
    Free,
    /// Somebody does.
    Held,
}

/// What a single look at a lock came to.
pub(crate) enum Look {
    /// The lock.
    Seen(Inspection),
    /// The key may not view it.
    Forbidden,
    /// The key has asked too often.
    RateLimited,
    /// There is nothing to be seen now.
    Unseen,
}

#[derive(Deserialize)]
struct Wire {
    state: LockState,
    #[serde(default)]
    holders: Vec<Holder>,
    #[serde(default)]
    holder_count: u64,
    #[serde(default)]
    waiters: Vec<Waiter>,
    #[serde(default)]
    waiter_count: u64,
}

// === impl Client ===

impl Client {
    /// Shows who holds a lock.
    pub async fn inspect(&self, name: &LockName) -> Result<Inspection, ClientError> {
        let answer = Call::new(Method::GET, name, "").send(self).await?;
        if answer.status.is_success() {
            Inspection::from_answer(answer)
        } else {
            Err(answer.refusal())
        }
    }

    /// Looks just once.
    pub(crate) async fn look(&self, name: &LockName) -> Look {
        let call = Call::new(Method::GET, name, "");
        let answer = call.send_copy(self, self.options.request_timeout).await;
        let too_many = StatusCode::TOO_MANY_REQUESTS.as_u16();
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                let problem = failure.error.problem();
                if problem.is_some_and(|problem| problem.status == too_many) {
                    return Look::RateLimited;
                }
                return Look::Unseen;
            }
        };
        match answer.status {
            StatusCode::FORBIDDEN => Look::Forbidden,
            status if status.is_success() => {
                Inspection::from_answer(answer).map_or(Look::Unseen, Look::Seen)
            }
            _ => Look::Unseen,
        }
    }
}

// === impl Inspection ===

impl Inspection {
    /// The answer as the gateway sent it.
    pub fn json(&self) -> &str {
        &self.json
    }

    #[cfg(test)]
    pub(crate) fn of_waiters(state: LockState, waiters: Vec<Waiter>) -> Self {
        Self {
            state,
            holders: Vec::new(),
            holder_count: 1,
            waiter_count: waiters.len() as u64,
            waiters,
            json: String::new(),
        }
    }

    fn from_answer(answer: CallResponse) -> Result<Self, ClientError> {
        match serde_json::from_str::<Wire>(&answer.body) {
            Ok(wire) => Ok(Self {
                state: wire.state,
                holders: wire.holders,
                holder_count: wire.holder_count,
                waiters: wire.waiters,
                waiter_count: wire.waiter_count,
                json: answer.body,
            }),
            Err(_) => Err(answer.unexpected("not a lock")),
        }
    }
}
