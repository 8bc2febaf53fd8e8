//! `GET /backup`: the embedded store as a file, while it is running.

use std::{
    convert::Infallible,
    io::{self, ErrorKind},
    sync::Arc,
};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{
    HeaderValue, Method,
    header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE},
};
use tracing::info;

use crate::{
    auth::{Permission, scope},
    config::StoreUrl,
    engine::BackupParts,
    http::{
        extract::{Caller, NoQuery, Provenance},
        problem::{Problem, ProblemCode as Code},
        state::AppState,
    },
    lock::NamePrefix,
};

/// What a backup is called where it is restored.
const FILE: HeaderValue =
    HeaderValue::from_static("attachment; filename=\"latchgate.00000001.log\"");

/// Back up the embedded store
///
/// Everything that the embedded store of this gateway holds in one instant, with all that was acknowledged before
/// the request, as the one file of a data directory: `latchgate.00000001.log`. One backup is made at a time; another request meanwhile is answered with 503.
/// `latchgate backup FILE` asks for it, checks it and writes it to a file.
///
/// The file holds names of locks, owners and metadata, and of tokens and idempotency keys only hashes. With API keys
/// this takes one with `view` and `break` on every lock.
#[utoipa::path(
    get,
    path = "/backup",
    operation_id = "getBackup",
    tag = "health",
    responses(
        (status = 200, description = "The file.", content((String = "application/octet-stream"))),
    )
)]
pub(in crate::http) async fn backup(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::AnyKey>,
    provenance: Provenance,
    method: Method,
    _: NoQuery,
) -> Result<Response, Problem> {
    let all = NamePrefix::default();
    let needed = [Permission::View, Permission::Break];
    if !needed
        .iter()
        .all(|&needed| caller.permits_all(needed, &all))
    {
        let detail = "The API key does not have both `view` and `break` on every lock.";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let kind = HeaderValue::from_static("application/octet-stream");
    let headers = [(CONTENT_TYPE, kind), (CONTENT_DISPOSITION, FILE)];
    if method == Method::HEAD && matches!(gateway.config.store, StoreUrl::Embedded(_)) {
        // Its length is not known without a copy.
        let unmeasured =
            Body::from_stream(futures_util::stream::empty::<Result<Bytes, Infallible>>());
        return Ok((headers, unmeasured).into_response());
    }
    let Some(made) = gateway.engine.backup().await else {
        return Err(Problem::new(
            Code::WrongStore,
            "The store of this gateway is Redis, which has backups of its own.",
        ));
    };
    let made = made?;
    let bytes = made.len;
    let requester = provenance.requester(&caller);
    // Also where no audit log is kept.
    let (key, id) = (requester.key, requester.request_id);
    info!(key, bytes, id, "backup");
    gateway.audit.backed_up(&requester, bytes).await;
    let length = [(CONTENT_LENGTH, HeaderValue::from(bytes))];
    Ok((headers, length, Body::from_stream(parts(made))).into_response())
}

/// The file in parts. It fails if that takes so long that the engine gives up.
fn parts(made: BackupParts) -> impl futures_util::Stream<Item = io::Result<Bytes>> {
    futures_util::stream::unfold(made, async |mut made| match made.parts.recv().await {
        Some(part) => {
            made.len -= part.len();
            Some((Ok(part), made))
        }
        None if made.len == 0 => None,
        None => {
            made.len = 0;
            Some((Err(ErrorKind::TimedOut.into()), made))
        }
    })
}
