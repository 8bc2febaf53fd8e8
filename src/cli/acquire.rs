//! `latchgate acquire`.

#![expect(
    clippy::doc_markdown,
    reason = "these doc comments are help texts for a terminal"
)]

use std::{path::PathBuf, time::Duration};

use clap::Args;
use rustix::process::Signal;

use crate::{
    client::{AcquireRequest, Client, Lease, LeasePart},
    lock::{IdempotencyKey, LockName},
};

use super::{
    caller::{
        connection::ConnectionArgs,
        environment::{self, Environment},
        request::{Locks, RequestArgs, parts},
    },
    error::CliError,
    terminal::{
        output,
        signals::{GIVING_UP, Signals},
        text::{self, duration},
        waiting,
    },
};

/// Ask for a lock and print the token of the lease.
///
/// Standard output is the token and nothing else, so that `TOKEN=$(latchgate acquire deploy)` works.
/// The lease ends by itself when its TTL is over; renew it in time to keep it. A token that cannot be
/// written is given up, and its lease released; a standard output that is closed (`>&-`) cannot be distinguished
/// from /dev/null, so there the lease lasts for its TTL and nobody has its token.
#[derive(Args)]
pub(super) struct AcquireArgs {
    /// The lock: letters, digits and . _ : @ ~ -. Of several, 2 to 16, all are acquired or none, with one token
    #[arg(required = true, value_name = "NAME")]
    names: Vec<LockName>,
    #[command(flatten)]
    request: RequestArgs,
    /// How long to wait for a lock that is held [default: not at all]
    ///
    /// On a terminal a line shows how the wait goes; elsewhere standard error has one when it begins,
    /// when the position or the holder changes, and every 30 s. A gateway that is there and does not answer is
    /// asked again for as long as the wait may take, or for 25 s without one; then it is asked for 33 s
    /// at most to take back a grant whose answer was lost. A signal ends both.
    #[arg(long, value_name = "TIME", value_parser = text::parse_wait)]
    wait: Option<Duration>,
    /// A file with the key under which the same request may be repeated; - reads standard input
    /// [env: LATCHGATE_IDEMPOTENCY_KEY, LATCHGATE_IDEMPOTENCY_KEY_FILE]
    #[arg(long, value_name = "FILE")]
    idempotency_key_file: Option<PathBuf>,
    /// Print the gateway's answer as JSON, the lease or the problem
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Acquires and prints. A token that cannot be printed has no holder, so its lease is released.
pub(super) async fn acquire(args: &AcquireArgs, environment: &Environment) -> Result<(), CliError> {
    let locks = Locks::of(&args.names)?;
    let client = args.connection.client(environment)?;
    let request = args.request(environment)?;
    let wanted = GIVING_UP.into_iter().chain([Signal::TSTP]);
    let mut signals = Signals::listen(wanted).map_err(CliError::runtime)?;
    let lease = waiting::acquire(&client, &locks, request, &mut signals).await?;
    let written = if args.json {
        output::write(lease.json())
    } else {
        output::write(&lease.token.expose())
    };
    if let Err(error) = written {
        let fate = release_unprinted(&client, &lease).await;
        let text = format!("cannot write the token: {error}; {fate}");
        return Err(CliError::unexpected(text));
    }
    if !args.json {
        let expires_in = duration(lease.expires_in);
        for LeasePart { name, fence, mode } in parts(&lease) {
            let slot = mode.slot();
            let slot = slot.map_or_else(String::new, |slot| format!(", slot {slot}"));
            output::note(&format!(
                "acquired {name}: fencing token {fence}{slot}, expires in {expires_in}"
            ));
        }
    }
    Ok(())
}

async fn release_unprinted(client: &Client, lease: &Lease) -> &'static str {
    match client.release_lease(lease).await {
        Ok(()) => "the lease was released",
        Err(_) => "the lease could not be released and ends with its TTL",
    }
}

// === impl AcquireArgs ===

impl AcquireArgs {
    fn request(&self, environment: &Environment) -> Result<AcquireRequest, CliError> {
        let idempotency_key = environment::IDEMPOTENCY_KEY.read(
            self.idempotency_key_file.as_deref(),
            environment,
            IdempotencyKey::new,
        )?;
        let wait = self.wait.unwrap_or_default();
        Ok(AcquireRequest {
            idempotency_key,
            ..self.request.request(wait, environment)?
        })
    }
}
