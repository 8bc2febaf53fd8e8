//! The order that a lock remembers (`:order`).

use tokio::time::Instant;

use crate::{
    lock::OrderNumber,
    store::contract::{GrantedOrder, OrderGrant},
};

use super::{
    super::fields::{Layout, number},
    lease::Record,
};

/// Layout of the record. The id begins the lease that was granted for the order, which is missing if a caller has set
/// the order, or if that lease was given back.
pub(in crate::store::redis) const HIGHEST: Layout = Layout {
    name: "highest",
    groups: &[&[
        // The highest order, in digits.
        ("number", 16),
        // The order that was remembered before, in digits; blank if there was none.
        ("previous", 16),
        ("id", 65),
    ]],
};

/// Reads the record at an instant of the store's clock; `None` if no gateway wrote it.
pub(in crate::store::redis) fn granted_order(text: &str, now_us: u64) -> Option<GrantedOrder> {
    let order = number(text, const { HIGHEST.place("number") })?;
    let lease = text.get(const { HIGHEST.place("id").start }..)?;
    // The lease has ended perhaps, so only what does not change of it is read.
    let lease = Record::read(lease).and_then(|record| record.lease(now_us, Instant::now()));
    Some(GrantedOrder {
        number: OrderNumber::new(order).ok()?,
        grant: lease.map(|lease| {
            Box::new(OrderGrant {
                ago: lease.held_for,
                by: lease.said.order.and_then(|it| it.by),
                owner: lease.said.owner,
            })
        }),
    })
}

/// The digits of an order in arguments of scripts; empty for none.
pub(in crate::store::redis) fn order_digits(order: Option<OrderNumber>) -> String {
    order.map_or_else(String::new, |it| format!("{:016}", it.get()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{
        lock::{Order, Reason},
        store::redis::records::{id, pack, packed::tests::attempt},
    };

    use super::*;

    #[test]
    fn an_order_is_read_with_the_grant_that_it_has_from() {
        let now = 1_795_000_000_000_000_u64;
        let mut attempt = attempt(true);
        attempt.terms.said.order = Some(Box::new(Order {
            number: OrderNumber::new(41_873).unwrap(),
            by: Some("ci".into()),
            rollback: None,
        }));
        let (since, ends) = (now - 7_000_000, now - 2_000_000);
        let (id, rest) = (id(&attempt.token), pack(&attempt));
        assert!(rest.contains("\n{\"\":\"#0000000000041873"));
        let lease = format!("{id}hx100{:016}{since}{ends}{rest}", 7);
        let number = OrderNumber::new(41_873).unwrap();
        let digits = order_digits(Some(number));
        let blanks = " ".repeat(16);
        let read = granted_order(&format!("{digits}{blanks}{lease}"), now).unwrap();
        assert_eq!(read.number, number);
        let grant = read.grant.unwrap();
        assert_eq!(grant.ago, Duration::from_secs(7));
        assert_eq!(grant.by.as_deref(), Some("ci"));
        assert_eq!(grant.owner, attempt.terms.said.owner);
        let bare = granted_order(&format!("{digits}{blanks}"), now);
        let grant = None;
        assert_eq!(bare, Some(GrantedOrder { number, grant }));
        for odd in ["", "7", &digits, "x000000000041873                "] {
            assert_eq!(granted_order(odd, now), None, "{odd}");
        }
        let rollback = Reason::new("x").ok();
        attempt.terms.said.order.as_mut().unwrap().rollback = rollback;
        assert!(pack(&attempt).contains("\n{\"\":\"~0000000000041873"));
    }
}
