//! `latchgate renew`.

use std::time::Duration;

use clap::Args;

use super::{
    caller::{connection::ConnectionArgs, environment::Environment, lease::LeaseArgs},
    error::CliError,
    terminal::{duration, output},
};

/// Keep a lock: make its lease last longer, from now.
#[derive(Args)]
pub(super) struct RenewArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// How long the lease lasts from now: 30s, 500ms, 2m [default: its TTL so far]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// Print the gateway's answer as JSON, the lease or the problem
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn renew(args: &RenewArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let token = args.lease.token(environment)?;
    let lease = client.renew(&args.lease.name, &token, args.ttl).await?;
    if args.json {
        return output::answer(lease.json()).map_err(CliError::Output);
    }
    let expires_in = duration::show(lease.expires_in);
    output::note(&format!("renewed {}: expires in {expires_in}", lease.name));
    Ok(())
}
