//! `latchgate run`: waits for the lock, runs the command, and releases the lock.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    client::{Client, ClientError, Lease, LeasePart, LeaseRenewer},
    lock::LockName,
};

use super::{
    super::{
        caller::{environment::Environment, request::parts},
        error::{CliError, Exit},
        terminal::{
            output::{self, notify_if_slow},
            signals::{GIVING_UP, Signals},
            text::duration,
            waiting,
        },
    },
    args::{RunArgs, SHORTEST_TTL, Timing, longest_kill_after},
    job::{SLOT, SLOTS, TOKEN, look_for, report},
    supervisor::{OF_JOBS, Supervisor, Work},
};

/// Acquires the lock, runs the command, releases the lock, and returns the exit code.
pub(in crate::cli) async fn run(args: &RunArgs, environment: &Environment) -> Result<u8, CliError> {
    args.check()?;
    let locks = args.request.wanted(&args.names)?;
    let name = &locks.locks.first().clone();
    let client = args.connection.client(environment)?;
    let wait = args.wait.unwrap_or(crate::client::AcquireRequest::FOR_EVER);
    let request = args.request.request(wait, environment)?;
    // The command is looked up before the wait: otherwise a mistyped name would be reported only after a long wait.
    if let Some(program) = args.command.first()
        && let Err(error) = look_for(program, environment.get("PATH"))
    {
        return Ok(report(program, &error));
    }
    // Signals are handled from now on: otherwise a signal could end this process and leave the lock held without a
    // command.
    let wanted = OF_JOBS.into_iter().chain(GIVING_UP);
    let mut signals = Signals::listen(wanted).map_err(CliError::runtime)?;
    let lease = Box::pin(waiting::acquire(&client, locks, request, &mut signals)).await?;
    let timing = args.timing(&lease);
    let renewer = keep(&client, &lease, &mut signals).await?;
    let supervisor = Supervisor::start(name, &args.variables(&lease), &renewer, timing, args);
    let ended = match supervisor {
        Ok(supervisor) => supervisor.finish(&mut signals).await,
        Err(error) => {
            release_lock(name, renewer, Work::NotStarted, &mut signals).await;
            return Err(error);
        }
    };
    let end_of_lease = release_lock(name, renewer, ended.work, &mut signals).await;
    let code = ended.code.map_err(CliError::runtime)?;
    if let Some(why) = ended.stopped {
        let text = format!("{name}: the command was stopped because the lease was lost: {why}");
        return Err(CliError::new(Exit::Lost, text));
    }
    let (exit, text) = match end_of_lease {
        _ if ended.work == Work::NotStarted => return Ok(code),
        LeaseEnd::AfterWork => return Ok(code),
        LeaseEnd::DuringWork(why) => (Exit::Lost, format!("the lease was lost before: {why}")),
        LeaseEnd::Unknown(why) => (
            Exit::OutcomeUnknown,
            format!("it is unknown whether the lease lasted until then: {why}"),
        ),
    };
    let text = format!("{name}: the command ended with exit code {code}, but {text}");
    Err(CliError::new(exit, text))
}

/// Whether the lease ended before or after the work of the command.
enum LeaseEnd {
    /// The lease lasted until the command, and all processes that it left running, had ended.
    AfterWork,
    /// The lease ended earlier, for this reason.
    DuringWork(String),
    /// A release without an answer may have ended the lease, or the lease ended before.
    Unknown(String),
}

/// Starts to renew the lease. If a signal comes first, releases the lease.
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
        let refuse = |flag, error| Err(CliError::argument(flag, error));
        let Some(ttl) = self.request.ttl else {
            return Ok(());
        };
        if ttl < SHORTEST_TTL {
            let least = duration(SHORTEST_TTL);
            return refuse("--ttl", format!("must be at least {least} here"));
        }
        let longest = longest_kill_after(ttl);
        if self.kill_after.is_some_and(|asked| asked > longest) {
            let most = duration(longest);
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
                lease.name,
                duration(longest)
            ));
        }
        Timing::new(lease.ttl, self.kill_after)
    }

    /// The environment variables that the command gets.
    fn variables(&self, lease: &Lease) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("LATCHGATE_NAME", lease.name.to_string()),
            ("LATCHGATE_FENCING_TOKEN", lease.fence.to_string()),
            (
                "LATCHGATE_FENCING_TOKENS",
                by_name(lease, |part| Some(part.fence.get())),
            ),
        ];
        if let Some(slot) = lease.mode.slot() {
            variables.push((SLOT, slot.to_string()));
        }
        if parts(lease).iter().any(|part| part.mode.slot().is_some()) {
            variables.push((SLOTS, by_name(lease, |part| part.mode.slot())));
        }
        if self.token_env {
            variables.push((TOKEN, lease.token.expose()));
        }
        variables
    }
}

/// Formats the values of the locks as a JSON object: for each lock its name and a number, such as the slot.
fn by_name<T: Into<serde_json::Value>>(
    lease: &Lease,
    number: impl Fn(&LeasePart) -> Option<T>,
) -> String {
    let parts = parts(lease).into_iter();
    let numbers = parts.filter_map(|part| Some((part.name.to_string(), number(&part)?.into())));
    serde_json::Value::Object(numbers.collect()).to_string()
}

// === Release lock ===
//
// Releases the lock of the command after its end, unless a process of the command is still alive.

/// The time limit for the release of a lost lease. The limit is short, because a lost lease has most likely ended.
const RELEASE_LOST: Duration = Duration::from_secs(1);
/// The message while the gateway does not answer the release.
const RELEASE_UNANSWERED: &str = "no answer to the release of the lock yet; a signal (Ctrl-C) leaves it \
                                  until its lease ends";
/// The reason in the message if a signal interrupted the release.
const IMPATIENT: &str = "a signal came before a gateway had answered";
/// The reason in the message if the lock is not released because a process of the command is still alive.
const STILL_ALIVE: &str = "a process of the command is left although it was killed: it waits for a \
                           disk or a file system, has changed its user, or nobody reaps it";

/// Releases the lock of a command that has ended, and returns what is known about when its lease ended. If the release
/// gets no answer, prints that: the lease lasted by its TTL, as far as is known.
async fn release_lock(
    name: &LockName,
    renewer: LeaseRenewer,
    work: Work,
    signals: &mut Signals,
) -> LeaseEnd {
    let lost = renewer.check().err().map(|loss| loss.to_string());
    match (work, lost, renewer.until()) {
        // Dropping the renewer ends the renewals, so the lock becomes free when its lease ends.
        (Work::GoesOn, None, Some(until)) => {
            drop(renewer);
            left_locked(name, until, STILL_ALIVE);
            LeaseEnd::AfterWork
        }
        (Work::GoesOn, lost, _) => {
            output::note(&format!(
                "latchgate: {name}: the lock is lost, and {STILL_ALIVE}"
            ));
            LeaseEnd::DuringWork(lost.unwrap_or_default())
        }
        (Work::Done | Work::NotStarted, None, Some(until)) => {
            // The release is repeated until a gateway answers or the lease ends, because no other program can release
            // the lock.
            let left = until.saturating_duration_since(Instant::now());
            let released = async {
                if work == Work::NotStarted {
                    renewer.release_unused(left).await
                } else {
                    renewer.release(left).await
                }
            };
            release(name, until, released, signals).await
        }
        (Work::Done | Work::NotStarted, lost, _) => {
            // A failed release is not printed: the loss of the lease has already been reported.
            let _: Option<Result<_, _>> = signals
                .until_second_signal(renewer.release(RELEASE_LOST))
                .await;
            LeaseEnd::DuringWork(lost.unwrap_or_default())
        }
    }
}

/// Releases a lock for which no command was started.
async fn release_unused(client: &Client, lease: &Lease, signals: &mut Signals) {
    let released = client.release_unused(lease);
    // If the lease is already lost, there is nothing to release.
    let _: LeaseEnd = release(&lease.name, lease.good_until(), released, signals).await;
}

/// Waits for `release`, the release of a lease that lasts until `until`, and prints that it got no answer.
async fn release(
    name: &LockName,
    until: Instant,
    release: impl Future<Output = Result<(), ClientError>>,
    signals: &mut Signals,
) -> LeaseEnd {
    let release = notify_if_slow(name, RELEASE_UNANSWERED, release);
    match signals.until_second_signal(release).await {
        Some(Ok(())) => {}
        Some(Err(ClientError::Lost(problem))) => return LeaseEnd::DuringWork(problem.to_string()),
        Some(Err(error)) if error.may_be_lost() => return LeaseEnd::Unknown(error.to_string()),
        Some(Err(error)) => left_locked(name, until, &error.to_string()),
        None => left_locked(name, until, IMPATIENT),
    }
    LeaseEnd::AfterWork
}

/// Prints that the lock was not released, the reason, and when its lease ends.
fn left_locked(name: &LockName, until: Instant, why: &str) {
    let left = until.saturating_duration_since(Instant::now());
    let end = if left.is_zero() {
        "has ended by itself".to_owned()
    } else {
        format!("ends by itself in {}", duration(left))
    };
    output::note(&format!(
        "latchgate: {name}: could not release the lock, the lease {end}: {why}"
    ));
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use crate::client::{AcquireRequest, ClientOptions};

    use super::*;

    const LEASE: &str = r#"{"name":"deploy","token":"qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU","fencing_token":42,"ttl_ms":3000,"expires_in_ms":3000,"renew_after_ms":1000}"#;

    /// Starts a gateway for tests that grants, renews and releases, and records its requests.
    async fn gateway() -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        #[expect(
            clippy::disallowed_methods,
            reason = "it ends with the runtime of the test"
        )]
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                let count = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..count]);
                let method = head.split(' ').next().unwrap().to_owned();
                let is_release = method == "DELETE";
                log.lock().unwrap().push(method);
                let (status, body) = if is_release { (204, "") } else { (200, LEASE) };
                let answer = format!(
                    "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (url, asked)
    }

    /// The requests that a gateway receives after a command whose work is in this state.
    async fn asked_with(work: Work) -> Vec<String> {
        let (url, asked) = gateway().await;
        let client = Client::new(ClientOptions {
            url,
            ..ClientOptions::default()
        });
        let client = client.unwrap();
        let name = LockName::new("deploy").unwrap();
        let lease = client.acquire(&name, &AcquireRequest::default()).await;
        let renewer = LeaseRenewer::start(&client, lease.unwrap()).await.unwrap();
        let mut signals = Signals::listen([]).unwrap();
        release_lock(&name, renewer, work, &mut signals).await;
        // The wait is longer than the time until the next renewal, so that a renewal would be seen.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        asked.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn a_lock_under_which_somebody_lives_is_neither_released_nor_kept() {
        assert_eq!(asked_with(Work::GoesOn).await, ["POST"]);
        assert_eq!(asked_with(Work::Done).await, ["POST", "DELETE"]);
    }
}
