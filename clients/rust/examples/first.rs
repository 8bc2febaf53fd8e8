//! The first example of the README: work under a lock of the gateway at <http://localhost:7420>.
#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]
use std::{error::Error, time::Duration};

use latchgate_client::{AcquireRequest, Client, ClientOptions, LockName};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::new(ClientOptions {
        url: "http://localhost:7420".to_owned(),
        ..ClientOptions::default()
    })?;
    let request = AcquireRequest {
        wait: Duration::from_mins(10),
        ..AcquireRequest::default()
    };
    let work = async |lease: &latchgate_client::Lease| {
        println!("deploying under fencing token {}", lease.fence);
    };
    let name = LockName::new("deploy")?;
    client.with_lock(&name, &request, work).await?;
    Ok(())
}
