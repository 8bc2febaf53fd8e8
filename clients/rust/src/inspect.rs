//! Inspects one lock, checks a fencing token of a lock, or lists the locks that are held.

use std::time::Duration;

use reqwest::{Method, StatusCode, header::HeaderName};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use url::form_urlencoded::Serializer;

use crate::{
    Client, ClientError, Holder, LockState, Rest, Waiter,
    http::{Call, CallResponse, millis},
    lock::{
        FencingToken, LockName, NamePrefix, Owner, SearchText,
        answers::{Match, OrderGrant},
    },
};

/// A lock as a gateway shows it: its state, its holders and its waiters.
#[derive(Debug, Clone, Deserialize)]
pub struct Inspection {
    /// Whether the lock is held, resting or free.
    pub state: LockState,
    /// The holders, in the order in which their leases end; empty if the lock is free.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// The number of all holders, including holders that are not listed.
    #[serde(default)]
    pub holder_count: u64,
    /// The rests of the lock: places of leases that were released before their minimum hold was over.
    #[serde(default)]
    pub resting: Vec<Rest>,
    /// The beginning of the queue: the waiters that are served next.
    #[serde(default)]
    pub waiters: Vec<Waiter>,
    /// The number of all waiters, including waiters that are not listed.
    #[serde(default)]
    pub waiter_count: u64,
    /// Why the first waiter of a shared lock waits, if the gateway says so.
    #[serde(default)]
    pub waiting_because: Option<String>,
    /// The highest order for which the lock was granted, if it remembers one.
    pub granted_order: Option<u64>,
    /// The grant for that order, if it is known.
    pub order_granted: Option<OrderGrant>,
    #[serde(skip)]
    json: String,
}

/// The result of one inspection of a lock during a wait.
pub(crate) enum Look {
    /// The lock was inspected.
    Seen(Box<Inspection>),
    /// The API key may not view the lock.
    Forbidden,
    /// The rate limit of the API key refused the inspection.
    RateLimited,
    /// The inspection failed for another reason.
    Unseen,
}

// === impl Client ===

impl Client {
    /// Inspects a lock: its state, holders and waiters.
    pub async fn inspect(&self, name: &LockName) -> Result<Inspection, ClientError> {
        let answer = Call::new(Method::GET, name, "").send(self).await?;
        if answer.status.is_success() {
            Inspection::from_answer(answer, name)
        } else {
            Err(answer.refusal())
        }
    }

    /// Checks that a lease with this fencing token holds the lock now, and with `lasts` for at least this time.
    ///
    /// A resource that gets a fencing token with a request carries the request out only after `Ok`. The error is
    /// [`ClientError::Lost`] if no lease with the fencing token holds the lock, and [`ClientError::Refused`] with the
    /// code `ends-too-soon` if the lease ends before `lasts` is over. Any other error does not tell whether the lease
    /// lives.
    pub async fn check(
        &self,
        name: &LockName,
        fence: FencingToken,
        lasts: Option<Duration>,
    ) -> Result<(), ClientError> {
        let for_ms = lasts.map_or_else(String::new, |it| format!("?for_ms={}", millis(it)));
        let call = Call::new(Method::GET, name, &format!("/check{for_ms}"));
        let header = HeaderName::from_static("fencing-token");
        let call = call.secret(header, &fence.to_string());
        let answer = call.send(self).await?;
        match answer.status {
            StatusCode::NO_CONTENT => Ok(()),
            status if status.is_success() => Err(answer.unexpected("not the answer to a check")),
            _ => Err(answer.refusal()),
        }
    }

    /// Inspects a lock with a single request, which is not sent again.
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
                let seen = Inspection::from_answer(answer, name).map(Box::new);
                seen.map_or(Look::Unseen, Look::Seen)
            }
            _ => Look::Unseen,
        }
    }
}

// === impl Inspection ===

impl Inspection {
    /// The lock as the gateway sent it, as JSON.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The time until the first rest is over, if the lock has no holder.
    pub(crate) fn first_available(&self) -> Option<Duration> {
        let rests = self.resting.iter().map(|rest| rest.available_in_ms);
        let first = rests.min().filter(|_| self.state == LockState::Resting);
        first.map(Duration::from_millis)
    }

    #[cfg(test)]
    pub(crate) fn of_waiters(state: LockState, waiters: Vec<Waiter>) -> Self {
        Self {
            state,
            holders: Vec::new(),
            holder_count: 1,
            resting: Vec::new(),
            waiter_count: waiters.len() as u64,
            waiters,
            waiting_because: None,
            granted_order: None,
            order_granted: None,
            json: String::new(),
        }
    }

    fn from_answer(answer: CallResponse, asked: &LockName) -> Result<Self, ClientError> {
        if let Some(why) = answer.names_other(asked) {
            return Err(answer.unexpected(&why));
        }
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

/// Which locks to list.
#[derive(Debug, Clone, Default)]
pub struct ListRequest {
    /// Only locks whose names begin with this prefix.
    pub prefix: NamePrefix,
    /// Only locks with a lease of exactly this owner.
    pub owner: Option<Owner>,
    /// Only locks with this text in the name, or in the owner or a metadata value of a holder or of one of the first 100
    /// waiters, ignoring case.
    pub search: Option<SearchText>,
    /// The approximate number of locks on one page; the gateway's default if absent.
    pub limit: Option<u32>,
    /// The [`Page::next_cursor`] of the previous page; `None` for the first page.
    pub cursor: Option<String>,
}

/// A page of the list of all locks that are held.
#[derive(Debug, Clone)]
pub struct Page {
    /// The locks of this page. A page may be short or empty although more pages follow.
    pub locks: Vec<HeldLock>,
    /// The cursor for the request of the next page; `None`: this was the last page.
    pub next_cursor: Option<String>,
}

/// A lock that is held, or was held until it was broken.
#[derive(Debug, Clone, Deserialize)]
pub struct HeldLock {
    /// The name of the lock.
    #[serde(deserialize_with = "name")]
    pub name: LockName,
    /// The holders, at most a hundred, in the order in which their leases end.
    pub holders: Vec<Holder>,
    /// The number of all holders, including holders that are not listed.
    #[serde(default)]
    pub holder_count: u64,
    /// The rests of the lock; in the answer to a break, the rests that the break has ended.
    #[serde(default)]
    pub resting: Vec<Rest>,
    /// The number of waiters; in the answer to a break 0.
    #[serde(default)]
    pub waiter_count: u64,
    /// Where the text of the search is, if it is not in the name.
    #[serde(default, rename = "match")]
    pub found: Option<Match>,
    #[serde(skip)]
    json: String,
}

/// The maximum size of a page in bytes: a thousand locks, each with as much metadata as is allowed.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

#[derive(Deserialize)]
struct WirePage {
    locks: Vec<Value>,
    next_cursor: Option<String>,
}

// === impl Client ===

impl Client {
    /// Lists one page of the locks that are held. All pages together contain every lock that is held all the time,
    /// possibly twice.
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
    /// The lock as the gateway showed it, as one line of JSON.
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
