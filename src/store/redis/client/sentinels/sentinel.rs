//! One sentinel, and whom it names.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bb8_redis::redis::{Pipeline, Value};
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{Duration, Instant, timeout_at},
};
use tracing::{info, warn};

use crate::{config::RedisNode, store::Unavailability};

use super::super::{
    connection::{Link, answered},
    credentials::Credentials,
    endpoint::Ear,
    endpoint::Endpoint,
    failure::Failure,
};

/// One sentinel.
pub(super) struct Sentinel {
    endpoint: Endpoint,
    /// On which it is asked.
    link: AsyncMutex<Option<Link>>,
    trouble: Mutex<Trouble>,
}

/// Why nothing comes from a sentinel, if nothing does.
#[derive(Default)]
struct Trouble {
    asking: Option<String>,
    hearing: Option<String>,
    /// When it was last known whether it answers.
    asked: Option<Instant>,
}

/// Whom a sentinel names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) node: RedisNode,
    /// How often the master had changed by then; the higher one is the later word.
    pub(super) epoch: u64,
}

// === impl Sentinel ===

impl Sentinel {
    pub(super) fn new(node: RedisNode, credentials: Arc<Credentials>, timeout: Duration) -> Self {
        let trouble = Trouble {
            hearing: Some("it was not reached yet".to_owned()),
            ..Trouble::default()
        };
        Self {
            endpoint: Endpoint::new(node, credentials, timeout),
            link: AsyncMutex::new(None),
            trouble: Mutex::new(trouble),
        }
    }

    pub(super) fn node(&self) -> &RedisNode {
        self.endpoint.node()
    }

    /// Asks for the master of a service.
    pub(super) async fn ask(&self, service: &str, limit: Instant) -> Result<Named, Unavailability> {
        let asked = timeout_at(limit, self.ask_once(service, limit)).await;
        let answer = asked.unwrap_or_else(|_elapsed| {
            Err(Unavailability::Connect("no answer in time".to_owned()))
        });
        let trouble = answer.as_ref().err().map(ToString::to_string);
        self.note(|now| {
            now.asking = trouble;
            now.asked = Some(Instant::now());
        });
        answer
    }

    /// Whether it is known of late whether it answers.
    pub(super) fn was_asked_within(&self, time: Duration) -> bool {
        let asked = self.trouble_now().asked;
        asked.is_some_and(|asked| asked.elapsed() <= time)
    }

    async fn ask_once(&self, service: &str, limit: Instant) -> Result<Named, Unavailability> {
        let link = self.link().await?;
        let mut commands = Pipeline::with_capacity(2);
        commands.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME");
        commands.arg(service);
        commands.cmd("SENTINEL").arg("MASTER").arg(service);
        let replies = link
            .send_all(&commands, limit)
            .await
            .map_err(Failure::reason)?;
        read(&replies, service)
    }

    async fn link(&self) -> Result<Link, Unavailability> {
        let mut link = self.link.lock().await;
        if let Some(link) = link.as_ref().filter(|link| !link.is_broken()) {
            return Ok(link.clone());
        }
        let new = self.endpoint.connect().await?;
        *link = Some(new.clone());
        Ok(new)
    }

    /// Listens to what it has to tell.
    pub(super) async fn listen(&self, channels: &[&str]) -> Result<Ear, Unavailability> {
        let ear = self.endpoint.subscribe(channels).await;
        let trouble = ear.as_ref().err().map(ToString::to_string);
        self.note(|now| now.hearing = trouble);
        ear
    }

    /// Takes note that it is not heard any more.
    pub(super) fn fell_silent(&self) {
        self.note(|now| now.hearing = Some("the connection was lost".to_owned()));
    }

    /// Why nothing comes from it, if nothing does.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble_now().why().cloned()
    }

    /// Takes note of how it is, and says so when that changes: readiness names nobody.
    fn note(&self, change: impl FnOnce(&mut Trouble)) {
        let mut trouble = self.trouble_now();
        let was_well = trouble.why().is_none();
        change(&mut trouble);
        let why = trouble.why().cloned();
        drop(trouble);
        let node = self.node();
        match why {
            Some(why) if was_well => warn!(%node, why, "nothing comes from a sentinel"),
            None if !was_well => info!(%node, "a sentinel answers, and is heard"),
            _ => {}
        }
    }

    pub(super) async fn close(&self) {
        self.endpoint.close().await;
    }

    fn trouble_now(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Trouble ===

impl Trouble {
    fn why(&self) -> Option<&String> {
        self.asking.as_ref().or(self.hearing.as_ref())
    }
}

/// Whom the replies to a question name.
fn read(replies: &[Value], service: &str) -> Result<Named, Unavailability> {
    let odd = || Unavailability::Refused("it answers what no sentinel would".to_owned());
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
    // Without it a word that is out of date could not be told from the latest.
    let epoch = match state {
        Value::Array(state) => field(state, "config-epoch"),
        Value::ServerError(error) => return Err(answered(error).reason()),
        _ => None,
    };
    let epoch = epoch.and_then(|digits| digits.parse().ok());
    Ok(Named {
        node: RedisNode::new(host, port),
        epoch: epoch.ok_or_else(odd)?,
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

#[cfg(test)]
mod tests {
    use bb8_redis::redis::parse_redis_value;

    use super::*;

    fn list(words: &[&str]) -> Value {
        let text = |word: &&str| Value::BulkString((*word).into());
        Value::Array(words.iter().map(text).collect())
    }

    #[test]
    fn names_a_master_and_when_it_became_one() {
        let state = list(&["name", "m", "config-epoch", "12", "quorum", "2"]);
        let named = read(&[list(&["10.0.0.1", "6379"]), state], "m").unwrap();
        assert_eq!(named.node.to_string(), "10.0.0.1:6379");
        assert_eq!(named.epoch, 12);
        let state = list(&["config-epoch", "0"]);
        let named = read(&[list(&["::1", "6379"]), state], "m").unwrap();
        assert_eq!(
            (named.node.to_string().as_str(), named.epoch),
            ("[::1]:6379", 0)
        );
    }

    #[test]
    fn one_that_does_not_say_when_is_not_believed() {
        let address = || list(&["10.0.0.1", "6379"]);
        let refused = parse_redis_value(b"-NOPERM this user has no permissions\r\n").unwrap();
        let unsaid = read(&[address(), refused], "m").unwrap_err();
        assert!(
            matches!(unsaid, Unavailability::Misconfigured(_)),
            "{unsaid}"
        );
        for odd in [
            Value::Nil,
            list(&["name", "m"]),
            list(&["config-epoch", "x"]),
        ] {
            assert!(matches!(
                read(&[address(), odd], "m"),
                Err(Unavailability::Refused(_))
            ));
        }
    }

    #[test]
    fn one_that_does_not_know_the_service_is_not_watching_it() {
        let unknown = read(&[Value::Nil, Value::Nil], "m").unwrap_err();
        assert!(
            matches!(unknown, Unavailability::Misconfigured(_)),
            "{unknown}"
        );
        for odd in [
            &[list(&["h"]), Value::Nil],
            &[list(&["h", "x"]), Value::Nil],
        ] {
            assert!(matches!(read(odd, "m"), Err(Unavailability::Refused(_))));
        }
        assert!(matches!(read(&[], "m"), Err(Unavailability::Refused(_))));
    }
}
