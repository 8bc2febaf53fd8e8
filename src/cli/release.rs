//! `latchgate release`.

use clap::Args;

use super::{
    connection::ConnectionArgs, environment::Environment, error::CliError, lease::LeaseArgs, output,
};

/// Give a lock back.
#[derive(Debug, Args)]
pub(super) struct ReleaseArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// Print the gateway's answer as JSON: nothing when it is done, else the problem
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn release(args: &ReleaseArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let token = args.lease.token(environment)?;
    client.release(&args.lease.name, &token).await?;
    if !args.json {
        output::note(&format!("released {}", args.lease.name));
    }
    Ok(())
}
