//! Reads the replies of scripts: leases, the holder and waiters of a lock, and news, which are consequences of a script
//! for this gateway.

use std::time::Duration;

use crate::{
    lock::{HeldLease, Metadata, Salt, TokenHash},
    store::{
        StoreError,
        contract::{Contention, GrantedOrder, Holder, SharedHolders, Waiter},
    },
};

use super::super::{
    client::{Reply, token_hash},
    keys::Keys,
    records::{Record, granted_order, waiter},
};

// === impl Reply ===

impl Reply {
    /// Reads the next fields of the reply as a lease: its text, and the time. An unreadable lease was not written by a
    /// gateway.
    pub(super) fn held(&mut self, keys: &Keys) -> Result<HeldLease, StoreError> {
        Ok(self.told(keys)?.0)
    }

    /// Reads a lease as `held` does, and answers also the salt of the lease's token and the time.
    pub(super) fn told(
        &mut self,
        keys: &Keys,
    ) -> Result<(HeldLease, Option<Salt>, u64), StoreError> {
        self.read_told().ok_or_else(|| not_ours(keys))
    }

    pub(super) fn read_told(&mut self) -> Option<(HeldLease, Option<Salt>, u64)> {
        let (text, now) = (self.text()?, self.micros()?);
        let record = Record::read(&text)?;
        Some((record.lease(now, self.sent())?, record.salt(), now))
    }

    /// Reads a renewed lease, and how much time the lease had left before.
    pub(super) fn renewed(&mut self, keys: &Keys) -> Result<(HeldLease, Duration), StoreError> {
        let (held, _, now) = self.told(keys)?;
        let ended = self.micros().ok_or_else(|| self.unexpected())?;
        Ok((held, Duration::from_micros(ended.saturating_sub(now))))
    }

    /// Reads the next fields of the reply as the leases that share a lock. An unreadable lease is only counted.
    pub(super) fn shared(&mut self) -> Option<SharedHolders> {
        let (count, resting, look) = (self.count()?, self.count()?, self.count()?);
        self.note_next_look(Duration::from_millis(look));
        let (mut shown, now) = (self.nested()?, self.micros()?);
        let mut leases = Vec::new();
        while !shown.is_over() {
            let text = shown.text()?;
            leases.extend(Record::read(&text).and_then(|record| record.lease(now, self.sent())));
        }
        Some(SharedHolders {
            leases,
            count,
            resting,
            first: None,
        })
    }

    /// Reads a remaining TTL in ms from the reply; -1: without an expiry.
    #[expect(clippy::option_option, reason = "without an expiry is an answer, too")]
    pub(super) fn rest(&mut self) -> Option<Option<Duration>> {
        let ms = self.integer()?;
        Some(u64::try_from(ms).ok().map(Duration::from_millis))
    }

    /// Reads what a lock remembers of orders from the reply, and the time; `None` in the answer if it remembers none.
    #[expect(clippy::option_option, reason = "without an order is an answer, too")]
    pub(super) fn order(&mut self) -> Option<Option<GrantedOrder>> {
        let (text, now) = (self.text()?, self.micros()?);
        if text.is_empty() {
            return Some(None);
        }
        granted_order(&text, now).map(Some)
    }

    pub(super) fn count(&mut self) -> Option<u64> {
        u64::try_from(self.integer()?).ok()
    }

    /// Reads a length of time from the reply, in microseconds.
    pub(super) fn duration(&mut self) -> Result<Duration, StoreError> {
        let passed = self.micros().ok_or_else(|| self.unexpected())?;
        Ok(Duration::from_micros(passed))
    }

    /// Reads a time of the store's clock from the reply, in microseconds.
    pub(super) fn micros(&mut self) -> Option<u64> {
        self.str()?.parse().ok()
    }

    /// Reads a foreign holder from the reply: its remaining TTL and its mark.
    pub(super) fn foreign(&mut self) -> Option<Holder> {
        Some(Holder::Foreign {
            expires_in: self.rest()?,
            mark: Some(self.mark()?),
        })
    }

    /// Reads the waiters of a queue from the reply: their tickets and the time.
    pub(super) fn queue(&mut self) -> Option<Vec<Waiter>> {
        let (mut tickets, now) = (self.nested()?, self.micros()?);
        let mut queue = Vec::new();
        while !tickets.is_over() {
            let ticket = tickets.text()?;
            // A waiter whose ticket was lost stays in the queue until its turn comes.
            queue.push(waiter(&ticket, now).unwrap_or(Waiter {
                owner: None,
                metadata: Metadata::default(),
                sharing: None,
                waited: Duration::ZERO,
            }));
        }
        Some(queue)
    }

    /// Reads the next fields of the reply as a contention: the number of waiters, the holder of the lock, and the first
    /// waiter of a shared lock.
    pub(super) fn contention(&mut self, keys: &Keys) -> Result<Contention, StoreError> {
        let waiters = self.count().ok_or_else(|| self.unexpected())?;
        let holder = match self.text().as_deref() {
            Some("held") => Some(Holder::Lease(self.held(keys)?)),
            Some("shared") => {
                let mut shared = self.shared().ok_or_else(|| self.unexpected())?;
                let ticket = self.text().ok_or_else(|| self.unexpected())?;
                shared.first = waiter(&ticket, 0);
                Some(Holder::Shared(shared))
            }
            Some("foreign") => Some(self.foreign().ok_or_else(|| self.unexpected())?),
            Some("passing") => None,
            _ => return Err(self.unexpected()),
        };
        Ok(Contention { holder, waiters })
    }
}

pub(super) fn not_ours(keys: &Keys) -> StoreError {
    StoreError::ForeignData {
        key: keys.lock().to_owned(),
        found: "a lease that makes no sense".into(),
    }
}

// === News ===

/// A consequence of a script, in its reply, that concerns this gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) enum ScriptNews {
    /// The lock has passed to an attempt that waits at this gateway.
    Granted(TokenHash, HeldLease),
    /// The lock has passed to another attempt, which keeps it for this long; or the holders of a shared lock keep it
    /// for this long before it may pass on.
    Passed(Duration),
    /// An attempt that was queued through this gateway holds the lock beside other leases, and has not confirmed its
    /// grant.
    Provisional(TokenHash),
    /// Another attempt has taken over the position of an attempt that waits at this gateway.
    Replaced(TokenHash),
    /// A newer waiter has taken an attempt that waits at this gateway out of the queue.
    Outdated(TokenHash),
    /// The store has no position of an attempt that waits at this gateway any more, so the attempt asks again.
    Forgotten(TokenHash),
    /// The queue has more dead tickets or grants than one script handles: the gateway looks at the lock again.
    More,
    /// A message of the script to another gateway could not be published.
    Unsent,
    /// This gateway did not count as alive in the slot of the lock until now.
    Lapsed,
}

// === impl Reply ===

impl Reply {
    /// Reads the news in the next field of the reply. If the news are unreadable, the reply counts as lost: the next
    /// round of the gateway finds the consequences.
    pub(super) fn news(&mut self) -> Result<Vec<ScriptNews>, StoreError> {
        let mut news = self.nested().ok_or_else(|| self.unexpected())?;
        let mut all = Vec::new();
        while !news.is_over() {
            let one = news.nested().and_then(ScriptNews::read);
            all.push(one.ok_or_else(|| self.unexpected())?);
        }
        Ok(all)
    }
}

// === impl ScriptNews ===

impl ScriptNews {
    fn read(mut fields: Reply) -> Option<Self> {
        let kind = fields.text()?;
        match kind.as_str() {
            "granted" => {
                let text = fields.text()?;
                let record = Record::read(&text)?;
                let now = fields.micros()?;
                let lease = record.lease(now, fields.sent())?;
                Some(Self::Granted(record.token(), lease))
            }
            "passed" => {
                let ms = fields.count()?;
                Some(Self::Passed(Duration::from_millis(ms)))
            }
            "provisional" => token_hash(&fields.text()?).map(Self::Provisional),
            "replaced" => token_hash(&fields.text()?).map(Self::Replaced),
            "outdated" => token_hash(&fields.text()?).map(Self::Outdated),
            "forgotten" => token_hash(&fields.text()?).map(Self::Forgotten),
            "more" => Some(Self::More),
            "unsent" => Some(Self::Unsent),
            "lapsed" => Some(Self::Lapsed),
            _ => None,
        }
    }
}

/// Reads any bytes as the reply to a script of one server, for fuzzers.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzzed_reply(bytes: &[u8]) -> String {
    use super::super::client::{fuzzed, shown};

    fuzzed(
        bytes,
        &[
            |reply, _| shown(reply.news()),
            |reply, keys| shown(reply.held(keys)),
            |reply, _| format!("{:?}", reply.queue().is_some()),
            |reply, keys| shown(reply.contention(keys)),
            |reply, _| shown(reply.broken()),
            |reply, _| format!("{:?}", reply.foreign().is_some()),
            |reply, _| format!("{:?}", reply.order().is_some()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use bb8_redis::redis::Value;
    use tokio::time::Instant;

    use crate::lock::Token;

    use super::*;

    fn news(news: &[&[&str]]) -> Result<Vec<ScriptNews>, StoreError> {
        let field = |text: &str| format!("{}:{text}", text.len());
        let one = |fields: &&[&str]| {
            let fields: String = fields.iter().map(|text| field(text)).collect();
            field(&fields)
        };
        let news: String = news.iter().map(one).collect();
        let text = format!("released a {}", field(&news));
        Reply::read(Value::BulkString(text.into()), "a", Instant::now())
            .unwrap()
            .news()
    }

    #[test]
    fn each_kind_is_understood() {
        let token = Token::random().hash();
        let ticket = token.to_string();
        let read = news(&[
            &["passed", "3000"],
            &["provisional", &ticket],
            &["replaced", &ticket],
            &["outdated", &ticket],
            &["more"],
            &["unsent"],
            &["lapsed"],
        ]);
        let expected = [
            ScriptNews::Passed(Duration::from_secs(3)),
            ScriptNews::Provisional(token),
            ScriptNews::Replaced(token),
            ScriptNews::Outdated(token),
            ScriptNews::More,
            ScriptNews::Unsent,
            ScriptNews::Lapsed,
        ];
        assert_eq!(read.unwrap(), expected);
        assert_eq!(news(&[]).unwrap(), []);
    }

    #[test]
    fn what_makes_no_sense_is_no_news() {
        for odd in [
            &["odd"][..],
            &["passed", "-1"],
            &["replaced", "x"],
            &["granted", &"0".repeat(64)],
            &[],
        ] {
            assert!(news(&[odd]).is_err());
        }
    }
}
