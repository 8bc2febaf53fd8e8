//! Asks each sentinel for the master, and ranks the servers that the sentinels name.

use std::{cmp::Reverse, pin::pin, sync::Arc};

use bb8_redis::redis::Value;
use futures_util::{StreamExt, future::join_all};
use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, Notify},
    time::{Duration, Instant, sleep, timeout_at},
};
use tracing::{info, warn};

use crate::{config::RedisNode, store::Unavailability};

use super::super::{
    ask_many::ask_most,
    connection::{Connection, answered},
    credentials::Credentials,
    endpoint::Endpoint,
    failure::Failure,
    script::Command,
};

/// The connections to one sentinel, and the last errors of this sentinel.
pub(super) struct Sentinel {
    endpoint: Endpoint,
    /// The connection on which the sentinel is asked, once it is open.
    connection: AsyncMutex<Option<Connection>>,
    presence: Mutex<Presence>,
    errors: Mutex<SentinelErrors>,
}

/// The current errors of a sentinel: of its answers, and of its subscription.
#[derive(Default)]
struct SentinelErrors {
    /// The error of the sentinel's last answer, if the answer named no master.
    refusal: Option<String>,
    subscription_error: Option<String>,
}

/// When a sentinel last named a master, and how often it was asked since then.
#[derive(Default)]
struct Presence(Option<(Instant, usize)>);

/// A server that sentinels name as the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) node: RedisNode,
    /// Configuration epoch of the sentinel's answer; of two answers, the answer with the higher epoch is later. If
    /// several sentinels name this server: the latest epoch that more than half of them have reached.
    pub(super) epoch: u64,
    /// How many sentinels name this server.
    pub(super) by: usize,
}

/// The channel on which a sentinel announces a new master, once the sentinels agree that a failover is over.
const SWITCHES: &str = "+switch-master";
/// For how long a sentinel that no longer answers still counts as one that does, and how many questions it must leave
/// unanswered. If the answers of most sentinels are late once, the others must not decide alone.
const ABSENT_AFTER: (Duration, usize) = (Duration::from_secs(2), 2);
/// Pause before the gateway subscribes again to a sentinel whose subscription failed or was lost.
const PAUSE: Duration = Duration::from_secs(1);

// === impl Sentinel ===

impl Sentinel {
    pub(super) fn new(node: RedisNode, credentials: Arc<Credentials>, timeout: Duration) -> Self {
        let errors = SentinelErrors {
            subscription_error: Some("it was not reached yet".to_owned()),
            ..SentinelErrors::default()
        };
        Self {
            endpoint: Endpoint::new(node, credentials, timeout).for_any_server(),
            connection: AsyncMutex::new(None),
            presence: Mutex::default(),
            errors: Mutex::new(errors),
        }
    }

    pub(super) fn node(&self) -> &RedisNode {
        self.endpoint.node()
    }

    /// Asks the sentinel for the master of a service, the name under which sentinels watch a master.
    async fn ask(&self, service: &str, limit: Instant) -> Result<Candidate, Unavailability> {
        self.presence.lock().asked();
        let asked = timeout_at(limit, self.ask_once(service, limit)).await;
        let answer = asked.unwrap_or_else(|_elapsed| {
            Err(Unavailability::Connect("no answer in time".to_owned()))
        });
        match &answer {
            Ok(_) => {
                self.presence.lock().answered();
                self.note(|now| now.refusal = None);
            }
            // A slow sentinel is not recorded as failing here: its subscription shows within seconds whether it can be
            // reached.
            Err(Unavailability::Connect(_)) => {}
            Err(why) => self.note(|now| now.refusal = Some(why.to_string())),
        }
        answer
    }

    /// Whether the sentinel counts as one that answers.
    pub(super) fn is_present(&self) -> bool {
        self.presence.lock().lasts()
    }

    async fn ask_once(&self, service: &str, limit: Instant) -> Result<Candidate, Unavailability> {
        let connection = self.connection().await?;
        let commands = ["GET-MASTER-ADDR-BY-NAME", "MASTER"]
            .map(|what| Command::new("SENTINEL").with(what).with(service));
        let replies = connection
            .send_all(&commands, limit)
            .await
            .map_err(Failure::reason)?;
        read(&replies, service)
    }

    async fn connection(&self) -> Result<Connection, Unavailability> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = connection
            .as_ref()
            .filter(|connection| !connection.is_broken())
        {
            return Ok(connection.clone());
        }
        let new = self.endpoint.connect().await?;
        *connection = Some(new.clone());
        Ok(new)
    }

    /// Stays subscribed for ever, and notifies `switched` when the sentinel announces another master of the service.
    /// An announcement proves nothing; it only causes the sentinels to be asked at once.
    pub(super) async fn await_switches(&self, service: &str, switched: &Notify) {
        loop {
            match self.endpoint.subscribe(&[SWITCHES]).await {
                Ok(pubsub) => {
                    self.note(|now| now.subscription_error = None);
                    // The sentinel may have announced another master before the subscription.
                    switched.notify_one();
                    let mut messages = pin!(pubsub.messages());
                    while let Some(message) = messages.next().await {
                        if message.split(' ').next() == Some(service) {
                            switched.notify_one();
                        }
                    }
                    let lost = "the connection was lost".to_owned();
                    self.note(|now| now.subscription_error = Some(lost));
                }
                Err(why) => self.note(|now| now.subscription_error = Some(why.to_string())),
            }
            sleep(PAUSE).await;
        }
    }

    /// Why the sentinel does not answer or its subscription fails; `None` if all is well.
    pub(super) fn last_error(&self) -> Option<String> {
        self.errors.lock().why().cloned()
    }

    /// Changes the recorded errors of the sentinel, and logs when the sentinel begins to fail or recovers, because
    /// readiness names no sentinel.
    fn note(&self, change: impl FnOnce(&mut SentinelErrors)) {
        let mut errors = self.errors.lock();
        let was_well = errors.why().is_none();
        change(&mut errors);
        let why = errors.why().cloned();
        drop(errors);
        let node = self.node();
        match why {
            Some(why) if was_well => warn!(%node, why, "a sentinel sends no messages"),
            None if !was_well => info!(%node, "a sentinel answers, and its messages arrive"),
            _ => {}
        }
    }

    pub(super) async fn close(&self) {
        self.endpoint.close().await;
    }
}

// === impl Presence ===

impl Presence {
    fn asked(&mut self) {
        if let Some((_, questions)) = &mut self.0 {
            *questions += 1;
        }
    }

    fn answered(&mut self) {
        self.0 = Some((Instant::now(), 0));
    }

    fn lasts(&self) -> bool {
        let (time, unanswered) = ABSENT_AFTER;
        (self.0).is_some_and(|(at, asked)| at.elapsed() <= time || asked < unanswered)
    }
}

// === impl SentinelErrors ===

impl SentinelErrors {
    fn why(&self) -> Option<&String> {
        (self.refusal.as_ref()).or(self.subscription_error.as_ref())
    }
}

/// Reads the master from the sentinel's replies to both commands.
fn read(replies: &[Value], service: &str) -> Result<Candidate, Unavailability> {
    let odd =
        || Unavailability::Refused("the server gives an answer that no sentinel gives".to_owned());
    let [address, state] = replies else {
        return Err(odd());
    };
    let address = match address {
        Value::Array(address) => address,
        Value::Nil => {
            let why = format!("it knows no service {service:?}");
            return Err(Unavailability::Misconfigured(why));
        }
        Value::ServerError(error) => return Err(answered(error).reason()),
        _ => return Err(odd()),
    };
    let [Some(host), Some(port)] = [0, 1].map(|n| address.get(n).and_then(text)) else {
        return Err(odd());
    };
    let port = port.parse().map_err(|_| odd())?;
    // Without the epoch, an outdated answer could not be told from the latest.
    let epoch = match state {
        Value::Array(state) => field(state, "config-epoch"),
        Value::ServerError(error) => return Err(answered(error).reason()),
        _ => None,
    };
    let epoch = epoch.and_then(|digits| digits.parse().ok());
    Ok(Candidate {
        node: RedisNode::new(host, port),
        epoch: epoch.ok_or_else(odd)?,
        by: 1,
    })
}

fn field<'a>(state: &'a [Value], name: &str) -> Option<&'a str> {
    let mut pairs = state.chunks_exact(2);
    pairs.find_map(|pair| (text(&pair[0])? == name).then(|| text(&pair[1]))?)
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

// === All sentinels ===

/// Asks all sentinels at once. Returns the servers that they name, the latest epoch first, and of equal epochs the
/// server that more sentinels name first; and the error of a sentinel that named none, if there is one.
/// `patiently`: all sentinels are waited for until the time-out, also when more than half have answered.
pub(super) async fn ask(
    sentinels: &[Sentinel],
    service: &str,
    timeout: Duration,
    patiently: bool,
) -> (Vec<Candidate>, Option<Unavailability>) {
    let limit = Instant::now() + timeout;
    let questions = sentinels.iter().map(async |sentinel| {
        let answer = sentinel.ask(service, limit).await;
        let at = |why: Unavailability| why.at(format_args!("sentinel {}", sentinel.node()));
        answer.map_err(at)
    });
    let (named, errors) = if patiently {
        let mut errors = Vec::new();
        let answers = join_all(questions).await.into_iter();
        let named = answers.filter_map(|it| it.map_err(|why| errors.push(why)).ok());
        (named.collect(), errors)
    } else {
        ask_most(questions, limit).await
    };
    (rank(named), errors.into_iter().reduce(worse))
}

fn rank(mut named: Vec<Candidate>) -> Vec<Candidate> {
    named.sort_by_key(|answer| Reverse(answer.epoch));
    let mut candidates: Vec<Candidate> = Vec::new();
    for new in &named {
        if candidates.iter().all(|it| it.node != new.node) {
            let same: Vec<_> = named.iter().filter(|it| it.node == new.node).collect();
            candidates.push(Candidate {
                // One sentinel whose epoch is too high must not make the answers of all others outdated.
                epoch: same[same.len() / 2].epoch,
                by: same.len(),
                ..new.clone()
            });
        }
    }
    candidates.sort_by_key(|candidate| Reverse((candidate.epoch, candidate.by)));
    candidates
}

/// Selects which of two errors of the sentinels to report. A temporary error takes precedence over a wrong
/// configuration, which is not the cause as long as the temporary error may pass.
fn worse(before: Unavailability, now: Unavailability) -> Unavailability {
    match before {
        Unavailability::Misconfigured(_) => now,
        before => before,
    }
}

#[cfg(test)]
mod tests {
    use bb8_redis::redis::parse_redis_value;
    use tokio::time::advance;

    use super::*;

    fn list(words: &[&str]) -> Value {
        let text = |word: &&str| Value::BulkString((*word).into());
        Value::Array(words.iter().map(text).collect())
    }

    #[test]
    fn names_a_master_and_when_it_became_one() {
        for (host, state, node, epoch) in [
            (
                "10.0.0.1",
                &["name", "m", "config-epoch", "12"][..],
                "10.0.0.1:6379",
                12,
            ),
            ("::1", &["config-epoch", "0"], "[::1]:6379", 0),
        ] {
            let named = read(&[list(&[host, "6379"]), list(state)], "m").unwrap();
            assert_eq!((&*named.node.to_string(), named.epoch), (node, epoch));
        }
    }

    #[test]
    fn one_that_does_not_say_when_or_does_not_know_the_service_is_not_believed() {
        let address = || list(&["10.0.0.1", "6379"]);
        let refused = parse_redis_value(b"-NOPERM this user has no permissions\r\n").unwrap();
        for wrong in [[address(), refused], [Value::Nil, Value::Nil]] {
            let why = read(&wrong, "m").unwrap_err();
            assert!(matches!(why, Unavailability::Misconfigured(_)), "{why}");
        }
        for odd in [
            &[address(), Value::Nil][..],
            &[address(), list(&["name", "m"])],
            &[address(), list(&["config-epoch", "x"])],
            &[list(&["h"]), Value::Nil],
            &[list(&["h", "x"]), Value::Nil],
            &[],
        ] {
            let why = read(odd, "m").unwrap_err();
            assert!(matches!(why, Unavailability::Refused(_)), "{why}");
        }
    }

    fn named(port: u16, epoch: u64) -> Candidate {
        Candidate {
            node: RedisNode::new("h", port),
            epoch,
            by: 1,
        }
    }

    #[test]
    fn the_latest_word_counts_and_of_equals_that_of_most() {
        let ports = |named: Vec<Candidate>| -> Vec<u16> {
            let ranked = rank(named).into_iter();
            ranked.map(|candidate| candidate.node.port()).collect()
        };
        // So far only one of the sentinels has seen the failover.
        assert_eq!(ports(vec![named(1, 4), named(1, 4), named(2, 5)]), [2, 1]);
        assert_eq!(ports(vec![named(1, 0), named(2, 0), named(2, 0)]), [2, 1]);
        let by = |named: Vec<Candidate>| rank(named)[0].by;
        assert_eq!(by(vec![named(1, 4), named(1, 3), named(2, 1)]), 2);
        // Most of the sentinels that name a server must have reached its epoch.
        for (epochs, epoch) in [
            (&[4][..], 4),
            (&[99, 4], 4),
            (&[99, 4, 4], 4),
            (&[1, 5, 5], 5),
        ] {
            let named = epochs.iter().map(|&epoch| named(1, epoch));
            assert_eq!(rank(named.collect())[0].epoch, epoch, "{epochs:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sentinel_is_absent_when_it_has_left_several_questions_unanswered_for_a_while() {
        let mut presence = Presence::default();
        presence.asked();
        assert!(!presence.lasts(), "it has never answered");
        presence.answered();
        presence.asked();
        presence.asked();
        assert!(presence.lasts(), "it may just be slow");
        presence.answered();
        // The gateway was stopped for a while, so that the answers were late.
        advance(2 * ABSENT_AFTER.0).await;
        presence.asked();
        assert!(presence.lasts());
        presence.asked();
        assert!(!presence.lasts());
        presence.answered();
        assert!(presence.lasts());
    }

    #[test]
    fn what_may_pass_is_told_before_what_is_configured() {
        let wrong = || Unavailability::Misconfigured("m".to_owned());
        let away = || Unavailability::Connect("c".to_owned());
        assert_eq!(worse(wrong(), away()), away());
        assert_eq!(worse(away(), wrong()), away());
    }
}
