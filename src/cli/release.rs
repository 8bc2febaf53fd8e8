//! `latchgate release`.

use clap::Args;

use super::{
    caller::{connection::ConnectionArgs, environment::Environment, lease::LeaseArgs},
    error::CliError,
    terminal::output,
};

/// Give a lock back.
#[derive(Args)]
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
