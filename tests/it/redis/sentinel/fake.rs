//! A fake sentinel whose answers the test chooses.

use latchgate::config::RedisNode;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::watch,
};

use crate::{redis::prelude::*, support};

/// A fake sentinel. It works for as long as its lifecycle lasts.
pub(crate) struct FakeSentinel {
    port: u16,
    says: Arc<Mutex<SentinelReply>>,
    /// How long it waits before each answer.
    thinks: Arc<Mutex<Duration>>,
    /// Counts the messages to subscribers.
    told: watch::Sender<u64>,
    /// How many questions it got.
    asked: Arc<AtomicUsize>,
}

/// The answer of a fake sentinel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentinelReply {
    /// The server at this port is the master, since this epoch.
    Master(u16, u64),
    /// The sentinel knows no such service.
    NoSuchService,
    /// No answer: the sentinel accepts connections and closes them at the first question.
    Nothing,
}

// === impl FakeSentinel ===

impl FakeSentinel {
    pub(crate) async fn start(says: SentinelReply, lifecycle: &Lifecycle) -> Self {
        let says = Arc::new(Mutex::new(says));
        let thinks = Arc::new(Mutex::new(Duration::ZERO));
        let told = watch::Sender::new(0);
        let asked = Arc::new(AtomicUsize::new(0));
        let (said, thinking) = (Arc::clone(&says), Arc::clone(&thinks));
        let (counted, telling) = (Arc::clone(&asked), told.clone());
        let each = move |client| {
            let (said, telling) = (Arc::clone(&said), telling.subscribe());
            let (counted, thinking) = (Arc::clone(&counted), Arc::clone(&thinking));
            async move {
                drop(serve(client, (&said, &thinking), telling, &counted).await);
            }
        };
        Self {
            port: support::serve(lifecycle, each).await,
            says,
            thinks,
            told,
            asked,
        }
    }

    pub(crate) fn node(&self) -> RedisNode {
        RedisNode::new("127.0.0.1", self.port)
    }

    /// How many questions the sentinel got.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Sets the answer from now on.
    pub(crate) fn say(&self, says: SentinelReply) {
        *self.says.lock().unwrap() = says;
    }

    /// Sets the time before each answer from now on.
    pub(crate) fn think(&self, time: Duration) {
        *self.thinks.lock().unwrap() = time;
    }

    /// Tells the subscribers that the master has changed.
    pub(crate) fn hint(&self) {
        self.told.send_modify(|count| *count += 1);
    }
}

async fn serve(
    client: TcpStream,
    (says, thinks): (&Mutex<SentinelReply>, &Mutex<Duration>),
    mut told: watch::Receiver<u64>,
    asked: &AtomicUsize,
) -> std::io::Result<()> {
    let (reader, mut writer) = client.into_split();
    let mut lines = BufReader::new(reader).lines();
    let mut listens = false;
    loop {
        let head = tokio::select! {
            head = lines.next_line() => head?,
            changed = told.changed(), if listens => {
                if changed.is_err() {
                    return Ok(());
                }
                let hint = texts(&["message", "+switch-master", "locks h 1 h 2"]);
                writer.write_all(hint.as_bytes()).await?;
                continue;
            }
        };
        let Some(head) = head else {
            return Ok(());
        };
        let count = head.trim_start_matches('*').parse().unwrap_or(0);
        let mut words = Vec::new();
        for _ in 0..count {
            // The length of the word, which the line ending shows as well.
            lines.next_line().await?;
            words.push(lines.next_line().await?.unwrap_or_default());
        }
        asked.fetch_add(usize::from(!listens), Ordering::SeqCst);
        let thinks = *thinks.lock().unwrap();
        if words.first().is_some_and(|word| word == "SENTINEL") {
            sleep(thinks).await;
        }
        let said = *says.lock().unwrap();
        let Some(answer) = answer(&words, said, &mut listens) else {
            return Ok(());
        };
        writer.write_all(answer.as_bytes()).await?;
    }
}

fn answer(words: &[String], says: SentinelReply, listens: &mut bool) -> Option<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Some(match (words.as_slice(), says) {
        (_, SentinelReply::Nothing) => return None,
        (["SUBSCRIBE", channels @ ..], _) => {
            *listens = true;
            let subscribed = channels.iter().zip(1..).map(|(channel, n)| {
                let head = texts(&["subscribe", channel]).replacen("*2", "*3", 1);
                format!("{head}:{n}\r\n")
            });
            subscribed.collect()
        }
        (["PING"], _) if *listens => texts(&["pong", ""]),
        (["SENTINEL", "MASTER", _], SentinelReply::Master(_, epoch)) => {
            texts(&["name", "locks", "config-epoch", &epoch.to_string()])
        }
        (["SENTINEL", "MASTER", _], SentinelReply::NoSuchService) => {
            "-ERR No such master with that name\r\n".to_owned()
        }
        (["SENTINEL", _, _], SentinelReply::Master(port, _)) => {
            texts(&["127.0.0.1", &port.to_string()])
        }
        (["SENTINEL", _, _], SentinelReply::NoSuchService) => "*-1\r\n".to_owned(),
        _ => "+PONG\r\n".to_owned(),
    })
}

/// A reply that is a list of texts.
fn texts(texts: &[&str]) -> String {
    let text = |text: &&str| format!("${}\r\n{text}\r\n", text.len());
    let list: String = texts.iter().map(text).collect();
    format!("*{}\r\n{list}", texts.len())
}
