//! `GET`, `POST` and `DELETE /session`: says what a caller may do, and signs pages in and out. A page sends
//! an API key once, and the browser keeps the session in a cookie that no script can read.

use std::{borrow::Cow, sync::Arc};

use axum::{
    extract::State,
    response::{AppendHeaders, IntoResponse, Response},
};
use http::{StatusCode, header::SET_COOKIE};
use serde::Serialize;
use utoipa::{
    ToSchema,
    openapi::{
        RefOr, Schema,
        schema::{ArrayBuilder, ObjectBuilder, Type},
    },
};

use crate::{
    auth::{Access, Permission, Permissions, Refusal, SignIn},
    clock::rfc3339,
    lock::Ttl,
};

use super::{
    edge::RequestContext,
    extract::{
        AcceptsJson, ApiJson, CookieJar, Field, Fields, Form, NoQuery, OptionalCaller, Provenance,
        RequestBody, SessionHolder, declare_fields,
    },
    json_response::JsonResponse,
    locks::millis,
    problem::Problem,
    state::AppState,
};

/// Who am I, and what may I do?
///
/// For pages, which show what a caller may do and hide what it may not. An unknown caller is answered 200
/// too: `signed_in` is false, and no permission is listed. A session that has ended counts as none.
#[utoipa::path(
    get,
    path = "/session",
    operation_id = "getSession",
    tag = "session",
    responses(
        (status = 200, body = SessionBody, description = "Who asks."),
    )
)]
pub(in crate::http) async fn show(
    State(gateway): State<Arc<AppState>>,
    caller: OptionalCaller,
    _: AcceptsJson,
    _: NoQuery,
) -> Result<JsonResponse<SessionBody>, Problem> {
    Ok(JsonResponse(SessionBody::new(&gateway, caller.0.as_ref())))
}

/// Detail of the problem of a text that is no API key.
const NOT_A_KEY: &str =
    "The text is no API key of this gateway. A key begins with `lgk_`, and has 64 characters.";

/// Sign in
///
/// For pages of the gateway itself, such as the dashboard: the page sends an API key once, and gets a cookie
/// for it that no script can read. From then on the cookie does what the header `Authorization` does, for
/// `auth.session_ttl_ms`, and not longer than the key and the secret that was sent exist. If a request has
/// both, the header counts.
///
/// The cookie is `latchgate-session`, over HTTPS `__Host-latchgate-session` (`__Secure-latchgate-session`
/// below a base path); it is `HttpOnly` and `SameSite=Strict`. It counts for requests of pages of the
/// gateway, as `Sec-Fetch-Site` or `Origin` say. Where a browser sends neither, a request that could change
/// something needs the header `X-Requested-With`, with any value.
///
/// A gateway without API keys admits every caller, and sets no cookie.
#[utoipa::path(
    post,
    path = "/session",
    operation_id = "signIn",
    tag = "session",
    request_body(content = SignInJson, description = "The key."),
    responses(
        (status = 200, body = SessionBody, description = "The name and permissions of the caller.",
         headers(("Set-Cookie", description = "The session, unless the gateway has no API keys."))),
    )
)]
pub(in crate::http) async fn sign_in(
    State(gateway): State<Arc<AppState>>,
    jar: CookieJar,
    provenance: Provenance,
    context: RequestContext,
    _: AcceptsJson,
    _: NoQuery,
    ApiJson(SignInBody { key }): ApiJson<SignInBody>,
) -> Result<Response, Problem> {
    let access = gateway.gate.admit(Some(&key), provenance.remote);
    let access = access.and_then(|access| {
        // A browser's session belongs to a secret of a key, which an exchanged key does not have.
        if access.is_exchanged() {
            Err(Refusal::NotAKey)
        } else {
            Ok(access)
        }
    });
    let access = access.map_err(|refusal| {
        let mut problem = Problem::from(refusal);
        if refusal == Refusal::NotAKey {
            problem.detail = NOT_A_KEY.into();
        }
        problem
    })?;
    context.set_caller(&access);
    access.count_request()?;
    let Some((access, session)) = gateway.gate.begin_session(access) else {
        let body = SessionBody::new(&gateway, Some(&Access::ANYBODY));
        return Ok(JsonResponse(body).into_response());
    };
    gateway
        .audit
        .signed_in(&provenance.requester(access.name()), None);
    // The gateway keeps nothing of the session, so a caller that has hung up has none.
    let ttl = gateway.config.auth.session_ttl_ms.duration();
    let cookies = jar.keep(&session, ttl).into_iter();
    let cookies: Vec<_> = cookies.map(|cookie| (SET_COOKIE, cookie)).collect();
    let body = SessionBody::new(&gateway, Some(&access));
    Ok((AppendHeaders(cookies), JsonResponse(body)).into_response())
}

/// Sign out
///
/// Makes the browser forget its session. The gateway has nothing to forget: a copy of the cookie, if there is
/// one, counts until the session ends. To end copies too, take the secret out of its key, or set `sessions_after`
/// of the key.
///
/// Signing out is not charged to the key, so that a session can be ended even if other callers have used up
/// the key's rate.
#[utoipa::path(
    delete,
    path = "/session",
    operation_id = "signOut",
    tag = "session",
    responses(
        (status = 204, description = "The session is closed, or there was none.",
         headers(("Set-Cookie", description = "Deletes the cookie."))),
    )
)]
pub(in crate::http) async fn sign_out(
    State(gateway): State<Arc<AppState>>,
    jar: CookieJar,
    SessionHolder(holder): SessionHolder,
    context: RequestContext,
    provenance: Provenance,
    _: NoQuery,
) -> Result<Response, Problem> {
    if let Some(access) = holder.filter(Access::is_session) {
        context.set_caller(&access);
        gateway
            .audit
            .signed_out(&provenance.requester(access.name()));
    }
    let cookies: Vec<_> = jar.forget().map(|cookie| (SET_COOKIE, cookie)).collect();
    Ok((StatusCode::NO_CONTENT, AppendHeaders(cookies)).into_response())
}

/// The caller of a request, and what it may do.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = Session, example = json!({
    "authentication": true,
    "signed_in": true,
    "name": "ops",
    "caller": "ops",
    "permissions": {"acquire": ["deploy:"], "view": ["*"], "break": ["deploy:"], "reserve": [],
        "check": [], "metrics": true},
    "max_ttl_ms": null,
    "expires_in_ms": 43_200_000,
    "expires_at": "2026-11-21T20:00:00.000Z",
    "sign_in": {"issuer": "entra", "key_form": true},
    "sign_out": null,
}))]
pub(in crate::http) struct SessionBody {
    /// Whether the gateway has API keys. If it has none, every caller may do everything.
    authentication: bool,
    /// Whether the caller is known: by a session, or by an API key in the request.
    signed_in: bool,
    /// The name of the API key, with the person or program that an issuer has named; null if the caller is not known.
    #[schema(required = true)]
    name: Option<String>,
    /// The caller, for the header `Signed-In-As`: no other caller has the same. Null if the caller is not known.
    #[schema(required = true)]
    caller: Option<String>,
    /// What the caller may do now.
    permissions: PermissionsBody,
    /// The longest TTL that the key may ask for; null if the key has no limit of its own.
    #[schema(required = true)]
    max_ttl_ms: Option<u64>,
    /// Time left of the session or the key, whichever ends first. Null if there is no end.
    #[schema(required = true)]
    expires_in_ms: Option<u64>,
    /// When the session or the key ends, by the clock of the gateway.
    #[schema(format = DateTime, required = true)]
    expires_at: Option<String>,
    /// How people sign in at an issuer (`GET /sign-in`); null if they cannot.
    #[schema(required = true)]
    sign_in: Option<IssuerBody>,
    /// The address at which the person signs out at the issuer, too; null for other callers, and if there is none.
    #[schema(required = true)]
    sign_out: Option<String>,
}

/// The issuer at which people sign in.
#[derive(Serialize, ToSchema)]
#[schema(as = SignInIssuer)]
struct IssuerBody {
    /// The name of the issuer.
    issuer: String,
    /// Whether the page offers to sign in with an API key, too.
    key_form: bool,
}

/// What a caller may do.
#[derive(Default, Serialize)]
struct PermissionsBody(Permissions);

// === impl SessionBody ===

impl SessionBody {
    /// Body for a caller, or for an unknown one.
    fn new(gateway: &AppState, access: Option<&Access>) -> Self {
        let now = gateway.clock.wall();
        let Some(access) = access else {
            return Self {
                authentication: true,
                sign_in: gateway.gate.sign_in().map(|it| IssuerBody::new(&it)),
                ..Self::default()
            };
        };
        let Some(key) = access.key() else {
            return Self {
                permissions: PermissionsBody(Permissions::all()),
                ..Self::default()
            };
        };
        let ends_at = access.ends_at();
        let left = ends_at.map(|end| end.duration_since(now).unwrap_or_default());
        Self {
            signed_in: true,
            name: access.name().map(ToString::to_string),
            caller: access.mark().map(ToString::to_string),
            permissions: PermissionsBody(key.permissions.clone()),
            max_ttl_ms: access.max_ttl().map(Ttl::as_millis),
            expires_in_ms: left.map(millis),
            expires_at: ends_at.map(|end| rfc3339(Some(end)).to_string()),
            sign_out: gateway.gate.sign_out_address(access),
            ..Self::new(gateway, None)
        }
    }
}

// === impl IssuerBody ===

impl IssuerBody {
    fn new(sign_in: &SignIn) -> Self {
        Self {
            issuer: sign_in.issuer.to_string(),
            key_form: sign_in.has_key_form,
        }
    }
}

// === impl PermissionsBody ===

impl utoipa::PartialSchema for PermissionsBody {
    fn schema() -> RefOr<Schema> {
        let object = ObjectBuilder::new().description(Some(
            "The permissions, each as a list of beginnings of lock names; `*` permits every name, \
             and an empty list none.",
        ));
        let add = |object: ObjectBuilder, permission: Permission| {
            let row = permission.row();
            let schema = if row.is_per_name {
                let text = Some(format!("The names that the key may {}.", row.allows));
                let texts = ArrayBuilder::new()
                    .items(String::schema())
                    .description(text);
                Schema::from(texts)
            } else {
                let text = Some(format!("Whether the key may {}.", row.allows));
                let flag = ObjectBuilder::new()
                    .schema_type(Type::Boolean)
                    .description(text);
                Schema::from(flag)
            };
            object.property(row.name, schema).required(row.name)
        };
        let object = Permission::ALL.into_iter().fold(object, add);
        RefOr::T(object.into())
    }
}

impl ToSchema for PermissionsBody {
    fn name() -> Cow<'static, str> {
        "Permissions".into()
    }
}

/// Body of a request to sign in. It has no `Debug`, so that the key cannot be printed.
pub(in crate::http) struct SignInBody {
    /// The API key with which the caller wants to sign in.
    pub(super) key: Box<str>,
}

/// Body of a request to sign in, in the OpenAPI document.
pub(in crate::http) type SignInJson = ApiJson<SignInBody>;

/// Characters of the longest text that is checked as an API key: no key is longer.
const MAX_KEY_CHARS: usize = 200;

declare_fields! {
    /// The API key to sign in with.
    const SIGN_IN: "SignIn" => Form::TEXT;
    /// The API key.
    const KEY: "key" => Form::text(0, MAX_KEY_CHARS, "[!-~]").required().example("lgk_..");
}

// === impl SignInBody ===

impl RequestBody for SignInBody {
    const ABOUT: Field = SIGN_IN;

    fn read(fields: &mut Fields<'_>) -> Self {
        let text = fields.text(&KEY).unwrap_or_default();
        if !text.bytes().any(|byte| byte.is_ascii_graphic()) {
            fields.refuse(&KEY, "is needed: the API key");
        } else if text.chars().count() > MAX_KEY_CHARS {
            fields.refuse(&KEY, "is longer than any API key");
        }
        // A pasted key often has a space or a line break at its end.
        let key = text.trim().into();
        Self { key }
    }
}
