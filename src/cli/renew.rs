//! `latchgate renew`.

use std::time::Duration;

use clap::Args;

use crate::client::PartResult;

use super::{
    caller::{
        connection::ConnectionArgs, environment::Environment, lease::LeaseArgs, locks::Locks,
    },
    error::CliError,
    terminal::{duration, output, release_request::asked_for},
};

/// Keep a lock: make its lease last longer, from now.
#[derive(Args)]
pub(super) struct RenewArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// How long the lease lasts from now: 30s, 500ms, 2m [default: its TTL so far]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// Print the gateway's answer as JSON, the lease or the problem; of several locks what came of each
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn renew(args: &RenewArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let token = args.lease.token(environment)?;
    let names = match args.lease.locks()? {
        Locks::One(name) => {
            let lease = client.renew(&name, &token, args.ttl).await?;
            if args.json {
                return output::answer(lease.json()).map_err(CliError::Output);
            }
            let expires_in = duration::show(lease.expires_in);
            output::note(&format!("renewed {}: expires in {expires_in}", lease.name));
            if let Some(request) = &lease.release_requested {
                output::note(&format!("release {} {}", lease.name, asked_for(request)));
            }
            return Ok(());
        }
        Locks::All(names) => names,
    };
    let renewed = client.renew_all(&names, &token, args.ttl).await?;
    if args.json {
        output::answer(renewed.json()).map_err(CliError::Output)?;
    } else {
        for PartResult { name, lease, .. } in &renewed.results {
            if let Some(left) = lease.expires_in_ms.map(Duration::from_millis) {
                let left = duration::show(left);
                output::note(&format!("renewed {name}: expires in {left}"));
            }
            if let Some(request) = &lease.release_requested {
                output::note(&format!("release {name} {}", asked_for(request)));
            }
        }
    }
    Ok(renewed.check()?)
}
