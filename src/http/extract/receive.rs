//! Receiving a body, within its limits of size and time.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::{
    config::HttpConfig,
    http::problem::{Problem, ProblemCode},
};

/// How much of a body that is too large is read, and for how long, so that its sender hears why it
/// is refused: a connection that is closed on unread bytes is reset, and the answer lost with it.
const DISCARDED: (usize, Duration) = (1 << 20, Duration::from_secs(1));

/// The whole body. `waits` says that the client waits for `100 Continue` before it sends anything.
pub(super) async fn receive(
    mut body: Body,
    waits: bool,
    http: &HttpConfig,
) -> Result<Bytes, Problem> {
    let most = http.max_body_bytes;
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    if body.size_hint().lower() > u64::try_from(most).unwrap_or(u64::MAX) {
        if !waits {
            discard(&mut body).await;
        }
        return Err(too_large(most));
    }
    timeout(http.body_timeout_ms.duration(), collect(&mut body, most))
        .await
        .unwrap_or_else(|_elapsed| {
            Err(Problem::new(
                ProblemCode::RequestTimeout,
                format!(
                    "The body had not arrived after {} ms.",
                    http.body_timeout_ms.0
                ),
            ))
        })
}

async fn collect(body: &mut Body, most: usize) -> Result<Bytes, Problem> {
    // Nearly every body is one frame, which needs no copy.
    let mut whole = Bytes::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::invalid_field("body", "ended before it was complete")
                .caused_by(error.to_string())
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if whole.len() + data.len() > most {
            discard(body).await;
            return Err(too_large(most));
        }
        if whole.is_empty() {
            whole = data;
        } else {
            let mut joined = BytesMut::from(whole);
            joined.extend_from_slice(&data);
            whole = joined.freeze();
        }
    }
    Ok(whole)
}

async fn discard(body: &mut Body) {
    let (most, time) = DISCARDED;
    let reading = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await
            && read < most
        {
            read += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    // Whether all of it came makes no difference to the answer.
    let _ = timeout(time, reading).await;
}

fn too_large(most: usize) -> Problem {
    let detail = format!("The body is longer than {most} bytes.");
    Problem::new(ProblemCode::TooLarge, detail)
}
