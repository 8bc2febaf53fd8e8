//! HTTP/2 on one connection, which is always encrypted.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{Router, response::Response};
use http::Method;
use hyper::{body::Incoming, rt::Executor, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
};
use tower::Service;
use tracing::{debug, info};

use crate::{config::HttpConfig, lifecycle::Lifecycle};

use super::{
    arriving::Arriving,
    asking::Asking,
    carried::{carried, ends_lease},
    carrier::CarryingRoom,
    connection::Opened,
    connections::Place,
    late_end::{LateEnd, Turns},
    pace::Burden,
    paced::Patience,
    refusal::{MAX_HEADERS, Refusals},
    silence_limit::SilenceLimit,
    stream_body::StreamBody,
    streams::{Over, Stream, Streams},
};

/// How HTTP/2 is spoken.
pub(super) struct Http2 {
    max_streams: u32,
    /// How long the headers of a request may be, as HTTP/2 counts.
    max_head: u32,
    patience: Patience,
    refusals: Arc<Refusals>,
    /// Room for requests, on all connections together.
    room: Arc<Semaphore>,
    carrying: CarryingRoom,
    lifecycle: Lifecycle,
}

/// Runs the requests of one connection as work of the gateway, and ends those that are to end.
#[derive(Clone)]
struct Tasks {
    lifecycle: Lifecycle,
    streams: Arc<Streams>,
}

/// How long a client may be gone without a word until it is asked for a sign of life, and how long
/// that may take: it takes no more than a minute to know that a waiter is gone. A healthy client
/// answers by itself, without its program.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);
/// How much of a body, and of all bodies on a connection, may come before it is read: as much as one
/// frame of most, and no more than a few of them.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// The most of an answer that waits for its client in our memory.
const SEND_BUFFER: usize = 32 * 1024;
/// What a header costs beside its bytes, as HTTP/2 counts.
const HEADER_COST: usize = 32;

// === impl Http2 ===

impl Http2 {
    /// `most` requests may be open on all connections together.
    pub(super) fn new(
        config: &HttpConfig,
        patience: Patience,
        refusals: Arc<Refusals>,
        carrying: CarryingRoom,
        most: usize,
        lifecycle: &Lifecycle,
    ) -> Self {
        // Twice what is answered with a problem, so that this answers.
        let head = 2 * (config.max_uri_bytes + config.max_header_bytes) + MAX_HEADERS * HEADER_COST;
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            max_streams: number(config.max_streams),
            max_head: number(head),
            patience,
            refusals,
            room: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            carrying,
            lifecycle: lifecycle.clone(),
        }
    }

    /// How it is spoken on one connection.
    fn builder(&self, streams: &Arc<Streams>) -> http2::Builder<Tasks> {
        let mut http = http2::Builder::new(Tasks {
            lifecycle: self.lifecycle.clone(),
            streams: Arc::clone(streams),
        });
        http.timer(TokioTimer::new())
            .max_concurrent_streams(self.max_streams)
            .max_header_list_size(self.max_head)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(SIGN_OF_LIFE)
            .keep_alive_timeout(SIGN_OF_LIFE);
        http
    }

    /// Serves one connection until it ends, or until it is to make room or `closed`, and all requests
    /// under way have been answered.
    pub(super) async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        opened: Opened,
        router: Router,
        seat: &Place,
        closed: impl Future<Output = ()>,
    ) {
        let streams = Streams::new();
        seat.pace.has_streams(Arc::clone(&streams));
        // A sign of life cannot be asked for where nothing is taken: then the kernel gives up.
        opened.silence_limit.set(2 * SIGN_OF_LIFE);
        let (refusals, room) = (Arc::clone(&self.refusals), Arc::clone(&self.room));
        let (asked, carrier) = (Arc::clone(&streams), self.carrying.of_connection());
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            let permit = Arc::clone(&room).try_acquire_owned().ok();
            let refusal = if request.headers().len() > MAX_HEADERS {
                Some(refusals.too_many_headers())
            } else if permit.is_none() && !keeps(&request) {
                Some(refusals.no_stream())
            } else {
                None
            };
            let stream = asked.begin(permit);
            let limit = SilenceLimit::of_request(Arc::clone(&asked), stream.number);
            opened.tell(&mut request, limit);
            let ends_lease = ends_lease(&request);
            let answer = answer(request, refusal, stream, router.clone());
            carried(answer, ends_lease, &carrier)
        });
        let turns = Turns::default();
        let stream = LateEnd::new(stream, turns.clone());
        let io = TokioIo::new(Asking::new(stream, Arc::clone(&streams)));
        let connection = self.builder(&streams).serve_connection(io, service);
        let mut connection = std::pin::pin!(connection);
        let mut closed = std::pin::pin!(closed);
        let mut withdrawn = std::pin::pin!(self.lifecycle.withdrawn());
        // Whoever connects to a gateway that is about to stop has nowhere else to go.
        let mut stays = self.lifecycle.is_withdrawn();
        // Whether it is to end when all has been answered.
        let mut leaving = false;
        let ended = loop {
            let idle = if leaving {
                self.patience.head
            } else {
                self.patience.idle
            };
            tokio::select! {
                biased;
                ended = turns.run(connection.as_mut()) => break ended,
                () = seat.needed(), if !leaving => {
                    if seat.pace.burden() != Burden::Needed {
                        return;
                    }
                }
                () = &mut closed, if !leaving => {}
                // The next request goes over a new connection then, and perhaps elsewhere.
                () = &mut withdrawn, if !leaving && !stays => {
                    if streams.burden() == Burden::Never {
                        stays = true;
                        continue;
                    }
                }
                over = streams.over(idle, self.patience.idle) => match over {
                    // It was told and does not close, or has never said a word.
                    Over::Idle if leaving || streams.burden() == Burden::Never => return,
                    Over::Idle => {}
                    Over::Abandoned => {
                        info!("a client gives up one request after the other; its connection takes no more");
                    }
                },
            }
            leaving = true;
            streams.leave();
            connection.as_mut().graceful_shutdown();
        };
        if let Err(error) = ended {
            debug!(%error, "a connection ended early");
        }
    }
}

/// Answers one request. Dropped when its client resets it, or the connection ends.
async fn answer(
    request: http::Request<Incoming>,
    refusal: Option<Response>,
    stream: Arc<Stream>,
    mut router: Router,
) -> Result<http::Response<StreamBody>, Infallible> {
    let request = request.map(|body| Arriving::watch(body, &stream));
    let answer = match refusal {
        Some(refusal) => refusal,
        None => router.call(request).await?,
    };
    Ok(answer.map(|body| StreamBody::new(body, stream)))
}

/// Whether a request keeps a lease that somebody has, or ends it: for such there is always room, as
/// far as can be seen before its route is known.
fn keeps(request: &http::Request<Incoming>) -> bool {
    *request.method() == Method::PUT || ends_lease(request)
}

// === impl Tasks ===

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    /// hyper comes with a request as soon as the service has begun it, and stops asking for its answer
    /// while there is no room for more of it. So it is here that a request is ended: dropped, its stream
    /// is reset, and the connection goes on.
    fn execute(&self, request: F) {
        let end = self.streams.take_begun();
        // In a box: moved into the task it would have its room twice.
        let mut request = Box::pin(request);
        self.lifecycle.spawn(async move {
            tokio::select! {
                biased;
                () = &mut request => {}
                () = end.notified() => {
                    info!("a client takes nothing of an answer, or is silent; the request was ended");
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::duplex, time::timeout};

    use crate::{http::serve::connections::Connections, telemetry::metrics::Metrics};

    use super::*;

    #[tokio::test]
    async fn a_client_that_takes_nothing_at_all_has_as_long_as_one_that_answers_no_ping() {
        let config = HttpConfig::default();
        let patience = Patience {
            idle: Duration::from_secs(75),
            head: Duration::from_secs(10),
        };
        let refusals = Arc::new(Refusals::new(&config));
        let lifecycle = Lifecycle::new();
        let carrying = CarryingRoom::new(1, Metrics::default(), &lifecycle);
        let http = Http2::new(&config, patience, refusals, carrying, 1, &lifecycle);
        let (seat, (ours, _theirs)) = (Connections::new(1).admit().unwrap(), duplex(1_024));
        let opened = Opened::unknown();
        let limit = opened.silence_limit.clone();
        let serving = http.serve(ours, opened, Router::new(), &seat, std::future::pending());
        let served = timeout(Duration::ZERO, serving).await;
        assert!(served.is_err());
        assert_eq!(limit.as_millis(), 60_000);
    }
}
