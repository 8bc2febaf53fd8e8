//! A bare axum route with the gateway's answers: the ceiling of HTTP on this machine.
//!
//! The route reads the body, makes a token, hashes it and serializes a lease, as every acquire must. It has no store,
//! no layers, no limits and no log.

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::post,
    serve::ListenerExt,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The argument that starts this program as the bare route.
pub(super) const ROLE: &str = "bare-route";

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct AcquireBody {
    ttl_ms: Option<u64>,
    #[serde(rename = "wait_ms")]
    _wait_ms: Option<u64>,
}

#[derive(Serialize)]
struct LeaseBody<'a> {
    name: &'a str,
    token: &'a str,
    fencing_token: u64,
    ttl_ms: u64,
    expires_in_ms: u64,
    expires_at: &'static str,
    acquired_at: &'static str,
    renew_after_ms: u64,
    hold_expires_in_ms: Option<u64>,
    owner: Option<&'static str>,
    metadata: serde_json::Map<String, serde_json::Value>,
    waited_ms: u64,
}

/// The first number of requests and fencing tokens, so that both have the usual number of digits.
const FIRST: u64 = 1_795_369_477_730_331;
const INSTANT: &str = "2026-11-22T17:45:07.733Z";

/// Serves until it is killed, on as many threads as there are processors.
pub(super) fn serve() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    runtime.block_on(async {
        let router = Router::new()
            .route("/locks/{name}", post(acquire).delete(release))
            .with_state(Arc::new(AtomicU64::new(FIRST)));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("loopback has a free port");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        println!("listens on http://{address}");
        let listener = listener.tap_io(|stream| {
            stream
                .set_nodelay(true)
                .expect("a connected socket takes the option");
        });
        axum::serve(listener, router)
            .await
            .expect("axum accepts until the end");
    });
    ExitCode::SUCCESS
}

#[expect(
    clippy::disallowed_types,
    reason = "the ceiling is axum without what is ours"
)]
async fn acquire(
    State(count): State<Arc<AtomicU64>>,
    axum::extract::Path(name): axum::extract::Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if headers.contains_key("origin") {
        return StatusCode::FORBIDDEN.into_response();
    }
    let asked = if body.is_empty() {
        Ok(AcquireBody::default())
    } else {
        serde_json::from_slice(&body)
    };
    let Ok(asked) = asked else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let ttl_ms = asked.ttl_ms.unwrap_or(30_000);
    let mut random = [0; 32];
    getrandom::fill(&mut random).expect("the system has randomness");
    let token = URL_SAFE_NO_PAD.encode(random);
    std::hint::black_box(Sha256::digest(token.as_bytes()));
    let fence = count.fetch_add(1, Ordering::Relaxed);
    let lease = LeaseBody {
        name: &name,
        token: &token,
        fencing_token: fence,
        ttl_ms,
        expires_in_ms: ttl_ms,
        expires_at: INSTANT,
        acquired_at: INSTANT,
        renew_after_ms: ttl_ms / 3,
        hold_expires_in_ms: None,
        owner: None,
        metadata: serde_json::Map::new(),
        waited_ms: 0,
    };
    let json = serde_json::to_vec(&lease).expect("a lease is JSON");
    let location = HeaderValue::from_str(uri.path()).expect("a path is ASCII");
    let kind = [
        ("content-type", HeaderValue::from_static("application/json")),
        ("location", location),
    ];
    finished(fence, (StatusCode::CREATED, kind, json).into_response())
}

async fn release(State(count): State<Arc<AtomicU64>>, headers: HeaderMap) -> Response {
    let Some(token) = headers.get("lock-token") else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    std::hint::black_box(Sha256::digest(token.as_bytes()));
    let number = count.load(Ordering::Relaxed);
    finished(number, StatusCode::NO_CONTENT.into_response())
}

fn finished(number: u64, mut response: Response) -> Response {
    let id = format!("1c3ec5e689815560-{:x}", number - FIRST);
    let id = HeaderValue::from_str(&id).expect("an id is ASCII");
    let fixed = HeaderValue::from_static;
    let headers = response.headers_mut();
    headers.insert("x-request-id", id);
    headers.insert("x-content-type-options", fixed("nosniff"));
    let policy = HeaderName::from_static("cross-origin-resource-policy");
    headers.insert(policy, fixed("same-origin"));
    headers.insert("cache-control", fixed("no-store"));
    response
}
