//! Many ask at once, and somebody has a lease to keep.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use latchgate::{
    config::{Millis, RedisConfig},
    store::{Store, StoreError, Unavailability, contract::Renewal},
};

use tokio::task::yield_now;

use super::rig::{Rig, attempt};

/// How many ask.
const MANY: usize = 3_000;
/// How many of them may be sent at once.
const SENT: usize = 1_024;

/// Time-outs that no machine is slow enough to reach while a pause lasts.
fn patient() -> RedisConfig {
    RedisConfig {
        command_timeout_ms: Millis(60_000),
        deadline_ms: Millis(60_000),
        ..RedisConfig::default()
    }
}

/// How many of the locks were granted before the lease was renewed, by their expiries: all have the
/// same TTL.
const BEFORE: &str = "local renewed, before = redis.call('PEXPIRETIME', 'lg:{held}:lock'), 0 \
    for n = 1, tonumber(ARGV[1]) do \
        local granted = redis.call('PEXPIRETIME', 'lg:{n' .. n .. '}:lock') \
        if granted > 0 and granted < renewed then before = before + 1 end \
    end \
    return before";

/// What came of one round.
struct Round {
    /// How many asks found room in time.
    granted: usize,
    /// How many of them were served before the renewal.
    before: i64,
}

#[tokio::test]
async fn a_renewal_stands_in_line_behind_few_of_those_who_ask() {
    for _ in 0..10 {
        let round = round().await;
        // On a machine that is slow, most were turned away before anything was served, and it is not
        // seen who comes before whom.
        if round.granted > 2 * SENT {
            // Where there are several connections, one of them may be a batch of commands ahead.
            let few = i64::try_from(SENT + SENT / 2).unwrap();
            assert!(round.before <= few, "{} were served first", round.before);
            return;
        }
    }
    panic!("never did more than {} find room", 2 * SENT);
}

/// Many ask while the server serves nobody, then somebody renews, then all are served.
async fn round() -> Round {
    let rig = Rig::with(&patient()).await;
    let held = attempt("held");
    rig.grant(&held).await;
    let asked: Vec<_> = (1..=MANY).map(|n| attempt(&format!("n{n}"))).collect();
    // Nobody is served before all have asked, however long that takes.
    rig.server.run(&["CLIENT", "PAUSE", "60000", "WRITE"]).await;
    let begun = AtomicUsize::new(0);
    let all = join_all(asked.iter().map(async |attempt| {
        begun.fetch_add(1, Ordering::Relaxed);
        rig.store.acquire(attempt).await
    }));
    let renewal = async {
        while begun.load(Ordering::Relaxed) < MANY {
            yield_now().await;
        }
        let renewal = rig.store.renew(&held.name, &held.token, None);
        let serve = async {
            // By now it has been asked for, and stands in the queue before a connection has been made.
            for _ in 0..100 {
                yield_now().await;
            }
            rig.server.run(&["CLIENT", "UNPAUSE"]).await;
        };
        tokio::join!(biased; renewal, serve).0
    };
    let (renewed, answers) = tokio::join!(renewal, all);
    assert!(matches!(renewed, Ok(Renewal::Renewed(..))), "{renewed:?}");
    // Whoever finds no room is told that nothing happened.
    let overloaded = StoreError::from(Unavailability::Overloaded);
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    for error in refused {
        assert_eq!(*error, overloaded);
    }
    let counted = ["EVAL", BEFORE, "0", &MANY.to_string()];
    Round {
        granted: answers.iter().filter(|answer| answer.is_ok()).count(),
        before: rig.server.integer(&counted).await,
    }
}
