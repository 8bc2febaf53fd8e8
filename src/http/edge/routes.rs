//! Which operation a request is for, found before anything else is done with it.

use std::ops::Range;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header::ALLOW};
use matchit::Router;

use crate::{
    http::{
        base_path::BasePath,
        problem::{Extra, Problem, ProblemCode},
    },
    telemetry::metrics::{Metrics, RouteMetrics},
};

use super::operation::Operation;

/// All routes, by path.
pub(super) struct Routes {
    paths: Router<usize>,
    /// The first is that of requests which no route matches.
    known: Vec<Route>,
}

/// A path with its operations.
pub(super) struct Route {
    /// The path as the documentation has it, without the base path; empty if there is no such route.
    template: String,
    operations: Vec<Operation>,
    metrics: RouteMetrics,
}

/// Where in a path its variable part is.
pub(super) type Parameter = Range<usize>;

/// The place of the route of requests that no route matches.
const UNMATCHED: usize = 0;

// === impl Routes ===

impl Routes {
    /// The routes below a base path. Operations of one path stand together.
    pub(super) fn new(
        operations: impl IntoIterator<Item = Operation>,
        base_path: &BasePath,
        metrics: &Metrics,
    ) -> Self {
        let mut known = vec![Route::new("", metrics)];
        for operation in operations {
            if known
                .last()
                .is_none_or(|last| last.template != operation.path)
            {
                known.push(Route::new(&operation.path, metrics));
            }
            known
                .last_mut()
                .expect("one was pushed")
                .operations
                .push(operation);
        }
        let mut paths = Router::new();
        for (at, route) in known.iter().enumerate().skip(1) {
            // The index of a base path is there without a slash and with one.
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

    /// The place of the route of a path, and where in the path its variable part is.
    pub(super) fn find(&self, path: &str) -> (usize, Option<Parameter>) {
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

    pub(super) fn template(&self) -> &str {
        &self.template
    }

    /// Whether the path names a lock.
    pub(super) fn names_lock(&self) -> bool {
        self.template.contains("{name}")
    }

    pub(super) fn metrics(&self) -> &RouteMetrics {
        &self.metrics
    }

    pub(super) fn operation(&self, method: &Method) -> Option<&Operation> {
        self.operations
            .iter()
            .find(|operation| operation.takes(method))
    }

    /// Whether an answer may be kept on its way. One that no route gives may be about a lock.
    pub(super) fn is_public(&self) -> bool {
        self.operations.iter().any(|operation| operation.is_public)
    }

    /// Whether a person may look at an answer in a browser.
    pub(super) fn is_page(&self) -> bool {
        self.operations.iter().all(|operation| operation.is_public)
    }

    /// The answer to a request that is for no operation.
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
        let (at, parameter) = routes.find(path);
        let parameter = parameter.map(|parameter| path[parameter].to_owned());
        (routes.route(at).template().to_owned(), parameter)
    }

    #[test]
    fn a_path_has_its_route_and_its_parameter() {
        for (path, route, parameter) in [
            ("/", "/", None),
            ("/locks", "/locks", None),
            ("/locks/a%2Fb", "/locks/{name}", Some("a%2Fb")),
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
