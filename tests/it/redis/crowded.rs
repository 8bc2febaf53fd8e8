//! Many ask at once, and somebody has a lease to keep.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use latchgate::store::{Store, StoreError, Unavailability, contract::Renewal};

use super::rig::{Rig, attempt};

/// More than are sent at once.
const MANY: usize = 3_000;
/// How many of them are, at most.
const SENT: usize = 1_024;

#[tokio::test]
async fn a_renewal_stands_in_line_behind_few_of_those_who_ask() {
    let rig = Rig::start().await;
    let held = attempt("held");
    rig.grant(&held).await;
    let asked: Vec<_> = (0..MANY).map(|n| attempt(&format!("n{n}"))).collect();
    rig.server.run(&["CLIENT", "PAUSE", "300", "ALL"]).await;
    let (begun, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let all = join_all(asked.iter().map(async |attempt| {
        begun.fetch_add(1, Ordering::Relaxed);
        let answer = rig.store.acquire(attempt).await;
        answered.fetch_add(1, Ordering::Relaxed);
        answer
    }));
    let renewal = async {
        while begun.load(Ordering::Relaxed) < MANY {
            tokio::task::yield_now().await;
        }
        let renewed = rig.store.renew(&held.name, &held.token, None).await;
        (renewed, answered.load(Ordering::Relaxed))
    };
    let ((renewed, before), answers) = tokio::join!(biased; renewal, all);
    assert!(matches!(renewed, Ok(Renewal::Renewed(_))), "{renewed:?}");
    // Some more may have been answered in the same turn of the runtime.
    assert!(before <= 2 * SENT, "{before} were served first");
    // Whoever finds no room is told that nothing happened.
    for answer in answers {
        assert!(
            answer.is_ok() || answer == Err(StoreError::Unavailable(Unavailability::Overloaded)),
            "{answer:?}"
        );
    }
}
