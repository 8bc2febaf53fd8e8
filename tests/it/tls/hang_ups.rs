//! Callers whose end is in the socket of the gateway a millisecond before their answers are written, over each protocol.

use std::time::Duration;

use http::Method;
use rustix::{
    net::{Shutdown, shutdown},
    process::Signal,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep},
};
use tokio_rustls::client::TlsStream;

use super::{
    fixture::{Certified, H2, tls_connect},
    leaving::{block, frame_of, greeted, head},
};
use crate::support::{
    RedisServer, full,
    gateway::{Gateway, Setup},
};

#[derive(Debug, Clone, Copy)]
enum Protocol {
    Http1,
    Tls,
    Http2,
}

/// The connection of a caller.
enum Caller {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A gateway over plain HTTP and another over TLS, on one Redis server.
struct Rig {
    redis: RedisServer,
    plain: Gateway,
    certified: Certified,
    observer: H2,
}

/// How many callers hang up at the same time.
const ROUND: usize = 25;
/// How long the ends of callers are in their sockets before the gateway may write.
const BEFORE: Duration = Duration::from_millis(1);
/// How long undelivered leases may take to be released.
const RELEASED: Duration = Duration::from_secs(30);

// === impl Caller ===

impl Caller {
    async fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(stream) => stream.write_all(bytes).await.unwrap(),
            Self::Tls(stream) => {
                stream.write_all(bytes).await.unwrap();
                stream.flush().await.unwrap();
            }
        }
    }

    /// Ends the connection as the kernel does for a caller that was killed: with a FIN, and no byte of TLS or HTTP/2.
    fn hang_up(&self) {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        shutdown(stream, Shutdown::Both).unwrap();
    }
}

// === impl Rig ===

impl Rig {
    async fn start() -> Self {
        let redis = RedisServer::start().await;
        let setup = Setup::on(&redis)
            .with("LATCHGATE_LIMITS_DEFAULT_TTL_MS", "3600000")
            .with("LATCHGATE_THREADS", "1");
        let plain = Gateway::start_with(setup.clone());
        let certified = Certified::start_with(|_| setup);
        Self {
            observer: H2::connect(&certified).await,
            redis,
            plain,
            certified,
        }
    }

    fn gateway(&self, over: Protocol) -> &Gateway {
        match over {
            Protocol::Http1 => &self.plain,
            Protocol::Tls | Protocol::Http2 => &self.certified.gateway,
        }
    }

    async fn connect(&self, over: Protocol) -> Caller {
        let address = self.gateway(over).address;
        match over {
            Protocol::Http1 => Caller::Plain(TcpStream::connect(address).await.unwrap()),
            Protocol::Tls => Caller::Tls(Box::new(
                tls_connect(&self.certified.authority, address, &[b"http/1.1"]).await,
            )),
            Protocol::Http2 => Caller::Tls(Box::new(greeted(&self.certified).await)),
        }
    }

    /// Waits until the gateway, which has one worker, has most likely handled what had arrived.
    async fn has_caught_up(&self, over: Protocol) {
        for _ in 0..5 {
            match over {
                Protocol::Http1 => {
                    let mut stream = TcpStream::connect(self.plain.address).await.unwrap();
                    let asked = b"GET /healthz HTTP/1.0\r\nhost: localhost\r\n\r\n";
                    stream.write_all(asked).await.unwrap();
                    assert!(stream.read_to_end(&mut Vec::new()).await.unwrap() > 0);
                }
                Protocol::Tls | Protocol::Http2 => {
                    let mut observer = self.observer.clone();
                    let (status, _) = observer.ask(Method::GET, "/healthz", &[], "").await;
                    assert_eq!(status, 200);
                }
            }
        }
    }

    /// Sends acquires of free locks, and hangs up while the replies of Redis are on their way: when the gateway runs
    /// again, it finds the replies and the ends of its callers. Answers how many of the locks Redis has granted.
    async fn round(&self, over: Protocol, locks: &[String]) -> usize {
        let mut callers = Vec::new();
        for _ in locks {
            callers.push(self.connect(over).await);
        }
        self.has_caught_up(over).await;
        let gateway = self.gateway(over);
        let calls = self.redis.calls("evalsha").await;
        self.redis.freeze();
        for (caller, lock) in callers.iter_mut().zip(locks) {
            let path = format!("/locks/{lock}");
            let request = match over {
                Protocol::Http1 | Protocol::Tls => {
                    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
                }
                Protocol::Http2 => frame_of(1, 1, 0x05, &block(&head("POST", &path))),
            };
            caller.send(&request).await;
        }
        self.has_caught_up(over).await;
        gateway.freeze();
        self.redis.thaw();
        let granted = self.redis.calls("evalsha").await - calls;
        for caller in &callers {
            caller.hang_up();
        }
        sleep(BEFORE).await;
        gateway.signal(Signal::CONT);
        locks.len().min(usize::try_from(granted).unwrap())
    }
}

#[tokio::test]
async fn a_caller_that_has_hung_up_a_millisecond_before_the_answer_leaves_no_lease() {
    let tries = if full() { 1_000 } else { 200 };
    let rig = Rig::start().await;
    let mut observer = rig.observer.clone();
    for over in [Protocol::Http1, Protocol::Tls, Protocol::Http2] {
        let (mut locks, mut granted) = (Vec::new(), 0);
        // A gateway on a busy machine is frozen before it has sent all commands to Redis.
        while granted < tries {
            assert!(locks.len() < 10 * tries, "{over:?}: {granted} were granted");
            let round = locks.len()..locks.len() + ROUND;
            let round: Vec<_> = round.map(|number| format!("{over:?}-{number}")).collect();
            granted += rig.round(over, &round).await;
            locks.extend(round);
        }
        let until = Instant::now() + RELEASED;
        loop {
            let mut held = Vec::new();
            for lock in locks {
                if observer.inspect(&lock).await["state"] == "held" {
                    held.push(lock);
                }
            }
            locks = held;
            if locks.len() <= tries / 100 || Instant::now() >= until {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        println!("{over:?}: {} of {granted} are left", locks.len());
        assert!(locks.len() <= tries / 100, "{over:?}: {locks:?} are held");
    }
}
