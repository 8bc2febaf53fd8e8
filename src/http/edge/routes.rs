//! Which route a request is for, found before anything else is done with it.

use std::{pin::Pin, sync::Arc};

use axum::{extract::Request, response::Response};
use http::Method;
use matchit::Router;

use crate::{
    http::{base_path::BasePath, state::AppState},
    telemetry::metrics::{Metrics, RouteMetrics},
};

/// All routes, by path.
pub(super) struct Routes {
    paths: Router<usize>,
    /// The first is that of requests which no route matches.
    known: Vec<Route>,
    base_path: BasePath,
}

/// A route, with all that depends on nothing else.
pub(super) struct Route {
    /// The path as the documentation has it, without the base path; empty if there is no such route.
    template: Arc<str>,
    direct: Option<FindDirect>,
    metrics: RouteMetrics,
}

/// Where in a path its variable part is, counted from the end: a router may cut the path's beginning off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameter {
    length: usize,
    after: usize,
}

/// A request on its way through its handler.
pub(in crate::http) type Handled = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Calls a handler.
pub(in crate::http) type HandleDirect = fn(Request, Arc<AppState>) -> Handled;

/// The handler of a method at a route, if it is called without a router in between.
pub(in crate::http) type FindDirect = fn(&Method) -> Option<HandleDirect>;

/// What a route has of these.
pub(in crate::http) type DirectRoutes = fn(template: &str) -> Option<FindDirect>;

/// The place of the route of requests that no route matches.
const UNMATCHED: usize = 0;

// === impl Routes ===

impl Routes {
    pub(super) fn new(
        templates: impl IntoIterator<Item: AsRef<str>>,
        base_path: BasePath,
        direct: DirectRoutes,
        metrics: &Metrics,
    ) -> Self {
        let mut paths = Router::new();
        let mut known = vec![Route::new("", direct, metrics)];
        for template in templates {
            let template = template.as_ref();
            let below = match template {
                // The index is at the prefix, with a slash and without.
                "/" if !base_path.as_str().is_empty() => vec!["", "/"],
                template => vec![template],
            };
            for path in below {
                paths
                    .insert(format!("{base_path}{path}"), known.len())
                    .expect("each route path is unique");
            }
            known.push(Route::new(template, direct, metrics));
        }
        Self {
            paths,
            known,
            base_path,
        }
    }

    /// The place of the route of a path, and where in the path its variable part is.
    pub(super) fn find(&self, path: &str) -> (usize, Option<Parameter>) {
        let Ok(found) = self.paths.at(path) else {
            return (UNMATCHED, None);
        };
        let value = found.params.iter().next().map(|(_, value)| value);
        let parameter = value.map(|value| {
            let before = value.as_ptr().addr() - path.as_ptr().addr();
            Parameter {
                length: value.len(),
                after: path.len() - before - value.len(),
            }
        });
        (*found.value, parameter)
    }

    pub(super) fn route(&self, at: usize) -> &Route {
        &self.known[at]
    }

    /// Whether an answer must not be kept by anybody on its way. What has no route is judged by its path.
    pub(super) fn is_private(&self, route: &Route, path: &str) -> bool {
        if route.template.is_empty() {
            let path = self.base_path.strip(path);
            path.is_some_and(|path| path.starts_with("/locks"))
        } else {
            is_private(&route.template)
        }
    }
}

// === impl Route ===

impl Route {
    fn new(template: &str, direct: DirectRoutes, metrics: &Metrics) -> Self {
        Self {
            direct: direct(template),
            metrics: metrics.route_metrics(template),
            template: template.into(),
        }
    }

    pub(super) fn template(&self) -> &str {
        &self.template
    }

    /// The handler of a method, if it is called without a router in between.
    pub(super) fn direct(&self, method: &Method) -> Option<HandleDirect> {
        self.direct?(method)
    }

    pub(super) fn metrics(&self) -> &RouteMetrics {
        &self.metrics
    }
}

// === impl Parameter ===

impl Parameter {
    /// The variable part of a path that ends as the one did in which it was found.
    pub(super) fn of(self, path: &str) -> Option<&str> {
        let end = path.len().checked_sub(self.after)?;
        path.get(end.checked_sub(self.length)?..end)
    }
}

/// Whether an answer of a route is of one caller and one moment.
fn is_private(route: &str) -> bool {
    route.starts_with("/locks") || matches!(route, "/events" | "/session" | "/stats" | "/backup")
}

/// Whether it asks how the gateway is. Whoever looks after an overloaded gateway must be able to see
/// that it is alive.
pub(in crate::http) fn is_probe(route: &str) -> bool {
    matches!(route, "/healthz" | "/readyz")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(base_path: &str, path: &str) -> (String, Option<String>) {
        let templates = ["/", "/locks", "/locks/{name}", "/locks/{name}/renew"];
        let base_path = BasePath::new(base_path);
        let routes = Routes::new(templates, base_path.clone(), |_| None, &Metrics::default());
        let (at, parameter) = routes.find(path);
        let below = base_path.strip(path).unwrap_or(path);
        let parameter = parameter.map(|parameter| parameter.of(below).unwrap().to_owned());
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
