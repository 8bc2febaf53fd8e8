//! C18 to C21: what is told before the lease can be somebody else's.

use std::{fs, path::Path};

use latchgate_client::{AcquireRequest, ClientError, Loss, Reason};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    holder::{Holder, Task},
    rig::{LONG, Rig, acquire, keep, millis, result, seconds, ttl, wait},
};

#[tokio::test]
async fn c18_a_gateway_that_hangs_costs_the_lease_before_it_is_somebody_elses() {
    let rig = Rig::start();
    let kept = keep(&rig.client(), &rig.name, ttl(seconds(2))).await;
    let waiter = acquire(&rig.at_b(), &rig.name, wait(LONG));
    rig.until_waiters(1).await;
    rig.fault("hang", 1_000, json!({ "method": "PUT" })).await;
    let (loss, until) = kept.lost().await;
    assert!(matches!(loss, Loss::Expired { .. }), "{loss}");
    kept.renewer.check().unwrap_err();
    assert!(until <= Instant::now());
    let (next, granted_at) = result(waiter).await;
    assert!(next.fence > kept.lease.fence && until < granted_at);
}

#[test]
fn c19_a_suspended_process_knows_before_it_does_anything_else() {
    if Task::carry_out() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let rig = Rig::start();
        let mut holder = Holder::start(&rig, Task::Stop, seconds(1));
        let fence: u64 = holder.line().parse().unwrap();
        holder.suspend();
        // The first that it does when it goes on is what it does with this line.
        holder.write_line();
        let other = rig.at_b().acquire(&rig.name, &wait(LONG)).await.unwrap();
        assert!(other.fence.get() > fence);
        sleep(seconds(1)).await;
        holder.resume();
        assert_eq!(holder.line(), "expired, without an end, lost");
        assert!(holder.end().success());
        assert_eq!(rig.fences().await, [other.fence.get()]);
    });
}

/// No test may set the clock of the machine. Nothing in this crate asks for it, but for what a certificate says of its
/// time: all times are of tokio's clock, which is monotonic.
#[tokio::test]
async fn c20_a_clock_that_jumps_changes_nothing() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut asked = Vec::new();
    let mut open = vec![sources];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            if ["SystemTime", "UNIX_EPOCH", "std::time::Instant"]
                .iter()
                .any(|clock| text.contains(clock))
            {
                asked.push(path.file_name().unwrap().to_owned());
            }
        }
    }
    assert_eq!(asked, [""; 0]);

    let rig = Rig::start();
    let kept = keep(&rig.client(), &rig.name, ttl(seconds(2))).await;
    let lost = timeout(seconds(4), kept.renewer.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert_eq!(rig.fences().await, [kept.fence()]);
}

#[tokio::test]
async fn c21_a_break_ends_the_lease() {
    let rig = Rig::start();
    let client = rig.client();
    let kept = keep(&client, &rig.name, ttl(seconds(2))).await;
    let reason = Reason::new("gone").unwrap();
    let target = Some(kept.lease.fence.into());
    client.break_lock(&rig.name, &reason, target).await.unwrap();
    let (loss, _) = kept.lost().await;
    let Loss::Ended(problem) = loss else {
        panic!("{loss}");
    };
    assert_eq!((problem.status, problem.code.as_str()), (410, "lease-lost"));
    assert!(problem.to_string().contains("broken"), "{problem}");
    let checked = kept.renewer.check();
    assert!(matches!(checked, Err(Loss::Ended(_))), "{checked:?}");
    let renewals = rig.log("PUT").await.len();
    sleep(millis(1_500)).await;
    assert_eq!(rig.log("PUT").await.len(), renewals);
    let renewed = client.renew(&rig.name, &kept.lease.token, None).await;
    assert!(matches!(renewed, Err(ClientError::Lost(_))), "{renewed:?}");
    let next = client.acquire(&rig.name, &AcquireRequest::default()).await;
    assert!(next.unwrap().fence > kept.lease.fence);
}
