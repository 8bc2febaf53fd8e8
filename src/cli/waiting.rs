//! Acquires for a command: waits, shows how that goes, and gives up in order when a signal says so.

use std::time::Duration;

use rustix::process::{Signal, kill_current_process_group};
use tokio::{
    sync::watch,
    time::{Instant, interval},
};

use crate::{
    client::{AcquireRequest, Acquiring, Client, ClientError, Lease, WaitStatus},
    lock::LockName,
};

use super::{
    error::CliError,
    outage::Outage,
    progress::{ProgressLine, describe, describe_unanswered},
    signals::{GIVING_UP, Signals},
    slow_notice::notify_if_slow,
    visible::visible,
};

/// How often the line is drawn: it counts seconds.
const DRAWN_EVERY: Duration = Duration::from_secs(1);

/// What is said while nobody answers.
const WITHDRAWAL_UNANSWERED: &str = "no answer to giving up yet; a signal (Ctrl-C) leaves the lock, if it \
                                     was granted unheard, until its lease ends";

/// Acquires, and hears signals meanwhile.
pub(super) async fn acquire(
    client: &Client,
    name: &LockName,
    request: AcquireRequest,
    signals: &mut Signals,
) -> Result<Lease, CliError> {
    let mut acquiring = client.acquiring(name.clone(), request);
    let error = match watched(name, &mut acquiring, signals).await {
        Ok(lease) => return Ok(lease),
        Err(error) => error,
    };
    // Whatever is left of it in the queue, or is granted unheard, is in the way of others.
    if let CliError::Interrupted(_) | CliError::Client(ClientError::OutcomeUnknown { .. }) = error {
        // If somebody asks again to end, the gateway takes it back by itself, a few seconds later.
        let withdrawal = notify_if_slow(name, WITHDRAWAL_UNANSWERED, acquiring.withdraw());
        signals.until_second_signal(withdrawal).await;
    }
    Err(error)
}

async fn watched(
    name: &LockName,
    acquiring: &mut Acquiring,
    signals: &mut Signals,
) -> Result<Lease, CliError> {
    let asked = Instant::now();
    let drawn = ProgressLine::is_visible();
    let mut line = ProgressLine::default();
    let (sender, news) = watch::channel(None);
    let mut watcher = |waiting: &WaitStatus| {
        sender.send_replace(Some(waiting.clone()));
    };
    let acquire = async {
        if drawn {
            return acquiring.finish_watched(&mut watcher).await;
        }
        let mut outage = Outage::of(name, asked);
        let mut listener = |waiting: &WaitStatus| outage.update(waiting.trouble.as_ref());
        let lease = acquiring.finish_reported(&mut listener).await?;
        outage.update(None);
        Ok(lease)
    };
    let mut acquire = std::pin::pin!(acquire);
    let mut tick = interval(DRAWN_EVERY);
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::TSTP => {
                    line.clear();
                    suspend();
                }
                signal if GIVING_UP.contains(&signal) => return Err(CliError::Interrupted(signal)),
                // The end of a child that somebody left us with, or that we go on after a stop.
                _ => {}
            },
            lease = &mut acquire => return Ok(lease?),
            _ = tick.tick(), if drawn => {
                let waited = asked.elapsed();
                match &*news.borrow() {
                    Some(waiting) => line.draw(&visible(&describe(name, waiting, waited))),
                    None if waited >= DRAWN_EVERY => line.draw(&describe_unanswered(name, waited)),
                    None => {}
                }
            }
        }
    }
}

/// Does what Ctrl-Z would do if it were not heard. This signal does it where a shell can undo it, and
/// nothing elsewhere.
pub(super) fn suspend() {
    kill_current_process_group(Signal::TTIN).expect("a process may send a signal to its own group");
}
