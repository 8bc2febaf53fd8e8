//! A caller that talks to a gateway over one connection, without a client that repeats requests or pools connections.

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{net::TcpStream, time::sleep};

use super::{Connection, HttpRequest};

/// A caller of a gateway over one connection, one request after the other.
pub(crate) struct Caller(Connection<TcpStream>);

// === impl Caller ===

impl Caller {
    pub(crate) async fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self(Connection::new(stream))
    }

    /// Acquires a lock; answers the status and the body.
    pub(crate) async fn acquire(&mut self, lock: &str, body: &Value) -> (u16, Value) {
        let asked = request("POST", lock).body(body.clone());
        self.0.ask(&asked).await.unwrap()
    }

    /// Releases a lease, which must hold its lock.
    pub(crate) async fn release(&mut self, lock: &str, lease: &Value) {
        let token = lease["token"].as_str().unwrap();
        let release = request("DELETE", lock).with("lock-token", token);
        let (status, problem) = self.ask_until_done(&release).await;
        assert_eq!(status, 204, "{problem}");
    }

    /// Looks at a lock.
    pub(crate) async fn inspect(&mut self, lock: &str) -> Value {
        let (status, shown) = self.ask_until_done(&request("GET", lock)).await;
        assert_eq!(status, 200, "{shown}");
        shown
    }

    /// Repeats a request while gateway or store are overloaded and did nothing.
    async fn ask_until_done(&mut self, asked: &HttpRequest) -> (u16, Value) {
        loop {
            let (status, told) = self.0.ask(asked).await.unwrap();
            if !is_busy(&told) {
                return (status, told);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn request(method: &'static str, lock: &str) -> HttpRequest {
    HttpRequest::new(method, format!("/locks/{lock}"))
}

/// Whether a problem says that gateway or store was overloaded and did nothing.
pub(crate) fn is_busy(told: &Value) -> bool {
    ["store-unavailable", "overloaded"].contains(&told["code"].as_str().unwrap_or_default())
}
