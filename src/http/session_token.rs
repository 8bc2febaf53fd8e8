//! `POST /session/token`: a program exchanges an ID token for a key, so that it needs no secret that lasts.

use std::{convert::Infallible, sync::Arc};

use axum::extract::{FromRequestParts, State};
use http::{StatusCode, header::AUTHORIZATION, request::Parts};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    edge::RequestContext,
    extract::{
        AcceptsJson, ApiJson, Field, Fields, Form, NoQuery, Provenance, RequestBody, bearer,
        declare_fields, single,
    },
    json_response::JsonResponse,
    locks::millis,
    problem::Problem,
    state::AppState,
};

/// The text behind `Bearer` in the header `Authorization`, if the request has one.
pub(in crate::http) struct BearerText(Option<Box<str>>);

impl<S: Sync> FromRequestParts<S> for BearerText {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let header = single(&parts.headers, &AUTHORIZATION).ok().flatten();
        Ok(Self(header.map(|header| bearer(header).into())))
    }
}

/// Exchange an ID token for a key
///
/// For programs that have a token of an issuer by OpenID Connect, as jobs of CI systems and pods of Kubernetes have: the
/// gateway verifies the token, and answers a key with the permissions of the API key whose claims the token has. Send the
/// key as `Authorization: Bearer KEY`, like any API key. The token is needed only once: it may expire while the job works.
///
/// Of several API keys that match, the first in the keys file counts, or the one with this `name`. The token is in the
/// body, because all headers together have 16 KiB; without `id_token`, the text in `Authorization: Bearer` counts.
///
/// After `expires_in_ms` the key acquires nothing any more. Leases can be renewed with it until a day after the exchange, and
/// released. Two programs with different subjects are different callers, although one API key admits both.
///
/// The answer 401 has a class in its detail: `malformed`, `signature`, `time`, or `no key matches`.
#[utoipa::path(
    post,
    path = "/session/token",
    operation_id = "exchangeToken",
    tag = "session",
    request_body(content = ExchangeJson, description = "The ID token."),
    responses((status = 201, body = ExchangedBody, description = "The key.")),
    security(())
)]
pub(in crate::http) async fn exchange(
    State(gateway): State<Arc<AppState>>,
    BearerText(bearer): BearerText,
    (provenance, context): (Provenance, RequestContext),
    _: AcceptsJson,
    _: NoQuery,
    ApiJson(ExchangeBody { id_token, name }): ApiJson<ExchangeBody>,
) -> Result<(StatusCode, JsonResponse<ExchangedBody>), Problem> {
    // A proxy may add a header of its own: the body is what the program means.
    let token = id_token.or(bearer).unwrap_or_default();
    let exchanged = gateway
        .gate
        .exchange(&token, name.as_deref(), provenance.remote)
        .await?;
    context.set_caller(&exchanged.access);
    exchanged.access.count_request()?;
    let requester = provenance.requester(exchanged.access.name());
    gateway
        .audit
        .exchanged(&requester, &exchanged.issuer, &exchanged.subject);
    // The gateway keeps nothing of the key, so a caller that has hung up has none.
    let body = ExchangedBody {
        key: exchanged.key.expose().to_owned(),
        expires_in_ms: millis(exchanged.lives),
        name: exchanged.name.to_string(),
    };
    Ok((StatusCode::CREATED, JsonResponse(body)))
}

/// A key for which an ID token was exchanged.
#[derive(Serialize, ToSchema)]
#[schema(as = ExchangedKey, example = json!({"key": "lgx_..", "expires_in_ms": 3_600_000, "name": "ci-web"}))]
pub(in crate::http) struct ExchangedBody {
    /// The key, to be sent in `Authorization: Bearer KEY`. It is as secret as an API key.
    key: String,
    /// How long the key lives.
    expires_in_ms: u64,
    /// The name of the API key that the token matches.
    name: String,
}

/// Body of a request to exchange an ID token. It has no `Debug`, so that the token cannot be printed.
pub(in crate::http) struct ExchangeBody {
    id_token: Option<Box<str>>,
    name: Option<Box<str>>,
}

/// Body of a request to exchange an ID token, in the OpenAPI document.
pub(in crate::http) type ExchangeJson = ApiJson<ExchangeBody>;

/// The longest ID token, in characters.
const MAX_TOKEN: usize = crate::auth::IdToken::MAX_LEN;
/// The longest name of an API key, in characters.
const MAX_NAME: usize = 64;

declare_fields! {
    /// The ID token to exchange.
    const EXCHANGE: "ExchangeToken" => Form::TEXT;
    /// The ID token. Left out: the text in `Authorization: Bearer` counts.
    const ID_TOKEN: "id_token" => Form::text(0, MAX_TOKEN, "[!-~]").example("eyJ..");
    /// The name of the API key that is wanted. Left out: the first that matches.
    const NAME: "name" => Form::text(0, MAX_NAME, "[!-~]").example("ci-web");
}

// === impl ExchangeBody ===

impl RequestBody for ExchangeBody {
    const ABOUT: Field = EXCHANGE;

    fn read(fields: &mut Fields<'_>) -> Self {
        // A token that was read from a file often has a line break at its end.
        let mut text = |field| fields.text(field).map(|text| text.trim().into());
        Self {
            id_token: text(&ID_TOKEN),
            name: text(&NAME),
        }
    }
}
