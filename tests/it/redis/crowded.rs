//! Many ask at once, and somebody has a lease to keep.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use latchgate::store::{Store, StoreError, Unavailability, contract::Renewal};

use super::rig::{Rig, attempt};

/// How many ask.
const MANY: usize = 3_000;
/// How many of them may be sent at once.
const SENT: i64 = 1_024;

/// How many of the locks were granted before the lease was renewed, by their expiries: all have the
/// same TTL.
const BEFORE: &str = "local renewed, before = redis.call('PEXPIRETIME', 'lg:{held}:lock'), 0 \
    for n = 1, tonumber(ARGV[1]) do \
        local granted = redis.call('PEXPIRETIME', 'lg:{n' .. n .. '}:lock') \
        if granted > 0 and granted < renewed then before = before + 1 end \
    end \
    return before";

#[tokio::test]
async fn a_renewal_stands_in_line_behind_few_of_those_who_ask() {
    let rig = Rig::start().await;
    let held = attempt("held");
    rig.grant(&held).await;
    let asked: Vec<_> = (1..=MANY).map(|n| attempt(&format!("n{n}"))).collect();
    rig.server.run(&["CLIENT", "PAUSE", "500", "ALL"]).await;
    let begun = AtomicUsize::new(0);
    let all = join_all(asked.iter().map(async |attempt| {
        begun.fetch_add(1, Ordering::Relaxed);
        rig.store.acquire(attempt).await
    }));
    let renewal = async {
        while begun.load(Ordering::Relaxed) < MANY {
            tokio::task::yield_now().await;
        }
        rig.store.renew(&held.name, &held.token, None).await
    };
    let (renewed, answers) = tokio::join!(renewal, all);
    assert!(matches!(renewed, Ok(Renewal::Renewed(_))), "{renewed:?}");
    let granted = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!(granted > 2 * 1_024, "only {granted} asked at once");
    // Whoever finds no room is told that nothing happened.
    let overloaded = StoreError::from(Unavailability::Overloaded);
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    for error in refused {
        assert_eq!(*error, overloaded);
    }
    let before = rig
        .server
        .integer(&["EVAL", BEFORE, "0", &MANY.to_string()])
        .await;
    assert!(before <= SENT, "{before} were served first");
}
