//! The commands of a caller that has the token of a lease: `latchgate renew` and `latchgate release`.

#![expect(
    clippy::doc_markdown,
    reason = "these doc comments are help texts for a terminal"
)]

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::{
    client::PartResult,
    lock::{LockName, Token},
};

use super::{
    caller::{
        connection::ConnectionArgs,
        environment::{self, Environment},
        request::Locks,
    },
    error::CliError,
    terminal::{
        output,
        text::{self, asked_for},
    },
};

/// Keep a lock: make its lease last longer, from now.
#[derive(Args)]
pub(super) struct RenewArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// How long the lease lasts from now: 30s, 500ms, 2m [default: its TTL so far]
    #[arg(long, value_name = "TIME", value_parser = text::parse_duration)]
    ttl: Option<Duration>,
    /// Print the gateway's answer as JSON, the lease or the problem; of several locks what came of each
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

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

/// The options of every command that needs the token of a lease.
#[derive(Args)]
struct LeaseArgs {
    /// The lock, or several that have one token
    #[arg(required = true, value_name = "NAME")]
    names: Vec<LockName>,
    /// A file with the token of the lease; - reads standard input
    /// [env: LATCHGATE_TOKEN, LATCHGATE_TOKEN_FILE]
    ///
    /// The token itself is never an argument: every process of the machine could see it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub(super) async fn renew(args: &RenewArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let token = args.lease.token(environment)?;
    let names = match args.lease.locks()? {
        Locks::One(name) => {
            let lease = client.renew(&name, &token, args.ttl).await?;
            if args.json {
                return output::answer(lease.json());
            }
            let expires_in = text::duration(lease.expires_in);
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
        output::answer(renewed.json())?;
    } else {
        for PartResult { name, lease, .. } in &renewed.results {
            if let Some(left) = lease.expires_in_ms.map(Duration::from_millis) {
                let left = text::duration(left);
                output::note(&format!("renewed {name}: expires in {left}"));
            }
            if let Some(request) = &lease.release_requested {
                output::note(&format!("release {name} {}", asked_for(request)));
            }
        }
    }
    Ok(renewed.check()?)
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
        output::answer(released.json())?;
    } else {
        let done = released.results.iter().filter(|it| it.code.is_none());
        done.for_each(|it| output::note(&format!("released {}", it.name)));
    }
    Ok(released.check()?)
}

// === impl LeaseArgs ===

impl LeaseArgs {
    fn locks(&self) -> Result<Locks, CliError> {
        Locks::of(&self.names)
    }

    fn token(&self, environment: &Environment) -> Result<Token, CliError> {
        let token =
            environment::TOKEN.read(self.token_file.as_deref(), environment, Token::parse)?;
        token.ok_or_else(|| environment::TOKEN.missing())
    }
}
