//! See who holds locks: inspect one, or list many.

use reqwest::{Method, StatusCode};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use url::form_urlencoded::Serializer;

use crate::{
    Client, ClientError, Holder,
    http::{Call, CallResponse},
    lock::{LockName, NamePrefix, Owner, SearchText},
};

/// A lock as a gateway shows it.
#[derive(Debug, Clone, Deserialize)]
pub struct Inspection {
    /// Whether somebody holds it.
    pub state: LockState,
    /// Who holds it, those first whose leases end soonest; nobody if it is free.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// How many hold it in all.
    #[serde(default)]
    pub holder_count: u64,
    /// Who waits for it, the next to be served first: the beginning of the queue.
    #[serde(default)]
    pub waiters: Vec<Waiter>,
    /// How many wait for it in all.
    #[serde(default)]
    pub waiter_count: u64,
    #[serde(skip)]
    json: String,
}

/// One of those who wait for a lock.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Waiter {
    /// The place in the queue: 1 is the next to be served.
    pub position: u64,
    /// The owner that the request named.
    pub owner: Option<String>,
    /// How it wants to hold the lock: `exclusive` or `shared`.
    pub mode: Option<String>,
    /// As long as fewer than how many hold the lock it wants to share it.
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
        match serde_json::from_str::<Self>(&answer.body) {
            Ok(lock) => Ok(Self {
                json: answer.body,
                ..lock
            }),
            Err(_) => Err(answer.unexpected("not a lock")),
        }
    }
}

// === List ===

/// Which locks are to be shown.
#[derive(Debug, Clone, Default)]
pub struct ListRequest {
    /// How their names begin.
    pub prefix: NamePrefix,
    /// The owner of their leases, exactly.
    pub owner: Option<Owner>,
    /// A part of the name, of the owner or of a value of the metadata, whatever the case of its letters.
    pub search: Option<SearchText>,
    /// About how many on one page; the gateway's default if it is left out.
    pub limit: Option<u32>,
    /// The [`Page::next_cursor`] of the page before.
    pub cursor: Option<String>,
}

/// A page of held locks.
#[derive(Debug, Clone)]
pub struct Page {
    /// The locks. There may be few or none, and still more pages.
    pub locks: Vec<HeldLock>,
    /// Where the next page begins; `None`: this was the last.
    pub next_cursor: Option<String>,
}

/// A lock that somebody holds, or held until it was broken.
#[derive(Debug, Clone, Deserialize)]
pub struct HeldLock {
    /// The lock.
    #[serde(deserialize_with = "name")]
    pub name: LockName,
    /// Who holds it: of several who share it at most a hundred, those first whose leases end soonest.
    pub holders: Vec<Holder>,
    /// How many hold it in all.
    #[serde(default)]
    pub holder_count: u64,
    #[serde(skip)]
    json: String,
}

/// The longest page: a thousand locks, each with all the metadata there may be.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

#[derive(Deserialize)]
struct WirePage {
    locks: Vec<Value>,
    next_cursor: Option<String>,
}

// === impl Client ===

impl Client {
    /// Shows a part of the locks that are held. Whoever walks through all pages comes by every lock
    /// that is held throughout, and may come by it twice.
    pub async fn list(&self, request: &ListRequest) -> Result<Page, ClientError> {
        let call = Call::at(Method::GET, request.target()).longest_answer(MAX_ANSWER);
        let answer = call.send(self).await?;
        if answer.status.is_success() {
            Page::from_answer(answer)
        } else {
            Err(answer.refusal())
        }
    }
}

// === impl ListRequest ===

impl ListRequest {
    fn target(&self) -> String {
        let mut query = Serializer::new(String::new());
        query.append_pair("prefix", self.prefix.as_str());
        if let Some(owner) = &self.owner {
            query.append_pair("owner", owner.as_str());
        }
        if let Some(search) = &self.search {
            query.append_pair("search", search.as_str());
        }
        if let Some(limit) = self.limit {
            query.append_pair("limit", &limit.to_string());
        }
        if let Some(cursor) = &self.cursor {
            query.append_pair("cursor", cursor);
        }
        format!("/locks?{}", query.finish())
    }
}

// === impl Page ===

impl Page {
    fn from_answer(answer: CallResponse) -> Result<Self, ClientError> {
        let Ok(wire) = serde_json::from_str::<WirePage>(&answer.body) else {
            return Err(answer.unexpected("not a page of locks"));
        };
        let locks = wire.locks.into_iter().map(HeldLock::read);
        match locks.collect() {
            Some(locks) => Ok(Self {
                locks,
                next_cursor: wire.next_cursor,
            }),
            None => Err(answer.unexpected("not a page of locks")),
        }
    }
}

// === impl HeldLock ===

impl HeldLock {
    /// The lock as the gateway showed it, in one line.
    pub fn json(&self) -> &str {
        &self.json
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::read(serde_json::from_str(text).ok()?)
    }

    fn read(value: Value) -> Option<Self> {
        let json = value.to_string();
        let lock: Self = serde_json::from_value(value).ok()?;
        Some(Self { json, ..lock })
    }
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LockName, D::Error> {
    LockName::new(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_for_what_is_wanted_and_nothing_can_pretend_to_be_something_else() {
        let request = ListRequest {
            prefix: NamePrefix::new("team:").unwrap(),
            owner: Some(Owner::new("a&limit=1 +ü").unwrap()),
            search: SearchText::new("x&y").ok(),
            limit: Some(7),
            cursor: Some("x/y".to_owned()),
        };
        assert_eq!(
            request.target(),
            "/locks?prefix=team%3A&owner=a%26limit%3D1+%2B%C3%BC&search=x%26y&limit=7&cursor=x%2Fy"
        );
        assert_eq!(ListRequest::default().target(), "/locks?prefix=");
    }
}
