//! Locks without a gateway, as a user would write them: two short scripts, by a Redis driver or through Webdis.
//!
//! They are not the gateway's scripts: a baseline with those would hide their cost.

use std::{fmt::Write as _, net::SocketAddr};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::Caller;

/// Keys: lock, counter, record. Arguments: token, TTL in ms.
const ACQUIRE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
     local fence = redis.call('INCR', KEYS[2]) \
     redis.call('HSET', KEYS[3], 'fence', fence, 'owner', 'me') \
     return fence end return -1";
/// Keys: lock, record. Argument: token.
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
     return redis.call('DEL', KEYS[1], KEYS[2]) end return 0";

/// A connection of a native client: RESP, with one command at a time.
pub(crate) struct Plain {
    stream: TcpStream,
    buffer: Vec<u8>,
    acquire: String,
    release: String,
}

/// How a caller of Webdis sends a script.
#[derive(Clone, Copy)]
pub(crate) enum WebdisScripts {
    /// By its text in every call, so that nothing must be loaded first.
    Text,
    /// By its hash. The script was loaded before, without Webdis.
    Loaded,
}

/// A connection to Webdis, which carries the same scripts over HTTP.
pub(crate) struct WebdisCaller {
    caller: Caller,
    /// The command and the script, with which each call begins.
    acquire: String,
    release: String,
}

// === impl Plain ===

impl Plain {
    pub(crate) async fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("Redis listens");
        stream
            .set_nodelay(true)
            .expect("a connected socket takes the option");
        let mut plain = Self {
            stream,
            buffer: Vec::with_capacity(4096),
            acquire: String::new(),
            release: String::new(),
        };
        plain.acquire = plain.exchange(&["SCRIPT", "LOAD", ACQUIRE]).await;
        plain.release = plain.exchange(&["SCRIPT", "LOAD", RELEASE]).await;
        plain
    }

    /// Acquires and releases a lock that no other client uses.
    pub(crate) async fn pair(&mut self, name: &str) {
        let (lock, record) = (format!("l:{name}"), format!("i:{name}"));
        let sha = self.acquire.clone();
        let command = ["EVALSHA", &sha, "3", &lock, "fence", &record, name, "30000"];
        let fence = self.exchange(&command).await;
        assert_ne!(fence, "-1", "{name} was free");
        let sha = self.release.clone();
        let released = self
            .exchange(&["EVALSHA", &sha, "2", &lock, &record, name])
            .await;
        assert_eq!(released, "2", "{name} was held");
    }

    /// Sends a command and reads a reply of one line or one string.
    async fn exchange(&mut self, command: &[&str]) -> String {
        let mut request = format!("*{}\r\n", command.len());
        for part in command {
            write!(request, "${}\r\n{part}\r\n", part.len()).expect("a string takes all");
        }
        self.stream
            .write_all(request.as_bytes())
            .await
            .expect("Redis reads");
        self.buffer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await;
            assert!(read.expect("Redis answers") > 0, "Redis closed");
            let reply = std::str::from_utf8(&self.buffer).expect("these replies are ASCII");
            let Some((head, rest)) = reply.split_once("\r\n") else {
                continue;
            };
            match head.split_at(1) {
                ("$", _) => {
                    if let Some(text) = rest.strip_suffix("\r\n") {
                        return text.to_owned();
                    }
                }
                (":" | "+", value) => return value.to_owned(),
                _ => panic!("{reply}"),
            }
        }
    }
}

// === impl WebdisCaller ===

impl WebdisCaller {
    /// Connects to Webdis. Webdis and the native client use the same Redis server.
    pub(crate) async fn connect(address: SocketAddr, redis: u16, scripts: WebdisScripts) -> Self {
        let [acquire, release] = match scripts {
            WebdisScripts::Text => {
                // A slash would end the argument; Webdis decodes all other characters.
                [ACQUIRE, RELEASE]
                    .map(|text| format!("EVAL/{}", utf8_percent_encode(text, NON_ALPHANUMERIC)))
            }
            WebdisScripts::Loaded => {
                let plain = Plain::connect(redis).await;
                [plain.acquire, plain.release].map(|hash| format!("EVALSHA/{hash}"))
            }
        };
        Self {
            caller: Caller::connect(address).await,
            acquire,
            release,
        }
    }

    /// The same as [`Plain::pair`].
    pub(crate) async fn pair(&mut self, name: &str) {
        let (acquire, release) = (&self.acquire, &self.release);
        let command = format!("{acquire}/3/l:{name}/fence/i:{name}/{name}/30000");
        let answer = self.caller.post("/", &command).await;
        assert!(!answer.contains("-1"), "{name} was free: {answer}");
        let command = format!("{release}/2/l:{name}/i:{name}/{name}");
        let answer = self.caller.post("/", &command).await;
        assert!(answer.contains(":2}"), "{name} was held: {answer}");
    }
}
