//! The commands of a script that holds a lock: `latchgate acquire`, `latchgate renew` and `latchgate release`.

#![expect(
    clippy::doc_markdown,
    reason = "these doc comments are help texts for a terminal"
)]

use std::{path::PathBuf, time::Duration};

use clap::Args;
use rustix::process::Signal;

use crate::{
    client::{AcquireRequest, Client, Lease, LeasePart, PartResult},
    lock::{IdempotencyKey, LockName, Token},
};

use super::{
    caller::{
        connection::ConnectionArgs,
        environment::{self, Environment},
        request::{LockArg, Locks, RequestArgs, parts},
    },
    error::CliError,
    terminal::{
        output,
        signals::{GIVING_UP, Signals},
        text::{self, asked_for, duration},
        waiting,
    },
};

/// Acquire a lock and print the token of the lease.
///
/// Standard output is the token and nothing else, so that `TOKEN=$(latchgate acquire deploy)` works. The lease ends
/// when its TTL is over, unless it is renewed in time. If the token cannot be written, the lease is released. A
/// closed standard output (`>&-`) cannot be distinguished from /dev/null: then the lease lasts for its TTL, and its
/// token is lost.
#[derive(Args)]
pub(super) struct AcquireArgs {
    /// The lock: letters, digits and . _ : @ ~ - /. Of several, 2 to 16, all are acquired or none, with one token
    ///
    /// NAME=shared shares this lock as --shared does, NAME=20 as --limit 20 does, and NAME=exclusive holds it alone as
    /// --exclusive does. The other locks are held as they are declared, or alone.
    #[arg(required = true, value_name = "NAME", value_parser = LockArg::parse)]
    names: Vec<LockArg>,
    #[command(flatten)]
    request: RequestArgs,
    /// How long to wait for a lock that is held [default: not at all]
    ///
    /// On a terminal, a line shows the progress of the wait. Otherwise a line is written to standard error at the
    /// start, when the position or the holder changes, and every 30 s. If a reached gateway does not answer, the
    /// request is repeated for as long as the wait may take, or for 25 s without a wait; then the command tries for
    /// at most 33 s to take back a grant whose answer was lost. A signal ends both.
    #[arg(long, value_name = "TIME", value_parser = text::parse_wait)]
    wait: Option<Duration>,
    /// A file with the key under which this request may be repeated; - reads standard input [env:
    /// LATCHGATE_IDEMPOTENCY_KEY, LATCHGATE_IDEMPOTENCY_KEY_FILE]
    #[arg(long, value_name = "FILE")]
    idempotency_key_file: Option<PathBuf>,
    /// Print the gateway's answer as JSON, the lease or the problem
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Acquires the lock and prints the token of the lease. If the token cannot be printed, releases the lease, because no
/// caller could use it.
pub(super) async fn acquire(args: &AcquireArgs, environment: &Environment) -> Result<(), CliError> {
    let wanted = args.request.wanted(&args.names)?;
    let client = args.connection.client(environment)?;
    let request = args.request(environment)?;
    let handled = GIVING_UP.into_iter().chain([Signal::TSTP]);
    let mut signals = Signals::listen(handled).map_err(CliError::runtime)?;
    let lease = Box::pin(waiting::acquire(&client, wanted, request, &mut signals)).await?;
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

// === Renew and release ===
//
// The commands `latchgate renew` and `latchgate release`, for a caller that has the token of a lease.

/// Renew a lease: make it last longer, from now.
#[derive(Args)]
pub(super) struct RenewArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// How long the lease lasts from now: 30s, 500ms, 2m [default: its current TTL]
    #[arg(long, value_name = "TIME", value_parser = text::parse_duration)]
    ttl: Option<Duration>,
    /// Print the gateway's answer as JSON, the lease or the problem; of several locks the result of each
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Release a lock.
///
/// A lease that was acquired with an idempotency key, as `latchgate acquire` always does, can be released again
/// within a minute with exit code 0, so the command may be retried. The gateway remembers no lease that was
/// acquired without a key: releasing it again ends with exit code 102, whether the first release ended the lease or
/// the lease was lost before; or with 105 if only the answer to the first copy was lost, within one call of this
/// command.
///
/// Of several locks, only the release of the last name in sorted order is remembered, so releasing all of them
/// again ends with exit code 102, or with 105 if only the answer was lost.
#[derive(Args)]
pub(super) struct ReleaseArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// Print the gateway's answer as JSON: of one lock nothing on success, else the problem; of several the result
    /// of each
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The options of every command that needs the token of a lease.
#[derive(Args)]
struct LeaseArgs {
    /// The lock, or several locks that have one token
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
            let expires_in = duration(lease.expires_in);
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
                let left = duration(left);
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
        Locks::from_names(&self.names)
    }

    fn token(&self, environment: &Environment) -> Result<Token, CliError> {
        let token =
            environment::TOKEN.read(self.token_file.as_deref(), environment, Token::parse)?;
        token.ok_or_else(|| environment::TOKEN.missing())
    }
}
