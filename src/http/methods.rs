//! What a path answers to methods that it does not take, and to `OPTIONS`.

use axum::{
    response::{IntoResponse, Response},
    routing::MethodRouter,
};
use http::{HeaderValue, Method, StatusCode, header::ALLOW};
use utoipa::openapi::path::PathItem;
use utoipa_axum::router::UtoipaMethodRouter;

use super::problem::{Extra, Problem, ProblemCode};

/// Lets the path of some routes answer `OPTIONS`, and refuse other methods with what it takes.
pub(super) fn complete<S>(routes: UtoipaMethodRouter<S>) -> UtoipaMethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    let (schemas, paths, handlers) = routes;
    let allow = paths.paths.values().flat_map(methods).collect::<Vec<_>>();
    let handlers = answering(handlers, &allow.join(", "));
    (schemas, paths, handlers)
}

/// The same for a path that the OpenAPI document does not list.
pub(super) fn answering<S>(router: MethodRouter<S>, allow: &str) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    let allow = HeaderValue::try_from(format!("{allow}, OPTIONS"))
        .expect("the names of methods are visible ASCII");
    router.fallback(async move |method: Method| other_method(&method, allow))
}

fn methods(item: &PathItem) -> Vec<&'static str> {
    let mut methods = Vec::new();
    for (operation, names) in [
        (&item.get, &["GET", "HEAD"][..]),
        (&item.post, &["POST"]),
        (&item.put, &["PUT"]),
        (&item.delete, &["DELETE"]),
    ] {
        if operation.is_some() {
            methods.extend(names);
        }
    }
    methods
}

fn other_method(method: &Method, allow: HeaderValue) -> Response {
    if method == Method::OPTIONS {
        return (StatusCode::NO_CONTENT, [(ALLOW, allow)]).into_response();
    }
    let taken = allow.to_str().unwrap_or_default();
    let detail = format!("This path takes {taken}.");
    Problem::new(ProblemCode::MethodNotAllowed, detail)
        .with(Extra::Allow(allow))
        .into_response()
}
