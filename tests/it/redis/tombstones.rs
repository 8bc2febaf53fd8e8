//! How many memories of ended leases a name keeps.

use bb8_redis::redis::{Value, from_redis_value};
use latchgate::store::{Store, contract::Release};

use super::{leases::keyed, rig::Rig};

const LEASES: i64 = 100;

#[tokio::test]
async fn those_that_count_are_all_that_pile_up() {
    let rig = Rig::start().await;
    let ended = "lg:{busy}:ended";
    for old in 0..1_000 {
        let member = format!("k:{old}");
        rig.server.run(&["ZADD", ended, "1", &member]).await;
    }
    for lease in 0..LEASES {
        let attempt = keyed("busy", &lease.to_string());
        rig.grant(&attempt).await;
        let released = rig.store.release(&attempt.name, &attempt.token).await;
        assert_eq!(released.unwrap(), Release::Released);
    }
    assert_eq!(rig.server.integer(&["ZCOUNT", ended, "1", "1"]).await, 0);
    let left = rig.server.integer(&["ZCARD", ended]).await;
    assert!((LEASES..=2 * LEASES).contains(&left), "{left}");
    // None of them counts for longer than a minute, and the set goes with the last.
    let time: Value = rig.server.run(&["TIME"]).await;
    let [seconds, _]: [String; 2] = from_redis_value(time).unwrap();
    let later = (seconds.parse::<i64>().unwrap() + 61) * 1_000;
    let range = ["ZCOUNT", ended, &later.to_string(), "+inf"];
    assert_eq!(rig.server.integer(&range).await, 0);
    assert!(rig.server.integer(&["PTTL", ended]).await <= 60_000);
}
