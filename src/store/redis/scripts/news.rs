//! What a script tells besides its answer: the consequences that concern this gateway.

use std::time::Duration;

use crate::{
    lock::{HeldLease, TokenHash},
    store::StoreError,
};

use super::super::{
    client::calls::{Reply, token_hash},
    records::Record,
};

/// One piece of news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) enum ScriptNews {
    /// The lock has passed to an attempt that waits here.
    Granted(TokenHash, HeldLease),
    /// It has passed to somebody else, for this long; or those who share it hold it for so long before it may pass on.
    Passed(Duration),
    /// An attempt that was queued through this gateway holds the lock beside others, and has not confirmed it.
    Provisional(TokenHash),
    /// The place of an attempt that waits here was taken over.
    Superseded(TokenHash),
    /// The lock is free; there were more dead tickets than are cleared away at once.
    More,
    /// A message to another gateway could not be published.
    Unsent,
    /// This gateway did not count as alive in the slot of the lock until now.
    Lapsed,
}

// === impl Reply ===

impl Reply {
    /// The news in the next field. What makes no sense is as good as a lost reply: it is found out
    /// later.
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
            "superseded" => token_hash(&fields.text()?).map(Self::Superseded),
            "more" => Some(Self::More),
            "unsent" => Some(Self::Unsent),
            "lapsed" => Some(Self::Lapsed),
            _ => None,
        }
    }
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
            &["superseded", &ticket],
            &["more"],
            &["unsent"],
            &["lapsed"],
        ]);
        let expected = [
            ScriptNews::Passed(Duration::from_secs(3)),
            ScriptNews::Provisional(token),
            ScriptNews::Superseded(token),
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
            &["superseded", "x"],
            &["granted", &"0".repeat(64)],
            &[],
        ] {
            assert!(news(&[odd]).is_err());
        }
    }
}
