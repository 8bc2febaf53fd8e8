//! `latchgate release`.

use clap::Args;

use super::{
    caller::{
        connection::ConnectionArgs, environment::Environment, lease::LeaseArgs, locks::Locks,
    },
    error::CliError,
    terminal::output,
};

/// Give a lock back.
///
/// Repeated within a minute it is done again, with exit code 0, and so may be retried: so it is for every
/// lease that was acquired with an idempotency key, as `latchgate acquire` does by itself. Of a lease that
/// was acquired without one nothing is remembered: repeated, it is exit code 102, whether the first release
/// ended the lease or it was lost before; if only the answer of the first was lost, within one call of this
/// command, it is 105.
///
/// Of several locks only the release of the last name in sorted order is remembered, so all of them released
/// once more are exit code 102, or 105 if only the answer was lost.
#[derive(Args)]
pub(super) struct ReleaseArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// Print the gateway's answer as JSON: of one lock nothing when it is done, else the problem; of several what
    /// came of each
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn release(args: &ReleaseArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let token = args.lease.token(environment)?;
    let names = match args.lease.locks()? {
        Locks::One(name) => {
            client.release(&name, &token).await?;
            if !args.json {
                output::note(&format!("released {name}"));
            }
            return Ok(());
        }
        Locks::All(names) => names,
    };
    let released = client.release_all(&names, &token).await?;
    if args.json {
        output::answer(released.json()).map_err(CliError::Output)?;
    } else {
        let done = released.results.iter().filter(|it| it.code.is_none());
        done.for_each(|it| output::note(&format!("released {}", it.name)));
    }
    Ok(released.check()?)
}
