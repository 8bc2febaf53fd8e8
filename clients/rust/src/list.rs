//! List: look at the locks that are held, a page at a time.

use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use url::form_urlencoded::Serializer;

use crate::{
    Client, ClientError, Holder,
    http::{Call, CallResponse},
    lock::{LockName, NamePrefix, Owner, SearchText},
};

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
#[derive(Debug, Clone)]
pub struct HeldLock {
    /// The lock.
    pub name: LockName,
    /// Who holds it: of several who share it at most a hundred, those first whose leases end soonest.
    pub holders: Vec<Holder>,
    /// How many hold it in all.
    pub holder_count: u64,
    json: String,
}

/// The longest page: a thousand locks, each with all the metadata there may be.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

#[derive(Deserialize)]
struct WirePage {
    locks: Vec<Value>,
    #[serde(default)]
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct WireLock {
    name: String,
    holders: Vec<Holder>,
    #[serde(default)]
    holder_count: u64,
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
        let wire: WireLock = serde_json::from_value(value).ok()?;
        Some(Self {
            name: LockName::new(&wire.name).ok()?,
            holders: wire.holders,
            holder_count: wire.holder_count,
            json,
        })
    }
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
