//! The operations of the gateway, from its OpenAPI document, for tests that call every route.

use std::collections::{BTreeMap, BTreeSet};

use latchgate::http::openapi;
use serde_json::Value;

/// An operation of the gateway.
pub(crate) struct Operation {
    /// The HTTP method, in upper case.
    pub(crate) method: String,
    /// The path template of the document.
    path: String,
    /// The object that describes the operation in the document.
    described: Value,
}

// === impl Operation ===

impl Operation {
    /// The path and query of a request about a lock. Where an operation takes several locks, a second lock is added.
    pub(crate) fn target(&self, lock: &str) -> String {
        let path = self.path.replace("{code}", "locked");
        assert!(!path.replace("{name}", "").contains('{'), "{path}");
        let path = path.replace("{name}", lock);
        if self.takes("names") {
            return format!("{path}?names={lock},b");
        }
        path
    }

    /// Method, path and query of a request about a lock.
    pub(crate) fn line(&self, lock: &str) -> String {
        format!("{} {}", self.method, self.target(lock))
    }

    /// Whether the path has the name of a lock.
    pub(crate) fn names_lock(&self) -> bool {
        self.path.contains("{name}")
    }

    /// Whether the operation has a parameter with this name, in the path, the query or a header.
    pub(crate) fn takes(&self, parameter: &str) -> bool {
        let mut parameters = self.described["parameters"]
            .as_array()
            .into_iter()
            .flatten();
        parameters.any(|it| it["name"] == parameter)
    }

    /// Whether the operation requires a body; `None` if it takes no body.
    pub(crate) fn body_is_required(&self) -> Option<bool> {
        let body = self.described["requestBody"].as_object()?;
        Some(body.get("required") == Some(&Value::Bool(true)))
    }

    /// Whether the document lists this problem code for the operation.
    pub(crate) fn answers(&self, code: &str) -> bool {
        let mut codes = self.described["x-problem-codes"].as_array().unwrap().iter();
        codes.any(|it| it == code)
    }

    /// The media types of the successful answer.
    pub(crate) fn media(&self) -> Vec<&str> {
        let content = self.described["responses"]["200"]["content"].as_object();
        content
            .into_iter()
            .flatten()
            .map(|(media, _)| media.as_str())
            .collect()
    }

    /// Whether a page of another origin must not call the operation, because it may change something or keeps a
    /// connection.
    pub(crate) fn is_guarded(&self) -> bool {
        self.method != "GET" || self.media() == ["text/event-stream"]
    }
}

/// All operations of the document.
pub(crate) fn operations() -> Vec<Operation> {
    let document = serde_json::to_value(openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let of = |(path, item): (&String, &Value)| {
        let operations = item.as_object().unwrap().clone().into_iter();
        let path = path.clone();
        operations.map(move |(method, described)| Operation {
            method: method.to_uppercase(),
            path: path.clone(),
            described,
        })
    };
    paths.flat_map(of).collect()
}

/// All paths that have a route, with the lock `a` in the place of a name, and the `Allow` header of each.
pub(crate) fn paths() -> Vec<(String, String)> {
    let mut paths = BTreeMap::from([("/docs/index.css".to_owned(), BTreeSet::from([GET]))]);
    for operation in operations() {
        let target = operation.target("a");
        let path = target.split('?').next().unwrap().to_owned();
        let method = METHODS
            .iter()
            .find(|(_, method)| method.starts_with(&operation.method));
        paths.entry(path).or_default().insert(*method.unwrap());
    }
    let allow = |methods: BTreeSet<_>| {
        let methods = methods.into_iter().map(|(_, method)| method);
        methods.chain(["OPTIONS"]).collect::<Vec<_>>().join(", ")
    };
    paths
        .into_iter()
        .map(|(path, methods)| (path, allow(methods)))
        .collect()
}

/// The methods in the order of the `Allow` header, with their ranks.
const METHODS: [(usize, &str); 4] = [GET, (1, "POST"), (2, "PUT"), (3, "DELETE")];
const GET: (usize, &str) = (0, "GET, HEAD");
