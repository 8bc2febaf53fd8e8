//! What a script tells besides its answer: the consequences that concern this gateway.

use std::time::Duration;

use bb8_redis::redis::Value;

use crate::{
    lock::{HeldLease, TokenHash},
    store::StoreError,
};

use super::{Reply, token_hash};

/// One piece of news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) enum Heard {
    /// The lock has passed to an attempt that waits here.
    Granted(TokenHash, HeldLease),
    /// It has passed to somebody else, for this long.
    Passed(Duration),
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
    pub(super) fn news(&mut self) -> Result<Vec<Heard>, StoreError> {
        let news = self.list().ok_or_else(|| self.unexpected())?;
        let heard = news.into_iter().map(|news| match news {
            Value::Array(fields) => Heard::read(Reply::of_fields(fields)),
            _ => None,
        });
        let heard: Option<Vec<Heard>> = heard.collect();
        heard.ok_or_else(|| self.unexpected())
    }
}

// === impl Heard ===

impl Heard {
    fn read(mut fields: Reply) -> Option<Self> {
        let kind = fields.text()?;
        match kind.as_str() {
            "granted" => {
                let token = token_hash(&fields.text()?)?;
                Some(Self::Granted(token, fields.read_lease()?))
            }
            "passed" => {
                let ms = u64::try_from(fields.integer()?).ok()?;
                Some(Self::Passed(Duration::from_millis(ms)))
            }
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
    use super::*;
    use crate::lock::Token;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn news(news: Vec<Vec<Value>>) -> Result<Vec<Heard>, StoreError> {
        let news = Value::Array(news.into_iter().map(Value::Array).collect());
        let value = Value::Array(vec![text("released"), text("a"), news]);
        Reply::read(value, "a").unwrap().news()
    }

    #[test]
    fn each_kind_is_understood() {
        let token = Token::random().hash();
        let ticket = text(&token.to_string());
        let read = news(vec![
            vec![text("passed"), Value::Int(3_000)],
            vec![text("superseded"), ticket],
            vec![text("more")],
            vec![text("unsent")],
            vec![text("lapsed")],
        ]);
        let expected = [
            Heard::Passed(Duration::from_secs(3)),
            Heard::Superseded(token),
            Heard::More,
            Heard::Unsent,
            Heard::Lapsed,
        ];
        assert_eq!(read.unwrap(), expected);
        assert_eq!(news(Vec::new()).unwrap(), []);
    }

    #[test]
    fn what_makes_no_sense_is_no_news() {
        for odd in [
            vec![text("odd")],
            vec![text("passed"), Value::Int(-1)],
            vec![text("superseded"), text("x")],
            vec![text("granted"), text(&"0".repeat(64))],
            Vec::new(),
        ] {
            assert!(news(vec![odd]).is_err());
        }
    }
}
