//! C36: what a resource asks.

use latchgate_client::{ClientError, FencingToken};
use serde_json::json;

use crate::rig::{Rig, seconds, ttl};

#[tokio::test]
async fn c36_a_check_passes_while_a_lease_with_the_fencing_token_holds_the_lock() {
    let rig = Rig::start();
    let client = rig.client();
    let lease = client.acquire(&rig.name, &ttl(seconds(30))).await.unwrap();
    let check = async |lasts| client.check(&rig.name, lease.fence, lasts).await;
    check(None).await.unwrap();
    check(Some(seconds(10))).await.unwrap();
    let early = check(Some(seconds(31))).await;
    let Err(ClientError::Refused(problem)) = early else {
        panic!("{early:?}");
    };
    let refused = (problem.status, problem.code.as_str());
    assert_eq!(refused, (403, "ends-too-soon"));
    assert_eq!(rig.log("GET").await.len(), 3);

    rig.fault("lose-reply", 1, json!({ "method": "GET" })).await;
    check(None).await.unwrap();
    assert_eq!(rig.log("GET").await.len(), 5);
    let other = FencingToken::new(1).unwrap();
    let refused = client.check(&rig.name, other, None).await;
    assert!(matches!(refused, Err(ClientError::Lost(_))), "{refused:?}");
    assert_eq!(rig.log("GET").await.len(), 6);

    client.release_lease(&lease).await.unwrap();
    let late = check(None).await;
    let Err(ClientError::Lost(problem)) = late else {
        panic!("{late:?}");
    };
    let refused = (problem.status, problem.code.as_str());
    assert_eq!(refused, (403, "stale-fencing-token"));
}
