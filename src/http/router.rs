//! Every route, on one page.

use std::sync::Arc;

use axum::{Router, extract::State, handler::Handler, response::Response, routing::get};
use http::{HeaderMap, Method, Uri};
use utoipa::openapi::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    backup, dashboard, docs,
    edge::{DirectRoutes, EdgeService, FindDirect},
    events,
    extract::AcceptsJson,
    health, index, locks,
    methods::{answering, complete},
    metrics,
    openapi::{completed, preface, rendered},
    problem::{self, Problem, ProblemCode},
    session,
    state::AppState,
    stats,
};

/// The whole service.
pub fn service(gateway: impl Into<Arc<AppState>>) -> EdgeService {
    service_with(gateway.into(), direct)
}

fn service_with(gateway: Arc<AppState>, direct: DirectRoutes) -> EdgeService {
    let base_path = gateway.base_path.as_str();
    let (routes, document) = described().split_for_parts();
    let templates = document.paths.paths.into_keys();
    let templates =
        templates.chain([docs::ASSETS, dashboard::PAGE, dashboard::FILES].map(str::to_owned));
    let routes = routes.merge(docs::assets()).merge(dashboard::files());
    let routes = match base_path {
        "" => routes,
        base_path => {
            // Nesting puts the index at the prefix without a slash only.
            let index = answering(get(index::index), "GET, HEAD");
            Router::new()
                .nest(base_path, routes)
                .route(&format!("{base_path}/"), index)
        }
    };
    let routes = routes.fallback(not_found).with_state(Arc::clone(&gateway));
    EdgeService::new(gateway, templates, direct, routes)
}

/// The operations that most requests are for. They are called without a router in between, which costs as
/// much as all of the edge. The router has them too, for its answers to other methods.
fn direct(template: &str) -> Option<FindDirect> {
    match template {
        "/locks/{name}" => Some(|method| match *method {
            Method::POST => Some(|request, gateway| locks::acquire.call(request, gateway)),
            Method::GET => Some(|request, gateway| locks::inspect.call(request, gateway)),
            Method::DELETE => Some(|request, gateway| locks::release.call(request, gateway)),
            _ => None,
        }),
        "/locks/{name}/renew" => Some(|method| match *method {
            Method::PUT => Some(|request, gateway| locks::renew.call(request, gateway)),
            _ => None,
        }),
        "/locks/{name}/release" => Some(|method| match *method {
            Method::POST => Some(|request, gateway| locks::release_by_post.call(request, gateway)),
            _ => None,
        }),
        _ => None,
    }
}

/// What is served on an address of its own for metrics: them, and nothing else.
pub fn metrics_router(gateway: impl Into<Arc<AppState>>) -> Router {
    Router::new()
        .route("/metrics", get(metrics::metrics_for_all))
        .with_state(gateway.into())
}

/// The routes that the OpenAPI document describes.
fn described() -> OpenApiRouter<Arc<AppState>> {
    let locks = routes!(locks::acquire, locks::inspect, locks::release);
    let several = routes!(
        locks::list,
        locks::acquire_group,
        locks::renew_group,
        locks::release_group
    );
    let session = routes!(session::show, session::sign_in, session::sign_out);
    OpenApiRouter::with_openapi(preface())
        .routes(complete(locks))
        .routes(complete(routes!(locks::renew)))
        .routes(complete(routes!(locks::release_by_post)))
        .routes(complete(routes!(locks::hold)))
        .routes(complete(several))
        .routes(complete(routes!(locks::break_lock)))
        .routes(complete(routes!(events::events)))
        .routes(complete(session))
        .routes(complete(routes!(health::healthz)))
        .routes(complete(routes!(health::readyz)))
        .routes(complete(routes!(metrics::metrics)))
        .routes(complete(routes!(stats::stats)))
        .routes(complete(routes!(backup::backup)))
        .routes(complete(routes!(openapi_json)))
        .routes(complete(routes!(docs::docs)))
        .routes(complete(routes!(dashboard::dashboard)))
        .routes(complete(routes!(problem::problem_page)))
        .routes(complete(routes!(index::index)))
}

/// The OpenAPI document of a gateway with the default configuration.
pub fn openapi() -> OpenApi {
    let (_, document) = described().split_for_parts();
    completed(document)
}

/// Get this document
///
/// The OpenAPI document of this gateway, with its own limits and its own base path.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "getOpenapi",
    tag = "documentation",
    params(("If-None-Match" = Option<String>, Header, nullable = false,
            description = "The `ETag` of an earlier answer.")),
    responses(
        (status = 200, body = serde_json::Value, description = "The document.",
         headers(("ETag", description = "The name of this version of the document."),
                 ("Cache-Control", description = "Always `no-cache`."))),
        (status = 304, description = "The document has not changed since the version that \
         `If-None-Match` names.",
         headers(("ETag", description = "The name of this version of the document."),
                 ("Cache-Control", description = "Always `no-cache`."))),
    )
)]
pub(super) async fn openapi_json(
    State(gateway): State<Arc<AppState>>,
    headers: HeaderMap,
    _: AcceptsJson,
) -> Response {
    let render = || rendered(openapi(), &gateway.base_path, &gateway.config.limits);
    gateway.document(render).answer(&headers)
}

async fn not_found(uri: Uri) -> Problem {
    let path = uri.path();
    let detail = if path.ends_with("/locks/") {
        "The lock has no name. A lock is /locks/NAME, where NAME is not empty."
    } else if path.len() > 1 && path.ends_with('/') {
        "The path ends with a slash, and no route does. Leave the slash out."
    } else {
        "No route has this path."
    };
    Problem::new(ProblemCode::NotFound, detail)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use axum::body::{Body, to_bytes};
    use http::{HeaderValue, Request, StatusCode};
    use serde_json::Value;
    use tempfile::TempDir;
    use tower::ServiceExt;

    use crate::{
        clock::SystemClock, config::Config, engine::Engine, lifecycle::Lifecycle,
        store::embedded::EmbeddedStore, telemetry::metrics::Metrics,
    };

    use super::*;

    /// A gateway over a store of its own.
    struct Gateway {
        service: EdgeService,
        _directory: TempDir,
    }

    /// What does not differ from run to run of an answer.
    #[derive(Debug, PartialEq, Eq)]
    struct Answer {
        status: StatusCode,
        headers: HeaderMap,
        fields: BTreeSet<String>,
        code: Option<Value>,
    }

    impl Gateway {
        fn start(base_path: &str, direct: DirectRoutes) -> Self {
            let mut config = Config::default();
            base_path.clone_into(&mut config.http.base_path);
            let (directory, clock) = (tempfile::tempdir().unwrap(), Arc::new(SystemClock));
            let store = EmbeddedStore::open(directory.path(), clock.clone());
            let store = Arc::new(store.unwrap());
            let (lifecycle, metrics) = (Lifecycle::new(), Metrics::default());
            let engine = Engine::start(store, lifecycle, &config.limits, metrics);
            let gateway = AppState::new(engine, Arc::new(config), clock);
            Self {
                service: service_with(Arc::new(gateway), direct),
                _directory: directory,
            }
        }

        async fn ask(&self, method: &str, path: &str, token: Option<&str>) -> (Answer, Value) {
            let mut request = Request::builder().method(method).uri(path);
            request = request.header("host", "localhost");
            if let Some(token) = token {
                request = request.header("lock-token", token);
            }
            let request = request.body(Body::empty()).unwrap();
            let (mut head, body) = self
                .service
                .clone()
                .oneshot(request)
                .await
                .unwrap()
                .into_parts();
            for varying in ["x-request-id", "content-length", "retry-after"] {
                head.headers.remove(varying);
            }
            // It has the fence of the lease in it.
            if let Some(tag) = head.headers.get_mut("etag") {
                *tag = HeaderValue::from_static("a tag");
            }
            let body = to_bytes(body, usize::MAX).await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let fields = body.as_object().into_iter().flatten();
            let answer = Answer {
                status: head.status,
                headers: head.headers,
                fields: fields.map(|(name, _)| name.clone()).collect(),
                code: body.get("code").cloned(),
            };
            (answer, body)
        }
    }

    #[tokio::test]
    async fn what_is_called_directly_is_answered_as_by_the_router() {
        for base_path in ["", "/gateway"] {
            let direct = Gateway::start(base_path, direct);
            let routed = Gateway::start(base_path, |_| None);
            for name in [
                "a", "%61", "b%3Ac", "a%2Fb", "a%20b", "%C3%A9", "%FF", "%00", "%", "",
            ] {
                for end in [
                    "",
                    "/",
                    "/renew",
                    "/renew/",
                    "/release",
                    "/release/",
                    "?x=1",
                ] {
                    let path = format!("{base_path}/locks/{name}{end}");
                    for method in [
                        "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get",
                        "LOCK",
                    ] {
                        let (left, _) = direct.ask(method, &path, None).await;
                        let (right, _) = routed.ask(method, &path, None).await;
                        assert_eq!(left, right, "{method} {path}");
                    }
                }
            }
            // The life of a lease, with the token that each of them gave.
            let path = format!("{base_path}/locks/life%3Aof%3Aa%3Alease");
            let mut tokens = [String::new(), String::new()];
            for (method, end, status) in [
                ("POST", "", 201),
                ("PUT", "/renew", 200),
                ("GET", "", 200),
                ("POST", "/release", 204),
                ("DELETE", "", 410),
            ] {
                let path = format!("{path}{end}");
                let mut answers = Vec::new();
                for (gateway, token) in [&direct, &routed].into_iter().zip(&mut tokens) {
                    let given = Some(token.as_str()).filter(|token| !token.is_empty());
                    let (answer, body) = gateway.ask(method, &path, given).await;
                    assert_eq!(answer.status, status, "{method} {path}: {body}");
                    if let Some(new) = body["token"].as_str() {
                        new.clone_into(token);
                    }
                    answers.push(answer);
                }
                assert_eq!(answers[0], answers[1], "{method} {path}");
            }
        }
    }
}
