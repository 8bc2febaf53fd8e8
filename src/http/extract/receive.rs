//! Receiving a body, within its limits of size and time.

use std::pin::Pin;

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::{
    config::HttpConfig,
    http::problem::{Problem, ProblemCode},
};

/// The whole body.
pub(super) async fn receive(mut body: Body, http: &HttpConfig) -> Result<Bytes, Problem> {
    let most = http.max_body_bytes;
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    if body.size_hint().lower() > u64::try_from(most).unwrap_or(u64::MAX) {
        return Err(too_large(most));
    }
    timeout(
        http.body_timeout_ms.duration(),
        collect(Pin::new(&mut body), most),
    )
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

async fn collect(mut body: Pin<&mut Body>, most: usize) -> Result<Bytes, Problem> {
    // Nearly every body is one frame, which needs no copy.
    let mut whole = Bytes::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::invalid_field("body", "ended before it was complete").caused_by(error)
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if whole.len() + data.len() > most {
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

fn too_large(most: usize) -> Problem {
    let detail = format!("The body is longer than {most} bytes.");
    Problem::new(ProblemCode::TooLarge, detail)
}
