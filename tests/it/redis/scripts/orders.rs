//! The orders that locks remember on one server: lost confirmations, late copies, and bounds.

use latchgate::{
    config::OrderLimits,
    lock::{Order, OrderNumber},
    store::contract::{OrderChange, OrderSetting, Superseding},
};

use crate::redis::prelude::*;

fn number(number: u64) -> OrderNumber {
    OrderNumber::new(number).unwrap()
}

fn ordered(order: u64, asked: Attempt) -> Attempt {
    with(asked, |it| {
        it.terms.said.order = Some(Box::new(Order {
            number: number(order),
            by: Some("ci".into()),
            rollback: None,
        }));
    })
}

fn newest(asked: Attempt) -> Attempt {
    let hash = SupersedeHash::from_bytes([7; 16]);
    with(waiting(asked), |it| {
        it.wait.as_mut().expect("it waits").supersedes = Some(Superseding::from(hash));
    })
}

async fn highest(rig: &Rig) -> Option<u64> {
    let shown = rig.inspect(&name("lock")).await.unwrap();
    shown.granted_order.map(|order| order.number.get())
}

async fn set(rig: &Rig, seen: Option<u64>, new: Option<u64>) -> OrderSetting {
    let [seen, new] = [seen, new].map(|it| it.map(number));
    let change = OrderChange { seen, new };
    rig.set_order(&name("lock"), change).await.unwrap()
}

#[tokio::test]
async fn a_failover_that_undoes_a_confirmation_does_not_make_the_lock_forget_its_order() {
    let rig = Rig::start().await;
    for renews in [true, false] {
        let asked = ordered(5, attempt("lock"));
        rig.grant(&asked).await;
        // Redis after a failover to a replica that has received the grant, but not yet its confirmation.
        rig.run(&["SETRANGE", "lg:{lock}:lock", "65", "p"]).await;
        rig.run(&["DEL", "lg:{lock}:order"]).await;
        assert_eq!(highest(&rig).await, None);
        if renews {
            rig.must_renew(&asked, None).await;
        }
        rig.must_release(&asked).await;
        assert_eq!(highest(&rig).await, Some(5), "{renews}");
    }
}

#[tokio::test]
async fn a_late_copy_of_a_change_does_not_undo_a_later_change() {
    let (rig, proxy) = Rig::with_proxy().await;
    assert_eq!(set(&rig, None, Some(41_902)).await, OrderSetting::Set);
    proxy.strike("0000000000041873", Fault::HoldRequest);
    let changed = set(&rig, Some(41_902), Some(41_873)).await;
    assert_eq!(changed, OrderSetting::Set);
    let back = set(&rig, Some(41_873), Some(41_902)).await;
    assert_eq!(back, OrderSetting::Set);
    assert_eq!(proxy.strikes(), 1);
    let before = rig.server.calls("evalsha").await;
    proxy.let_go();
    let is_so = async || rig.server.calls("evalsha").await > before;
    until("the late copy arrives", is_so).await;
    assert_eq!(highest(&rig).await, Some(41_902));
}

#[tokio::test]
async fn a_change_whose_reply_is_lost_is_carried_out_once() {
    let (rig, proxy) = Rig::with_proxy().await;
    assert_eq!(set(&rig, None, Some(9)).await, OrderSetting::Set);
    proxy.strike("0000000000000007", Fault::CutReply);
    assert_eq!(set(&rig, Some(9), Some(7)).await, OrderSetting::Set);
    assert_eq!(proxy.strikes(), 1);
    assert_eq!(highest(&rig).await, Some(7));
}

#[tokio::test]
async fn a_waiter_whose_grant_lapsed_leaves_only_for_a_higher_order() {
    for (order, stays) in [(5, true), (11, false)] {
        let rig = Rig::start().await;
        let other = open(&rig.server.url());
        let holder = rig.must_hold(attempt("lock")).await;
        let ten = newest(ordered(10, attempt("lock")));
        let parked = other.stand(&ten).await;
        rig.must_release(&holder).await;
        rig.must_be_held(&name("lock")).await;
        // The grant of the waiter lapses, another caller is granted the lock, and a waiter with the same key comes.
        rig.run(&["DEL", "lg:{lock}:lock"]).await;
        rig.must_hold(attempt("lock")).await;
        let rival = newest(ordered(order, attempt("lock")));
        let rival = rig.stand(&rival).await;
        let again = other.acquire(&ten).await;
        if stays {
            assert!(matches!(again, Ok(Acquisition::Queued(..))), "{again:?}");
            assert_eq!(rig.inspect(&name("lock")).await.unwrap().waiters, 1);
        } else {
            assert_eq!(again, Ok(Acquisition::NewerWaiter));
        }
        drop((parked, rival));
    }
}

#[tokio::test]
async fn what_is_remembered_of_a_grant_does_not_grow_with_its_metadata() {
    let rig = Rig::start().await;
    let entry = ("a\",\"b".to_owned(), "\\\"\",\"".repeat(300));
    let asked = with(ordered(5, attempt("lock")), |it| {
        it.terms.said.owner = Owner::new("ann").ok();
        it.terms.said.metadata = Metadata::new([entry].into()).unwrap();
    });
    rig.grant(&asked).await;
    let len = rig.integer(&["STRLEN", "lg:{lock}:order"]).await;
    assert!(len < 600, "{len}");
    let shown = rig.inspect(&name("lock")).await.unwrap().granted_order;
    let grant = shown.and_then(|order| order.grant).unwrap();
    let owner = grant.owner.as_ref().map(Owner::as_str);
    assert_eq!((grant.by.as_deref(), owner), (Some("ci"), Some("ann")));
}

#[tokio::test]
async fn a_slot_has_a_largest_number_of_names_with_an_order() {
    let server = RedisServer::start().await;
    let limits = OrderLimits {
        most: 1,
        ..OrderLimits::default()
    };
    let (clock, lifecycle) = (Arc::new(SystemClock), Lifecycle::new());
    let store = RedisStore::open(&server.url(), &quick(), clock, &lifecycle, limits);
    let slot = Slot::of_tag(b"0");
    let names = (0_u64..).map(|number| number.to_string());
    let mut names = names.filter(|it| Slot::of_tag(it.as_bytes()) == slot);
    for lock in names.by_ref().take(24) {
        granted(store.acquire(&ordered(1, attempt(&lock))).await);
    }
    let further = names.next().unwrap();
    let refused = store.acquire(&ordered(1, attempt(&further))).await;
    assert_eq!(refused, Ok(Acquisition::TooManyOrders));
    granted(store.acquire(&attempt(&further)).await);
    // A name that has an order keeps it.
    let lock = attempt("0");
    assert!(matches!(
        store.acquire(&ordered(0, lock)).await,
        Ok(Acquisition::Held(_) | Acquisition::OutdatedOrder(_))
    ));
}
