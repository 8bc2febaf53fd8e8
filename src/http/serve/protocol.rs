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
    request_handler::RequestHandler,
    socket::{Socket, TrailingEnd, close, refuse},
};

/// Settings and shared state for serving connections.
pub(super) struct Protocol {
    tls: Option<Tls>,
    http1: http1::Builder,
    http2: http2::Builder<Tasks>,
    timeouts: Timeouts,
    handler: RequestHandler,
    long_requests: LongRequests,
    lifecycle: Lifecycle,
}

/// Settings for the TLS handshake.
struct Tls {
    certificates: Certificates,
    /// Longest time for a handshake.
    timeout: Duration,
}

/// Executor that runs each request of an HTTP/2 connection as a task of the gateway.
#[derive(Clone)]
struct Tasks(Lifecycle);

/// The largest head that HTTP/1.1 buffers, unless the configured limits need more. This size is well above
/// the limits beyond which a head is answered with a problem document.
const HEAD_BUFFER: usize = 128 * 1024;
/// Time within which a client that has just connected sends its request. A gateway that closes waits for that
/// request: without the wait, the client could not tell whether the request was received.
const FRESH: Duration = Duration::from_millis(250);

/// How long the head of a request may take, from its first byte, when the gateway closes.
const CLOSING: Duration = Duration::from_secs(3);

/// How often the kernel is asked whether the caller of an HTTP/1.1 request has hung up, while hyper would not
/// notice.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// Time between two pings to an HTTP/2 client. With `PING_TIMEOUT` it takes ten seconds until it is known
/// that a waiter, or the holder of a stream, is gone. The HTTP library of a healthy client answers without
/// its program.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// How long a client may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How many bytes of one HTTP/2 body may arrive before the gateway reads them.
const STREAM_WINDOW: u32 = 64 * 1024;
/// How many bytes of all HTTP/2 bodies on a connection may arrive before the gateway reads them: a few
/// bodies.
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// How many bytes of an HTTP/2 answer wait in the gateway's memory for a client to take them.
const SEND_BUFFER: usize = 32 * 1024;

/// The first bytes of a client that speaks HTTP/2 without having negotiated it.
const HTTP_2_PREFACE: &[u8] = b"PRI * HTTP/2.0";
const NO_HTTP_2: &str =
    "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// The first byte of every TLS connection: the record type of a handshake.
const TLS: u8 = 22;
/// The answer to a client that speaks plain HTTP to a gateway that speaks TLS.
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
        // Twice the limits beyond which a head is answered with a problem document, so that hyper does not
        // refuse the head first.
        let head = 2 * (config.max_uri_bytes + config.max_header_bytes);
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let mut http1 = http1::Builder::new();
        // The time-out of hyper would set a timer for each request, and count idle time too.
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
            lifecycle: lifecycle.clone(),
        }
    }

    /// Serves one connection until it ends, or until the lifecycle closes and the requests under way have
    /// been answered.
    pub(super) async fn serve(&self, stream: TcpStream) {
        // An answer is one small write. Without `TCP_NODELAY`, the kernel may delay the answer.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "cannot set TCP_NODELAY");
        }
        let state = Arc::new(ConnectionState::new(
            stream.peer_addr().ok(),
            self.timeouts.idle,
            self.long_requests.clone(),
            &self.lifecycle,
        ));
        match &self.tls {
            None => {
                let socket = Socket::new(stream, Arc::clone(&state));
                self.serve_http1(socket, &state).await;
            }
            // Boxed, so that the future of a plain connection has no room for TLS: there are many plain
            // connections.
            Some(tls) => Box::pin(self.serve_tls(tls, stream, &state)).await,
        }
    }

    async fn serve_tls(&self, tls: &Tls, stream: TcpStream, state: &Arc<ConnectionState>) {
        let shaken = tokio::select! {
            shaken = tls.handshake(stream, state) => shaken,
            // A connection whose handshake is not complete has sent no request.
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
        // Only the preface of HTTP/2 is answered here: hyper itself refuses any other request that is not
        // HTTP/1.1.
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

    /// Runs a connection until it ends, and returns how; `None` if its client was late. The connection is
    /// told to `leave` when it has been idle for too long or the lifecycle closes, and over HTTP/2 also when
    /// the gateway is withdrawn. Over HTTP/1.1 the header of an answer tells the client of the withdrawal.
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
        // A client that connects after the withdrawal has no other gateway to go to, so it is not sent away.
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
                // The futures of the lifecycle's steps are polled once for each waker, and not in every turn,
                // because each poll takes a lock. Their outcome is read from the lifecycle below.
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
                // The timer is set again only when it would fire too late or has fired, and not for every
                // request.
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
                // From now on the idle connection has as much time to close as a request's head may take.
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
    /// Performs the TLS handshake of a connection; `None` if it fails. The connection can be dropped at any
    /// moment before, because no request has been received.
    async fn handshake(
        &self,
        stream: TcpStream,
        state: &Arc<ConnectionState>,
    ) -> Option<TlsStream<Socket>> {
        let peer = state.peer.map(|peer| peer.ip().to_canonical());
        match timeout(self.timeout, self.begin(stream, state)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                info!(?peer, %error, "a connection did not complete its TLS handshake");
                None
            }
            Err(_elapsed) => {
                info!(
                    ?peer,
                    "a connection did not complete its TLS handshake in time"
                );
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
        // A method begins with a letter, so this is plain HTTP. Any other first byte is left to TLS to
        // refuse.
        if first[0] != TLS && first[0].is_ascii_alphabetic() {
            refuse(stream, PLAIN_HTTP).await;
            return Ok(None);
        }
        let socket = Socket::new(stream, Arc::clone(state));
        let accepted = self.certificates.acceptor().accept(socket).into_fallible();
        match accepted.await {
            Ok(stream) => Ok(Some(stream)),
            Err((error, mut socket)) => {
                // Without this wait, the client's unread bytes would make the kernel reset the connection,
                // and the TLS alert would be lost. The alert tells a client of TLS 1.3, which may have
                // written a request already, that the gateway has not read the request.
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
