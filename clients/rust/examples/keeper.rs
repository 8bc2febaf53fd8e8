//! One idea: do something only while a lock is held, and stop at once when it is lost.
//!
//! Start a gateway with `latchgate serve`, then run this twice at once:
//! `cargo run -p latchgate-client --example keeper`

use std::{error::Error, time::Duration};

use latchgate_client::{AcquireRequest, Client, ClientOptions, Lease, LockName, Owner};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::new(ClientOptions::default())?;
    let request = AcquireRequest {
        ttl: Some(Duration::from_secs(10)),
        wait: AcquireRequest::FOR_EVER,
        owner: Some(Owner::new("the keeper example")?),
        ..AcquireRequest::default()
    };
    let name = LockName::new("report")?;
    let pages = client.with_lock(&name, &request, write_report).await?;
    say(&format!("{pages} pages"));
    Ok(())
}

/// Dropped where it waits when the lock is lost.
async fn write_report(lease: &Lease) -> u32 {
    for page in 1..=30 {
        // Hand the fencing token to whatever the lock protects: it refuses a smaller one.
        say(&format!("page {page}, under fencing token {}", lease.fence));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    30
}

#[expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]
fn say(text: &str) {
    println!("{text}");
}
