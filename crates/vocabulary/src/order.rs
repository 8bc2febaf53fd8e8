//! Orders: numbers that callers give their work, so that a lock that was granted for newer work is not granted for
//! older work any more.

use std::{fmt, sync::Arc};

use crate::Reason;

/// The number of a piece of work, such as the number of a run or the time of a commit: 0 to 2^53 - 1, so that JSON,
/// JavaScript and Lua represent it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderNumber(u64);

/// The order of a request for a lock. A store grants the lock only if it has not granted the lock for a higher number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The number of the work.
    pub number: OrderNumber,
    /// The name of the API key that asks for the lock; `None` at a gateway without keys.
    pub by: Option<Arc<str>>,
    /// Why the caller goes back to older work on purpose. Such a grant is not compared and not remembered.
    pub rollback: Option<Reason>,
}

/// The error for a number that is no order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is {0}; an order is 0 to 9007199254740991")]
pub struct OrderError(u64);

/// How the stored text of an order begins. The scripts of Redis search for both characters.
const COMPARED: char = '#';
const ROLLBACK: char = '~';

// === impl OrderNumber ===

impl OrderNumber {
    /// The largest number, 2^53 - 1.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Makes an order of a number. Fails if the number is too large.
    pub fn new(number: u64) -> Result<Self, OrderError> {
        if number <= Self::MAX.0 {
            Ok(Self(number))
        } else {
            Err(OrderError(number))
        }
    }

    /// The order as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for OrderNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// === impl Order ===

impl Order {
    /// The text that a store keeps, with the text of the lease's group. The number has 16 digits, so that texts compare
    /// as numbers do.
    pub(crate) fn stored(&self, group: &str) -> String {
        let mark = self.rollback.as_ref().map_or(COMPARED, |_| ROLLBACK);
        let (by, why) = (self.by.as_deref(), self.rollback.as_ref());
        let (by, why) = (by.unwrap_or_default(), why.map_or("", Reason::as_str));
        format!("{mark}{:016}\t{by}\t{why}\t{group}", self.number.0)
    }

    /// Reads the text that a store has kept: the order, and the text of the group.
    pub(crate) fn from_stored(text: &str) -> Option<(Self, &str)> {
        let digits = text.strip_prefix([COMPARED, ROLLBACK])?;
        let mut parts = digits.splitn(4, '\t');
        let number = OrderNumber::new(parts.next()?.parse().ok()?).ok()?;
        let (by, why, group) = (parts.next()?, parts.next()?, parts.next()?);
        let rollback = text.starts_with(ROLLBACK).then(|| Reason::new(why));
        let order = Self {
            number,
            by: (!by.is_empty()).then(|| by.into()),
            rollback: rollback.transpose().ok()?,
        };
        Some((order, group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_comes_back_from_its_stored_text() {
        for (golden, group) in [
            ("#0000000000041873\t\t\t", ""),
            ("#0000000000000000\tci\t\t2 a", "2 a"),
            ("~9007199254740991\tops\tbad release\t2 a:b", "2 a:b"),
        ] {
            let (order, rest) = Order::from_stored(golden).unwrap();
            assert_eq!((order.stored(group), rest), (golden.to_owned(), group));
        }
    }

    #[test]
    fn any_other_text_is_no_order() {
        for text in [
            "",
            "3 a",
            "@1\tops\tload test",
            "#",
            "#1\tops\t",
            "#x\t\t\t",
            "#9007199254740992\t\t\t",
            "~1\t\t\t",
        ] {
            assert_eq!(Order::from_stored(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_number_stays_where_a_json_number_is_exact() {
        assert_eq!(OrderNumber::new(0).unwrap().get(), 0);
        assert_eq!(OrderNumber::new((1 << 53) - 1), Ok(OrderNumber::MAX));
        assert_eq!(OrderNumber::new(1 << 53), Err(OrderError(1 << 53)));
    }
}
