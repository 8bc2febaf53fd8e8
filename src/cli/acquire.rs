//! `latchgate acquire`.

#![expect(
    clippy::doc_markdown,
    reason = "these doc comments are help texts for a terminal"
)]

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::{
    client::{AcquireRequest, Client, Lease},
    lock::{IdempotencyKey, LockName, Metadata, Owner},
};

use super::{
    connection::ConnectionArgs, duration, environment::Environment, error::CliError, metadata,
    output, owner, secret,
};

/// Ask for a lock and print the token of the lease.
///
/// Standard output is the token and nothing else, so that `TOKEN=$(latchgate acquire deploy)` works.
/// The lease ends by itself when its TTL is over; renew it in time to keep it.
#[derive(Debug, Args)]
pub(super) struct AcquireArgs {
    /// The lock: letters, digits and . _ : @ ~ -
    name: LockName,
    /// How long the lease lasts: 30s, 500ms, 2m [default: the gateway's, 30s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// The longest time that the lease may be kept with renewals
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    max_hold: Option<Duration>,
    /// Who asks, for people to read [default: USER@HOST]
    #[arg(long)]
    owner: Option<String>,
    /// A fact to attach to the lease; may be repeated
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = metadata::entry)]
    meta: Vec<(String, String)>,
    /// A file with the key under which the same request may be repeated; - reads standard input
    /// [env: LATCHGATE_IDEMPOTENCY_KEY, LATCHGATE_IDEMPOTENCY_KEY_FILE]
    #[arg(long, value_name = "FILE")]
    idempotency_key_file: Option<PathBuf>,
    /// Print the gateway's answer as JSON, the lease or the problem
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Acquires and prints. A token that cannot be printed has no holder, so its lease is released.
pub(super) async fn acquire(args: &AcquireArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let lease = client
        .acquire(&args.name, &args.request(environment)?)
        .await?;
    let written = if args.json {
        output::answer(lease.json())
    } else {
        output::answer(&lease.token.expose())
    };
    if let Err(error) = written {
        let fate = give_back(&client, &lease).await;
        return Err(CliError::TokenNotWritten { error, fate });
    }
    if !args.json {
        output::note(&format!(
            "acquired {}: fencing token {}, expires in {}",
            lease.name,
            lease.fence,
            duration::show(lease.expires_in),
        ));
    }
    Ok(())
}

async fn give_back(client: &Client, lease: &Lease) -> &'static str {
    match client.release(&lease.name, &lease.token).await {
        Ok(()) => "the lease was released",
        Err(_) => "the lease could not be released and ends with its TTL",
    }
}

// === impl AcquireArgs ===

impl AcquireArgs {
    fn request(&self, environment: &Environment) -> Result<AcquireRequest, CliError> {
        let argument = |flag, error: String| CliError::Argument { flag, error };
        let owner = match &self.owner {
            Some(text) => {
                Some(Owner::new(text).map_err(|error| argument("--owner", error.to_string()))?)
            }
            None => owner::default(environment),
        };
        let metadata: Metadata =
            metadata::of(&self.meta).map_err(|error| argument("--meta", error))?;
        let idempotency_key = secret::IDEMPOTENCY_KEY.read(
            self.idempotency_key_file.as_deref(),
            environment,
            IdempotencyKey::new,
        )?;
        Ok(AcquireRequest {
            ttl: self.ttl,
            wait: Duration::ZERO,
            max_hold: self.max_hold,
            owner,
            metadata,
            idempotency_key,
        })
    }
}
