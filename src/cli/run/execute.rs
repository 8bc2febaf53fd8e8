//! `latchgate run` from the wait to the release.

use rustix::process::Signal;

use crate::client::{Client, Lease, LeaseRenewer};

use super::{
    super::{
        duration,
        environment::Environment,
        error::CliError,
        output,
        signals::{GIVING_UP, Signals},
        waiting,
    },
    args::RunArgs,
    job::Job,
    release_lock::{release_lock, release_unused},
    stopping::Leftover,
    supervisor::{OF_JOBS, Supervisor},
    timing::{SHORTEST_TTL, Timing, longest_kill_after},
};

/// Acquires, runs the command, releases, and says with which code to exit.
pub(in crate::cli) async fn run(args: &RunArgs, environment: &Environment) -> Result<u8, CliError> {
    args.check()?;
    let client = args.connection.client(environment)?;
    let wait = args.wait.unwrap_or(crate::client::AcquireRequest::FOR_EVER);
    let request = args.request.request(wait, environment)?;
    // From now on a signal cannot leave a lock behind that nobody holds.
    let wanted = OF_JOBS.into_iter().chain(GIVING_UP);
    let mut signals = Signals::listen(wanted).map_err(CliError::Runtime)?;
    let lease = waiting::acquire(&client, &args.name, request, &mut signals).await?;
    let timing = args.timing(&lease);
    let renewer = keep(&client, &lease, &mut signals).await?;
    let ended = match Job::start(&args.command, &args.variables(&lease)) {
        Ok(job) => {
            Supervisor::new(&args.name, job, &renewer, timing, args.on_lost)
                .finish(&mut signals)
                .await
        }
        Err(error) => {
            release_lock(&args.name, renewer, Leftover::Nobody, &mut signals).await;
            return Err(CliError::NotStarted(error));
        }
    };
    release_lock(&args.name, renewer, ended.leftover, &mut signals).await;
    match ended.stopped {
        None => ended.code.map_err(CliError::Runtime),
        Some(why) => Err(CliError::Stopped(why)),
    }
}

/// Keeps the lease, unless a signal comes before that has begun.
async fn keep(
    client: &Client,
    lease: &Lease,
    signals: &mut Signals,
) -> Result<LeaseRenewer, CliError> {
    let interrupted = tokio::select! {
        biased;
        signal = signals.one_of(&GIVING_UP) => CliError::Interrupted(signal),
        renewer = LeaseRenewer::start(client, lease.clone()) => match renewer {
            Ok(renewer) => return Ok(renewer),
            Err(error) => CliError::Client(error),
        },
    };
    release_unused(client, lease, signals).await;
    Err(interrupted)
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
