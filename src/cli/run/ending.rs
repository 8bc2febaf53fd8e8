//! `latchgate run` from the wait to the release.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use crate::{
    client::{Client, ClientError, Keeper, Lease},
    lock::LockName,
};

use super::{
    super::{
        duration, environment::Environment, error::CliError, output, signals::Signals, waiting,
    },
    args::RunArgs,
    job::Job,
    supervisor::{End, HEARD, Supervisor},
    timing::{SHORTEST_TTL, Timing, longest_kill_after},
};

/// How long a release is tried. If nobody answers for so long, the lease ends by itself soon.
const RELEASE: Duration = Duration::from_secs(10);
/// How long that of a lost lease is tried: most likely nothing is left of it.
const RELEASE_LOST: Duration = Duration::from_secs(1);
/// Why a lock was left that could have been released.
const IMPATIENT: &str = "a signal came before anybody had answered";

/// Acquires, runs the command, releases, and says with which code to exit.
pub(in crate::cli) async fn run(args: &RunArgs, environment: &Environment) -> Result<u8, CliError> {
    args.check()?;
    let client = args.connection.client(environment)?;
    let wait = args.wait.unwrap_or(crate::client::AcquireRequest::FOR_EVER);
    let request = args.request.request(wait, environment)?;
    // From now on a signal cannot leave a lock behind that nobody holds.
    let mut signals = Signals::hear(&HEARD).map_err(CliError::Runtime)?;
    let lease = waiting::acquire(&client, &args.name, request, &mut signals).await?;
    let timing = args.timing(&lease);
    let keeper = keep(&client, lease.clone(), &mut signals).await?;
    let ended = match Job::start(&args.command, &args.variables(&lease)) {
        Ok(job) => {
            Supervisor::new(&args.name, job, &keeper, timing, args.on_lost)
                .finish(&mut signals)
                .await
        }
        Err(error) => {
            release(args, keeper, &mut signals).await;
            return Err(CliError::NotStarted(error));
        }
    };
    release(args, keeper, &mut signals).await;
    match ended.map_err(CliError::Runtime)? {
        End {
            code,
            stopped: None,
        } => Ok(code),
        End {
            stopped: Some(why), ..
        } => Err(CliError::Stopped(why)),
    }
}

/// Keeps the lease, unless a signal comes before that has begun.
async fn keep(client: &Client, lease: Lease, signals: &mut Signals) -> Result<Keeper, CliError> {
    let (name, token) = (lease.name.clone(), lease.token.clone());
    let until = lease.good_until();
    let interrupted = tokio::select! {
        biased;
        signal = signals.ending() => CliError::Interrupted(signal),
        keeper = Keeper::start(client, lease) => match keeper {
            Ok(keeper) => return Ok(keeper),
            Err(error) => CliError::Client(error),
        },
    };
    match signals
        .unless_impatient(client.release(&name, &token))
        .await
    {
        // A lease that is lost needs no release.
        Some(Ok(()) | Err(ClientError::Lost(_))) => {}
        Some(Err(error)) => left_locked(&name, until, &error.to_string()),
        None => left_locked(&name, until, IMPATIENT),
    }
    Err(interrupted)
}

/// Releases the lock, if somebody answers. Whatever comes of it, the command has ended as it has.
async fn release(args: &RunArgs, keeper: Keeper, signals: &mut Signals) {
    let until = keeper.until();
    let within = if until.is_some() {
        RELEASE
    } else {
        RELEASE_LOST
    };
    let released = signals.unless_impatient(keeper.release(within)).await;
    // Known already, if there is none.
    let Some(until) = until else {
        return;
    };
    let name = &args.name;
    match released {
        Some(Ok(())) => {}
        Some(Err(ClientError::Lost(problem))) => output::note(&format!(
            "latchgate: {name}: the lease had ended before the command had: {problem}"
        )),
        Some(Err(error)) => left_locked(name, until, &error.to_string()),
        None => left_locked(name, until, IMPATIENT),
    }
}

/// Says that the lock is not released, how long that lasts and why.
fn left_locked(name: &LockName, until: Instant, why: &str) {
    let left = until.saturating_duration_since(Instant::now());
    let end = if left.is_zero() {
        "has ended by itself".to_owned()
    } else {
        format!("ends by itself in {}", duration::show(left))
    };
    output::note(&format!(
        "latchgate: {name}: could not release the lock, the lease {end}: {why}"
    ));
}

// === impl RunArgs ===

impl RunArgs {
    fn check(&self) -> Result<(), CliError> {
        let refuse = |flag, error| Err(CliError::Argument { flag, error });
        let Some(ttl) = self.request.ttl else {
            return Ok(());
        };
        if ttl < SHORTEST_TTL {
            let least = duration::show(SHORTEST_TTL);
            return refuse("--ttl", format!("must be at least {least} here"));
        }
        let longest = longest_kill_after(ttl);
        if self.kill_after.is_some_and(|asked| asked > longest) {
            let most = duration::show(longest);
            return refuse(
                "--kill-after",
                format!("must be at most half of the TTL, {most}"),
            );
        }
        Ok(())
    }

    fn timing(&self, lease: &Lease) -> Timing {
        let longest = longest_kill_after(lease.ttl);
        if self.kill_after.is_some_and(|asked| asked > longest) {
            output::note(&format!(
                "latchgate: {}: --kill-after is cut to half of the TTL, {}",
                self.name,
                duration::show(longest)
            ));
        }
        Timing::new(lease.ttl, self.kill_after)
    }

    /// What the command finds in its environment.
    fn variables(&self, lease: &Lease) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("LATCHGATE_NAME", lease.name.to_string()),
            ("LATCHGATE_FENCING_TOKEN", lease.fence.to_string()),
        ];
        if self.token_env {
            variables.push(("LATCHGATE_TOKEN", lease.token.expose()));
        }
        variables
    }
}

/// The exit code for a signal, as shells have it.
pub(in crate::cli) fn code_of_signal(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}
