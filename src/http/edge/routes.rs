//! Routes and their operations: the facts that the edge needs about a request before anything else is done
//! with it.

use std::{ops::Range, pin::Pin, sync::Arc};

use axum::{
    extract::Request,
    handler::Handler,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header::ALLOW};
use matchit::Router;
use utoipa::{
    __dev::{SchemaReferences, Tags},
    Path,
    openapi::{HttpMethod, RefOr, Schema, path::Operation as Description},
};

use crate::{
    http::{
        problem::{Extra, Problem, ProblemCode},
        state::{AppState, BasePath},
    },
    telemetry::metrics::{Metrics, RouteMetrics},
};

/// An operation of the API, such as renewing a lease: a row of the table of routes.
pub(in crate::http) struct Operation {
    /// The path as the documentation has it, without the base path.
    pub(in crate::http) path: String,
    pub(super) method: Method,
    pub(in crate::http) class: Class,
    /// Whether caches may keep the answers. They must not keep answers that are for one caller.
    pub(super) is_public: bool,
    /// Whether a caller may leave the body of the request out.
    pub(in crate::http) body_is_optional: bool,
    /// The problems that the operation answers besides those of the edge, in groups.
    pub(in crate::http) problems: &'static [&'static [ProblemCode]],
    /// Describes the operation for the OpenAPI document. `None`: the document does not list the operation.
    pub(in crate::http) describe: Option<fn(&mut Schemas) -> Described>,
    pub(super) handle: Box<dyn Fn(Request, Arc<AppState>) -> Handled + Send + Sync>,
}

/// How the requests of an operation are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Class {
    /// Requests that take a permit of the common limit.
    Ordinary,
    /// Health checks, and requests to the address that serves metrics alone. They need no permit, may name
    /// any host, and are part of no trace.
    Probes,
    /// Preflights: a browser asks what its page may send. They need no permit. If a preflight were refused,
    /// the browser would not send the renewal that comes next, and for which there is room.
    Preflights,
    /// Requests for metrics, for which an overloaded gateway keeps permits. They are part of no trace.
    Scrapes,
    /// Renewals of leases. They have a limit of their own beside the common one.
    Renews,
    /// Releases of leases. They are carried out even if their callers hang up.
    Releases,
    /// Event streams, each of which keeps a connection. Pages of other origins must not open them.
    Listens,
    /// Hold requests. With a token in the header they adopt a lease and count as renewals; without a token
    /// they are ordinary.
    Holds,
}

/// The schemas that the OpenAPI document defines, by their names.
pub(in crate::http) type Schemas = Vec<(String, RefOr<Schema>)>;

/// The methods of one operation, and its description in the OpenAPI document.
pub(in crate::http) type Described = (Vec<HttpMethod>, Description);

/// Future in which a handler makes the answer to a request.
pub(super) type Handled = Pin<Box<dyn Future<Output = Response> + Send>>;

const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");

/// Makes an operation from its handler and from `P`, the description that the handler's attribute
/// `utoipa::path` has made.
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
    /// Operation that serves a file for `GET`, and is not in the OpenAPI document.
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

    /// Whether the operation takes a method. An operation for `GET` takes `HEAD` too.
    fn takes(&self, method: &Method) -> bool {
        self.method == method || self.method == Method::GET && method == Method::HEAD
    }
}

// === impl Class ===

impl Class {
    /// The class of a request. If the path does not take the method, `OPTIONS` is a preflight, and other
    /// methods are ordinary.
    fn for_request(operation: Option<&Operation>, method: &Method, headers: &HeaderMap) -> Self {
        match operation.map(|operation| operation.class) {
            None if method == Method::OPTIONS => Self::Preflights,
            Some(Self::Holds) if headers.contains_key(LOCK_TOKEN) => Self::Renews,
            class => class.unwrap_or(Self::Ordinary),
        }
    }

    /// Whether requests of this class need a permit.
    pub(super) fn needs_permit(self) -> bool {
        !matches!(self, Self::Probes | Self::Preflights)
    }
}

fn describe<P: Path + SchemaReferences + Tags<'static>>(schemas: &mut Schemas) -> Described {
    P::schemas(schemas);
    let mut description = P::operation();
    let tags = P::tags().into_iter().map(str::to_owned);
    description.tags.get_or_insert_default().extend(tags);
    (P::methods(), description)
}

/// All routes, by path.
pub(super) struct Routes {
    paths: Router<usize>,
    /// All routes. The first route is for requests that match no other.
    known: Vec<Route>,
}

/// A path of the API with its operations.
pub(super) struct Route {
    /// The path as the documentation has it, without the base path; empty if there is no such route.
    pub(super) template: String,
    pub(super) operations: Vec<Operation>,
    pub(super) metrics: RouteMetrics,
}

/// The route, the operation and the class of a request.
pub(in crate::http) struct Target {
    /// The index of the route in the table.
    pub(super) route: usize,
    /// The index of the operation among those of its route. `None`: no route has the path, or the path does
    /// not take the method.
    pub(super) operation: Option<usize>,
    /// Range of the variable part, such as a lock name, in the path of the request.
    pub(super) parameter: Option<Range<usize>>,
    pub(in crate::http) class: Class,
}

/// Index of the route for requests that match no route.
const UNMATCHED: usize = 0;

// === impl Routes ===

impl Routes {
    /// The routes below a base path. Operations of one path must stand next to each other.
    pub(super) fn new(
        operations: impl IntoIterator<Item = Operation>,
        base_path: &BasePath,
        metrics: &Metrics,
    ) -> Self {
        let mut known = vec![Route::new("", metrics)];
        for operation in operations {
            if known[known.len() - 1].template != operation.path {
                known.push(Route::new(&operation.path, metrics));
            }
            let route = known.last_mut().expect("the first is never taken out");
            route.operations.push(operation);
        }
        let mut paths = Router::new();
        for (at, route) in known.iter().enumerate().skip(1) {
            // The index page of a base path is served without a slash and with one.
            let is_index = route.template == "/" && !base_path.as_str().is_empty();
            for path in [&route.template, ""]
                .into_iter()
                .take(1 + usize::from(is_index))
            {
                paths
                    .insert(format!("{base_path}{path}"), at)
                    .expect("each route path is unique");
            }
        }
        Self { paths, known }
    }

    /// Finds the route, the operation and the class of a request.
    pub(super) fn find<B>(&self, request: &http::Request<B>) -> Target {
        let (path, method) = (request.uri().path(), request.method());
        let (route, parameter) = self.find_path(path);
        let operations = &self.known[route].operations;
        let operation = operations.iter().position(|it| it.takes(method));
        let found = operation.map(|at| &operations[at]);
        Target {
            route,
            operation,
            parameter,
            class: Class::for_request(found, method, request.headers()),
        }
    }

    /// The index of the route of a path, and the range of the variable part in the path.
    fn find_path(&self, path: &str) -> (usize, Option<Range<usize>>) {
        let Ok(found) = self.paths.at(path) else {
            return (UNMATCHED, None);
        };
        let value = found.params.iter().next().map(|(_, value)| value);
        let parameter = value.map(|value| {
            let start = value.as_ptr().addr() - path.as_ptr().addr();
            start..start + value.len()
        });
        (*found.value, parameter)
    }

    pub(super) fn route(&self, at: usize) -> &Route {
        &self.known[at]
    }
}

// === impl Route ===

impl Route {
    fn new(template: &str, metrics: &Metrics) -> Self {
        Self {
            template: template.to_owned(),
            operations: Vec::new(),
            metrics: metrics.route_metrics(template),
        }
    }

    /// Whether the path of the route names a lock.
    pub(super) fn names_lock(&self) -> bool {
        self.template.contains("{name}")
    }

    /// Whether caches may keep the answers. An answer to a request that matches no route may be about a lock.
    pub(super) fn is_public(&self) -> bool {
        self.operations.iter().any(|operation| operation.is_public)
    }

    /// Whether the answers of this route are pages that a person may look at in a browser.
    pub(super) fn is_page(&self) -> bool {
        self.operations.iter().all(|operation| operation.is_public)
    }

    /// The answer to a request for which its path has no operation.
    pub(super) fn no_operation(&self, method: &Method, path: &str) -> Result<Response, Problem> {
        if self.operations.is_empty() {
            return Err(not_found(path));
        }
        let mut methods = Vec::new();
        for Operation { method, .. } in &self.operations {
            methods.push(method.as_str());
            if method == Method::GET {
                methods.push("HEAD");
            }
        }
        methods.push("OPTIONS");
        let methods = methods.join(", ");
        let detail = format!("This path takes {methods}.");
        let allow = HeaderValue::try_from(methods).expect("names of methods are visible ASCII");
        if method == Method::OPTIONS {
            return Ok((StatusCode::NO_CONTENT, [(ALLOW, allow)]).into_response());
        }
        Err(Problem::new(ProblemCode::MethodNotAllowed, detail).with(Extra::Allow(allow)))
    }
}

fn not_found(path: &str) -> Problem {
    let detail = if path.ends_with("/locks/") {
        "The lock has no name. A lock is /locks/NAME, where NAME is not empty."
    } else if path.len() > 1 && path.ends_with('/') {
        "The path ends with a slash, and no route does. Leave the slash out."
    } else if path.contains("/locks/") {
        "No route has this path. In the path of a URL, a lock name is one segment: write its / as %2F. If the request \
         had %2F, a proxy in front of the gateway has decoded it."
    } else {
        "No route has this path."
    };
    Problem::new(ProblemCode::NotFound, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(base_path: &str, path: &str) -> (String, Option<String>) {
        let paths = ["/", "/locks", "/locks/{name}", "/locks/{name}/renew"];
        let operations = paths.map(|path| Operation::of_file(path, async || ()));
        let routes = Routes::new(operations, &BasePath::new(base_path), &Metrics::default());
        let (at, parameter) = routes.find_path(path);
        let parameter = parameter.map(|parameter| path[parameter].to_owned());
        (routes.route(at).template.clone(), parameter)
    }

    #[test]
    fn a_path_has_its_route_and_its_parameter() {
        for (path, route, parameter) in [
            ("/", "/", None),
            ("/locks", "/locks", None),
            ("/locks/a%2Fb", "/locks/{name}", Some("a%2Fb")),
            ("/locks/a%2frenew", "/locks/{name}", Some("a%2frenew")),
            ("/locks/a%2Fb/renew", "/locks/{name}/renew", Some("a%2Fb")),
            ("/locks/a/b/renew", "", None),
            ("/locks/a/renew", "/locks/{name}/renew", Some("a")),
            ("/locks/a/nothing", "", None),
            ("/locks/", "", None),
            ("/nothing", "", None),
        ] {
            let parameter = parameter.map(str::to_owned);
            let expected = (route.to_owned(), parameter);
            assert_eq!(found("", path), expected, "{path}");
            assert_eq!(found("/x", &format!("/x{path}")), expected, "/x{path}");
        }
        assert_eq!(found("/x", "/x").0, "/");
        assert_eq!(found("/x", "/locks").0, "");
    }
}
