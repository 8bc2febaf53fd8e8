//! Tests `Replicas` with fake Redis servers.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use crate::{lifecycle::Lifecycle, store::redis::keys::Keys};

use super::{super::pool::tests::pool_at, *};

/// A fake Redis server with one replica.
#[derive(Default)]
struct Server {
    /// Notified when the fake server must close all its connections.
    hang_up: Notify,
    /// Number of the fake server's run, which is its run id.
    run: AtomicU32,
    /// How many connections the server accepts at first without ever answering on them.
    silent: AtomicU32,
    connections: AtomicU32,
}

// === impl Server ===

impl Server {
    async fn start(lifecycle: &Lifecycle) -> (Arc<Self>, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (server, tasks) = (Arc::new(Self::default()), lifecycle.clone());
        let answering = Arc::clone(&server);
        lifecycle.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = Arc::clone(&answering);
                tasks.spawn(async move { drop(server.answer(client).await) });
            }
        });
        (server, port)
    }

    async fn answer(&self, mut client: TcpStream) -> std::io::Result<()> {
        let number = self.connections.fetch_add(1, Ordering::SeqCst);
        if number < self.silent.load(Ordering::SeqCst) {
            self.hang_up.notified().await;
            return Ok(());
        }
        let run = self.run.load(Ordering::SeqCst);
        let mut request = [0; 4_096];
        loop {
            let read = tokio::select! {
                read = client.read(&mut request) => read?,
                () = self.hang_up.notified() => return Ok(()),
            };
            let request = String::from_utf8_lossy(&request[..read]);
            let reply = match () {
                () if request.contains("INFO") => format!("+PONG\r\n$10\r\nrun_id:{run:03}\r\n"),
                () if request.contains("EVALSHA") => "+OK\r\n:1\r\n".to_owned(),
                () if request.contains("WAIT") => ":1\r\n".to_owned(),
                () => "+PONG\r\n".to_owned(),
            };
            client.write_all(reply.as_bytes()).await?;
        }
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn marker() -> String {
    Keys::MARKER.to_owned()
}

fn config() -> RedisConfig {
    RedisConfig {
        connections: 2,
        wait_replicas: 1,
        ..RedisConfig::default()
    }
}

/// Starts a server that never answers on its first `silent` connections, and creates its pool and its `Replicas`.
async fn start(silent: u32, config: &RedisConfig) -> (Lifecycle, Arc<Server>, Pool, Replicas) {
    let lifecycle = Lifecycle::new();
    let (server, port) = Server::start(&lifecycle).await;
    server.silent.store(silent, Ordering::SeqCst);
    let pool = pool_at(port, config);
    (lifecycle, server, pool, Replicas::new(config))
}

async fn markers_on(pool: &Pool, replicas: &Replicas) -> Arc<MarkerConnection> {
    let opened = replicas.marker_connection(pool, marker, soon()).await;
    opened.unwrap().unwrap()
}

#[tokio::test]
async fn a_grant_is_confirmed_by_the_connection_that_is_older_than_it_and_by_no_other() {
    let (_lifecycle, server, pool, replicas) = start(0, &config()).await;
    let before = markers_on(&pool, &replicas).await;
    let run = before.run.clone();
    assert_eq!(replicas.have(&before, Some(&run), soon()).await, Ok(()));
    server.hang_up.notify_waiters();
    while replicas.open_markers().is_some() {
        tokio::task::yield_now().await;
    }
    // Without an open connection between the grant and the marker, the server may have lost the grant or been
    // replaced.
    assert_eq!(replicas.have(&before, Some(&run), soon()).await, Err(None));
    let after = markers_on(&pool, &replicas).await;
    assert!(!Arc::ptr_eq(&before, &after));
    assert_eq!(replicas.have(&before, Some(&run), soon()).await, Err(None));
    assert_eq!(replicas.have(&after, Some(&run), soon()).await, Ok(()));
}

#[tokio::test]
async fn a_grant_of_another_server_is_confirmed_by_no_marker() {
    let (_lifecycle, server, pool, replicas) = start(0, &config()).await;
    let markers = markers_on(&pool, &replicas).await;
    let run = markers.run.clone();
    assert_eq!(replicas.have(&markers, None, soon()).await, Err(None));
    assert_eq!(replicas.have(&markers, Some(&run), soon()).await, Ok(()));
    let other = RunId::read("run_id:001").unwrap();
    assert_eq!(
        replicas.have(&markers, Some(&other), soon()).await,
        Err(None)
    );

    // From now on the address leads to another server, which the next new connection finds out.
    server.run.store(1, Ordering::SeqCst);
    pool.route.connect().await.map(drop).unwrap();
    let after = markers_on(&pool, &replicas).await;
    assert_eq!(after.run, other);
    assert_eq!(pool.connection(soon()).await.unwrap().run(), Some(&other));
}

#[tokio::test]
async fn those_who_wait_for_a_connection_that_cannot_be_made_hear_so_together() {
    let (_lifecycle, server, pool, replicas) = start(u32::MAX, &config()).await;
    // Waits for the connections of the pool itself.
    while server.connections.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    let before = server.connections.load(Ordering::SeqCst);
    let all = (0..100).map(|_| replicas.marker_connection(&pool, marker, soon()));
    for refused in futures_util::future::join_all(all).await {
        assert!(matches!(refused, Err(Unavailability::Connect(_))));
    }
    // The pool itself goes on connecting meanwhile, so the number may be larger than one.
    let tried = server.connections.load(Ordering::SeqCst) - before;
    assert!(
        tried < 10,
        "{tried} connections for a hundred who asked together"
    );
}

#[tokio::test]
async fn nobody_waits_for_a_connection_longer_than_its_request_may_take() {
    let config = RedisConfig {
        connect_timeout_ms: crate::config::Millis(60_000),
        ..config()
    };
    let (_lifecycle, _server, pool, replicas) = start(u32::MAX, &config).await;
    let limit = Instant::now() + Duration::from_millis(50);
    let refused = replicas.marker_connection(&pool, marker, limit).await;
    assert!(matches!(refused, Err(Unavailability::Connect(_))));
    assert!(limit.elapsed() < Duration::from_secs(30));
}
