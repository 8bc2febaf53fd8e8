//! An operation of the service: a method of a path, its handler, and what the edge has to know of it.

use std::{pin::Pin, sync::Arc};

use axum::{extract::Request, handler::Handler, response::Response};
use http::{HeaderMap, HeaderName, Method};
use utoipa::{
    __dev::{SchemaReferences, Tags},
    Path,
    openapi::{HttpMethod, RefOr, Schema, path::Operation as Description},
};

use crate::http::{problem::ProblemCode, state::AppState};

/// An operation: a row of the table of routes.
pub(in crate::http) struct Operation {
    /// The path as the documentation has it, without the base path.
    pub(in crate::http) path: String,
    pub(super) method: Method,
    pub(super) class: Class,
    /// Whether the answers may be kept on their way. They must not be if they are those of one caller.
    pub(super) is_public: bool,
    /// Whether the described body may be left out.
    pub(in crate::http) body_is_optional: bool,
    /// The problems that the operation answers besides those of the edge, in groups.
    pub(in crate::http) problems: &'static [&'static [ProblemCode]],
    /// What the OpenAPI document says of the operation. `None`: it does not list the operation.
    pub(in crate::http) describe: Option<fn(&mut Schemas) -> Described>,
    handle: Box<dyn Fn(Request, Arc<AppState>) -> Handled + Send + Sync>,
}

/// How the requests of an operation are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Class {
    /// Requests that take a permit of the common limit.
    Ordinary,
    /// Health checks. They need no permit, may name any host, and are part of no trace.
    Probes,
    /// Requests for metrics, for which an overloaded gateway keeps permits. They are part of no trace.
    Scrapes,
    /// Renewals of leases. They have a limit of their own beside the common one.
    Renews,
    /// Releases of leases. They are carried out even if their callers hang up.
    Releases,
    /// Event streams, each of which keeps a connection. Pages of other origins must not open them.
    Listens,
    /// Hold requests. With a token in the header they adopt a lease and count as renewals; without one they are ordinary.
    Holds,
}

/// The schemas that the OpenAPI document defines, by their names.
pub(in crate::http) type Schemas = Vec<(String, RefOr<Schema>)>;

/// What the OpenAPI document says of an operation alone, and under which method.
pub(in crate::http) type Described = (Vec<HttpMethod>, Description);

/// A request on its way through its handler.
pub(super) type Handled = Pin<Box<dyn Future<Output = Response> + Send>>;

const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");

/// An operation by its handler and `P`, which describes the handler: its attribute `utoipa::path` has made it.
pub(in crate::http) fn row<P, H, T>(
    _: P,
    handler: H,
    problems: &'static [&'static [ProblemCode]],
) -> Operation
where
    P: Path + SchemaReferences + Tags<'static>,
    H: Handler<T, Arc<AppState>, Future = Handled> + Sync,
{
    let method = match P::methods()[..] {
        [HttpMethod::Post] => Method::POST,
        [HttpMethod::Put] => Method::PUT,
        [HttpMethod::Delete] => Method::DELETE,
        [HttpMethod::Get] => Method::GET,
        _ => unreachable!("no handler has another method, or two"),
    };
    let needs_key = problems.concat().contains(&ProblemCode::Unauthorized);
    Operation {
        is_public: method == Method::GET && !needs_key,
        method,
        problems,
        describe: Some(describe::<P>),
        ..Operation::of_file(&P::path(), handler)
    }
}

// === impl Operation ===

impl Operation {
    /// `GET` of files that the OpenAPI document does not list.
    pub(in crate::http) fn of_file<H, T>(path: &str, handler: H) -> Self
    where
        H: Handler<T, Arc<AppState>, Future = Handled> + Sync,
    {
        Self {
            path: path.to_owned(),
            method: Method::GET,
            class: Class::Ordinary,
            is_public: true,
            body_is_optional: false,
            problems: &[],
            describe: None,
            handle: Box::new(move |request, gateway| handler.clone().call(request, gateway)),
        }
    }

    /// The same operation with another class.
    pub(in crate::http) fn class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// The same operation, with a body that may be left out.
    pub(in crate::http) fn optional_body(self) -> Self {
        Self {
            body_is_optional: true,
            ..self
        }
    }

    pub(super) fn handle(&self, request: Request, gateway: Arc<AppState>) -> Handled {
        (self.handle)(request, gateway)
    }

    /// Whether the operation takes a method. Where `GET` is taken, `HEAD` is too.
    pub(super) fn takes(&self, method: &Method) -> bool {
        self.method == method || self.method == Method::GET && method == Method::HEAD
    }

    /// Whether the operation asks how the gateway is.
    pub(in crate::http) fn is_probe(&self) -> bool {
        self.class == Class::Probes
    }
}

// === impl Class ===

impl Class {
    /// How a request is treated: one for another method of its path is ordinary, and a preflight needs no room.
    /// Refused, the browser would not send the renewal that comes after it, and which has room.
    pub(super) fn of(operation: Option<&Operation>, method: &Method, headers: &HeaderMap) -> Self {
        match operation.map(|operation| operation.class) {
            None if method == Method::OPTIONS => Self::Probes,
            Some(Self::Holds) if headers.contains_key(LOCK_TOKEN) => Self::Renews,
            class => class.unwrap_or(Self::Ordinary),
        }
    }
}

fn describe<P: Path + SchemaReferences + Tags<'static>>(schemas: &mut Schemas) -> Described {
    P::schemas(schemas);
    let mut description = P::operation();
    let tags = P::tags().into_iter().map(str::to_owned);
    description.tags.get_or_insert_default().extend(tags);
    (P::methods(), description)
}
