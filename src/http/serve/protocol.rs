//! Speaks HTTP on one connection: HTTP/1.1, or over TLS also HTTP/2.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use hyper::{
    body::Incoming,
    rt::Executor,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{Instant, sleep_until, timeout},
};
use tokio_rustls::server::TlsStream;
use tracing::{debug, info};

use crate::{
    config::HttpConfig,
    http::tls::{Certificates, HTTP_2},
    lifecycle::Lifecycle,
};

use super::{
    connection::{ConnectionState, LongRequests, Timeouts},
    peer_end::LookBudget,
    request_handler::RequestHandler,
    socket::{Socket, TrailingEnd, close, refuse},
};

/// How connections are served.
pub(super) struct Protocol {
    tls: Option<Tls>,
    http1: http1::Builder,
    http2: http2::Builder<Tasks>,
    timeouts: Timeouts,
    handler: RequestHandler,
    long_requests: LongRequests,
    looks: LookBudget,
    lifecycle: Lifecycle,
}

/// How connections begin if the gateway speaks TLS.
struct Tls {
    certificates: Certificates,
    /// How long a handshake may take.
    timeout: Duration,
}

/// Runs the requests of a connection over HTTP/2 as work of the gateway.
#[derive(Clone)]
struct Tasks(Lifecycle);

/// The most that HTTP/1.1 buffers of a head, at least. Well above the limits that are answered with a
/// problem document.
const HEAD_BUFFER: usize = 128 * 1024;
/// A client that has just connected asks for something within this time. A gateway that closes waits for it:
/// if it were cut off, the client could not tell whether its request was received.
const FRESH: Duration = Duration::from_millis(250);

/// How long a head may take, from its first byte, when the gateway closes.
const CLOSING: Duration = Duration::from_secs(3);

/// How often the kernel is asked whether the caller of a request is still there, where HTTP/1.1 does not notice.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// How often a client over HTTP/2 is asked for a sign of life, and how long it may take for it: ten seconds
/// until it is known that a waiter, or the holder of a stream, is gone. A healthy client answers by itself,
/// without its program.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of a body, and of all bodies on a connection, may come before it is read: as much as one
/// frame of most, and no more than a few of them.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// The most of an answer that waits for its client in our memory.
const SEND_BUFFER: usize = 32 * 1024;

/// How a client begins that knows, without having asked, that a server speaks HTTP/2.
const HTTP_2_PREFACE: &[u8] = b"PRI * HTTP/2.0";
const NO_HTTP_2: &str =
    "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// The first byte of whatever begins a TLS connection.
const TLS: u8 = 22;
/// What a client is told that speaks plain HTTP to a gateway that speaks TLS.
const PLAIN_HTTP: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\
    content-length: 53\r\nconnection: close\r\n\r\n\
    This address speaks TLS: use https:// and not http://";

// === impl Protocol ===

impl Protocol {
    pub(super) fn new(
        config: &HttpConfig,
        certificates: Option<Certificates>,
        handler: RequestHandler,
        long_requests: LongRequests,
        lifecycle: &Lifecycle,
    ) -> Self {
        // Twice what is answered with a problem document.
        let head = 2 * (config.max_uri_bytes + config.max_header_bytes);
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let mut http1 = http1::Builder::new();
        // The time-out of hyper sets a timer for each request, and counts idle time too.
        http1
            .header_read_timeout(None)
            .max_buf_size(HEAD_BUFFER.max(head));
        let mut http2 = http2::Builder::new(Tasks(lifecycle.clone()));
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(number(config.max_streams))
            .max_header_list_size(number(head))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        Self {
            tls: certificates.map(|certificates| Tls {
                certificates,
                timeout: config.tls.handshake_timeout_ms.duration(),
            }),
            http1,
            http2,
            timeouts: Timeouts {
                idle: config.idle_timeout_ms.duration(),
                head: config.header_timeout_ms.duration(),
            },
            handler,
            long_requests,
            looks: LookBudget::new(),
            lifecycle: lifecycle.clone(),
        }
    }

    /// Serves one connection until it ends, or the lifecycle closes and what is under way has been
    /// answered.
    pub(super) async fn serve(&self, stream: TcpStream) {
        // An answer is one small write that nobody should wait for.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "cannot set TCP_NODELAY");
        }
        let state = Arc::new(ConnectionState::new(
            stream.peer_addr().ok(),
            self.timeouts.idle,
            self.long_requests.clone(),
            self.looks.clone(),
            &self.lifecycle,
        ));
        match &self.tls {
            None => {
                let socket = Socket::new(stream, Arc::clone(&state));
                self.serve_http1(socket, &state).await;
            }
            // In a box: a plain connection has no room for it, and there are many of those.
            Some(tls) => Box::pin(self.serve_tls(tls, stream, &state)).await,
        }
    }

    async fn serve_tls(&self, tls: &Tls, stream: TcpStream, state: &Arc<ConnectionState>) {
        let shaken = tokio::select! {
            shaken = tls.handshake(stream, state) => shaken,
            // Nothing was asked for.
            () = self.lifecycle.closed() => return,
        };
        let Some(stream) = shaken else { return };
        if stream.get_ref().1.alpn_protocol() == Some(HTTP_2) {
            self.serve_http2(stream, state).await;
        } else {
            self.serve_http1(stream, state).await;
        }
    }

    async fn serve_http1(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        state: &Arc<ConnectionState>,
    ) {
        state.read_heads();
        let service = service_fn(|request| self.handler.answer(request, state));
        let io = TokioIo::new(stream);
        let mut connection = self.http1.serve_connection(io, service);
        let leave = http1::Connection::graceful_shutdown;
        let ended = self.run(Pin::new(&mut connection), leave, state, false);
        if !matches!(ended.await, Some(Err(error)) if error.is_parse()) {
            return;
        }
        // hyper answers whatever is no HTTP/1.1, but for the preface of HTTP/2.
        let parts = connection.into_parts();
        if parts.read_buf.starts_with(HTTP_2_PREFACE) {
            refuse(parts.io.into_inner(), NO_HTTP_2).await;
        }
    }

    async fn serve_http2(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        state: &Arc<ConnectionState>,
    ) {
        let service =
            service_fn(|request: http::Request<Incoming>| self.handler.answer(request, state));
        let io = TokioIo::new(TrailingEnd::new(stream, Arc::clone(state)));
        let connection = pin!(self.http2.serve_connection(io, service));
        let leave = http2::Connection::graceful_shutdown;
        self.run(connection, leave, state, true).await;
    }

    /// Runs a connection until it ends, and returns how; `None` if its client was late. It is told to `leave` when it has been idle for too long or the
    /// lifecycle closes, and over HTTP/2 when the gateway is withdrawn; HTTP/1.1 says that in an answer.
    async fn run<C>(
        &self,
        mut connection: Pin<&mut C>,
        leave: impl Fn(Pin<&mut C>),
        state: &ConnectionState,
        is_http2: bool,
    ) -> Option<hyper::Result<()>>
    where
        C: Future<Output = hyper::Result<()>>,
    {
        let lifecycle = &self.lifecycle;
        let (mut closed, mut withdrawn) = (pin!(lifecycle.closed()), pin!(lifecycle.withdrawn()));
        let mut timer = pin!(sleep_until(state.opened + self.timeouts.idle));
        // A client that connects to a gateway that is about to stop has nowhere else to go.
        let leaves_when_withdrawn = is_http2 && !lifecycle.is_withdrawn();
        let (mut timeouts, mut is_leaving) = (self.timeouts, false);
        let mut woken_by: Option<Waker> = None;
        let mut look_at: Option<Instant> = None;
        let ended = poll_fn(|cx| {
            loop {
                state.begin_poll();
                if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                    return Poll::Ready(Some(ended));
                }
                // Once for each waker, and not in every turn: each takes a lock. What they tell is asked
                // of the lifecycle below.
                if !woken_by.as_ref().is_some_and(|it| it.will_wake(cx.waker())) {
                    let _ = closed.as_mut().poll(cx);
                    if leaves_when_withdrawn {
                        let _ = withdrawn.as_mut().poll(cx);
                    }
                    let _ = timer.as_mut().poll(cx);
                    woken_by = Some(cx.waker().clone());
                }
                let deadline = state.deadline(timeouts);
                let (mut wake_at, mut start_leaving) = (deadline, false);
                look_at = (!is_http2 && state.misses_end())
                    .then(|| look_at.unwrap_or_else(|| Instant::now() + LOOK_PERIOD));
                if let Some(at) = look_at {
                    if at <= Instant::now() {
                        look_at = None;
                        state.look_for_end();
                        continue;
                    }
                    wake_at = Some(wake_at.map_or(at, |it| it.min(at)));
                }
                let is_to_leave =
                    lifecycle.is_closing() || leaves_when_withdrawn && lifecycle.is_withdrawn();
                if is_to_leave && !is_leaving {
                    let fresh_until = state.opened + FRESH;
                    if is_http2 || state.has_received_request() || fresh_until <= Instant::now() {
                        start_leaving = true;
                    } else {
                        wake_at = Some(deadline.map_or(fresh_until, |it| it.min(fresh_until)));
                    }
                }
                // The timer is set anew when it is too late or has fired, and not for every request.
                if timer.is_elapsed() || wake_at.is_some_and(|at| at < timer.deadline()) {
                    let now = Instant::now();
                    if deadline.is_some_and(|at| at <= now) {
                        if is_leaving || state.has_begun_head() {
                            return Poll::Ready(None);
                        }
                        start_leaving = true;
                    } else {
                        let at = wake_at.unwrap_or(now + timeouts.idle);
                        timer.as_mut().reset(at);
                        if timer.as_mut().poll(cx).is_ready() {
                            continue;
                        }
                    }
                }
                if !start_leaving {
                    return Poll::Pending;
                }
                is_leaving = true;
                // It may take as long as a head to close.
                timeouts.idle = timeouts.head;
                if lifecycle.is_closing() {
                    timeouts.head = timeouts.head.min(CLOSING);
                }
                state.restart_idle_time();
                leave(connection.as_mut());
            }
        });
        let ended = ended.await;
        match &ended {
            Some(Ok(())) => {}
            Some(Err(error)) => debug!(%error, "a connection ended early"),
            None => debug!("a client kept its connection waiting for too long"),
        }
        ended
    }
}

// === impl Tls ===

impl Tls {
    /// Brings a connection to TLS; `None` if that is not to be. Nothing is done for a connection
    /// until then, so it can be dropped at any moment.
    async fn handshake(
        &self,
        stream: TcpStream,
        state: &Arc<ConnectionState>,
    ) -> Option<TlsStream<Socket>> {
        let peer = state.peer.map(|peer| peer.ip().to_canonical());
        match timeout(self.timeout, self.begin(stream, state)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                info!(?peer, %error, "a connection did not come to TLS");
                None
            }
            Err(_elapsed) => {
                info!(?peer, "a connection did not come to TLS in time");
                None
            }
        }
    }

    async fn begin(
        &self,
        stream: TcpStream,
        state: &Arc<ConnectionState>,
    ) -> io::Result<Option<TlsStream<Socket>>> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            debug!("a connection ended before it began");
            return Ok(None);
        }
        // So does a method; what begins in no way that is known is left to TLS to refuse.
        if first[0] != TLS && first[0].is_ascii_alphabetic() {
            refuse(stream, PLAIN_HTTP).await;
            return Ok(None);
        }
        let socket = Socket::new(stream, Arc::clone(state));
        let accepted = self.certificates.acceptor().accept(socket).into_fallible();
        match accepted.await {
            Ok(stream) => Ok(Some(stream)),
            Err((error, mut socket)) => {
                // A client of TLS 1.3 may have written a request by now: the alert says that nobody has read it.
                close(&mut socket).await;
                Err(error)
            }
        }
    }
}

// === impl Tasks ===

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, request: F) {
        self.0.spawn(request);
    }
}
