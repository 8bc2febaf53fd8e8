//! A holder whose machine is gone without a word.

use std::{process::Stdio, time::Duration};

use latchgate::{
    lock::{HeldLease, Ttl},
    store::contract::{Acquisition, Renewal},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::Instant,
};

use super::{
    scripted::{StoreCall, held},
    service::{Service, until},
};
use crate::support::spawn;

/// Starts a holder, and comes back when it has been granted the lock and has fallen silent.
async fn silent_holder(service: &Service) -> Child {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/api/silent.py");
    let port = service.listen().await.port().to_string();
    let mut holder = Command::from(spawn::command("python3"))
        .args([script, &port])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("this test needs python3: apt-get install python3");
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap();
    assert_eq!(line.as_deref(), Some("silent"));
    holder
}

#[tokio::test]
async fn it_does_not_hold_the_lock_for_much_longer_than_its_ttl() {
    let service = Service::start();
    let ttl = Ttl::from_millis(1_000).unwrap();
    // It has long to go, so that it does not end for another reason on a busy machine.
    let lease = HeldLease { ttl, ..held() };
    service.script.acquires(Acquisition::Granted(lease.clone()));
    let renewed = || Ok(Renewal::Renewed(lease.clone(), Duration::ZERO));
    let renewals = std::iter::repeat_with(renewed).take(100);
    service.script.renew.lock().unwrap().extend(renewals);
    let _holder = silent_holder(&service).await;
    let silent = Instant::now();
    until("it is released", || {
        let asked = service.script.asked();
        asked
            .iter()
            .any(|asked| matches!(asked, StoreCall::Release(_)))
    })
    .await;
    // Up to the next event, which nobody acknowledges, for one TTL from then on, and for what the
    // kernel adds between two tries: far less than the ten seconds for which this test looks. The
    // kernel by itself would try for a quarter of an hour.
    assert!(
        silent.elapsed() > Duration::from_millis(500),
        "not for another reason"
    );
}
