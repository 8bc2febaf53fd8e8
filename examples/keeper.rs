//! One idea: do something only while a lock is held, and stop at once when it is lost.
//!
//! Start a gateway with `latchgate serve`, then run this twice at once:
//! `cargo run --example keeper`

use std::{error::Error, time::Duration};

use latchgate::{
    client::{AcquireRequest, Client, ClientOptions, Lease, LeaseRenewer},
    lock::{LockName, Owner},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::new(ClientOptions::default())?;
    let name = LockName::new("report")?;
    let request = AcquireRequest {
        ttl: Some(Duration::from_secs(10)),
        wait: AcquireRequest::FOR_EVER,
        owner: Some(Owner::new("the keeper example")?),
        ..AcquireRequest::default()
    };
    let lease = client
        .acquiring(name, request)
        .finish_watched(&mut |waiting| say(&format!("waiting at position {:?}", waiting.position)))
        .await?;
    let renewer = LeaseRenewer::start(&client, lease.clone()).await?;
    tokio::select! {
        () = write_report(&lease) => say("done"),
        // The lock is not somebody else's yet, but it soon may be.
        loss = renewer.lost() => return Err(loss.into()),
    }
    renewer.release(Duration::from_secs(5)).await?;
    Ok(())
}

async fn write_report(lease: &Lease) {
    for page in 1..=30 {
        // Hand the fencing token to whatever the lock protects: it refuses a smaller one.
        say(&format!("page {page}, under fencing token {}", lease.fence));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]
fn say(text: &str) {
    println!("{text}");
}
