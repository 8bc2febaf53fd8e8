//! One idea: at most two at once, each with a slot of its own, who show their place while they wait and give back when they
//! are interrupted.
//!
//! Start a gateway with `latchgate serve`, then run this three times at once:
//! `cargo run -p latchgate-client --example pool`

use std::{error::Error, time::Duration};

use latchgate_client::{
    AcquireMode, AcquireRequest, Client, ClientOptions, LeaseRenewer, Limit, LockName, Mode,
};
use tokio::{signal, time::sleep};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::new(ClientOptions::default())?;
    let request = AcquireRequest {
        wait: Duration::from_mins(10),
        mode: AcquireMode::Shared {
            limit: Some(Limit::new(2)?),
        },
        ..AcquireRequest::default()
    };
    let mut acquiring = client.acquiring(LockName::new("printers")?, request);
    let mut place = |waiting: &latchgate_client::WaitStatus| {
        if let Some(position) = waiting.position {
            say(&format!("waiting at position {position}"));
        }
    };
    let lease = tokio::select! {
        lease = acquiring.finish_watched(&mut place) => lease?,
        interrupted = signal::ctrl_c() => {
            interrupted?;
            // Whoever stands behind need not wait for the end of a place that nobody wants.
            acquiring.withdraw().await;
            return Ok(());
        }
    };
    let renewer = LeaseRenewer::start(&client, lease.clone()).await?;
    if let Mode::Shared { slot: Some(slot) } = lease.mode {
        say(&format!("printer {slot} is mine"));
    }
    tokio::select! {
        () = sleep(Duration::from_secs(30)) => say("done"),
        interrupted = signal::ctrl_c() => interrupted?,
        // It is not somebody else's yet, but soon may be: stop now.
        loss = renewer.lost() => return Err(loss.into()),
    }
    renewer.release(Duration::from_secs(5)).await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]
fn say(text: &str) {
    println!("{text}");
}
