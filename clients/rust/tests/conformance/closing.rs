//! C30: whoever closes gives back.

use latchgate_client::LockState;
use tokio::{runtime::Runtime, time::sleep};

use crate::{
    holder::{Holder, Task},
    rig::{LONG, Rig, keep, millis, seconds, ttl},
};

fn gives_back(task: Task) {
    if Task::carry_out() {
        return;
    }
    Runtime::new().unwrap().block_on(async {
        let rig = Rig::start();
        let mut holder = Holder::start(&rig, task, LONG * 5);
        assert!(holder.line().parse::<u64>().unwrap() > 0);
        assert_eq!(rig.look().await.state, LockState::Held);
        assert!(holder.end().success());
        rig.until_free(seconds(10)).await;
    });
}

#[test]
fn c30_a_process_that_ends_gives_back() {
    gives_back(Task::End);
}

#[test]
fn c30_a_task_that_panics_gives_back() {
    gives_back(Task::Panic);
}

/// What is dropped is given back in the background; a renewer alone is not, for its holder may yet have work to do.
#[tokio::test]
async fn c30_what_is_dropped_gives_back() {
    let rig = Rig::start();
    let client = rig.client();
    let request = ttl(LONG * 5);
    let held = async {
        while rig.is_free().await {
            sleep(millis(20)).await;
        }
    };
    let work = async |_: &_| std::future::pending::<()>().await;
    tokio::select! {
        done = client.with_lock(&rig.name, &request, work) => done.unwrap(),
        () = held => {}
    }
    // Without anybody who waits for it.
    rig.until_free(seconds(10)).await;
    client.finish_releases().await;
    drop(keep(&client, &rig.name, request).await);
    client.finish_releases().await;
    assert!(!rig.is_free().await);
}
