//! The operations of the gateway, as its OpenAPI document lists them: for tests that ask every route.

use std::collections::{BTreeMap, BTreeSet};

use latchgate::http::openapi;
use serde_json::Value;

/// An operation of the gateway.
pub(crate) struct Operation {
    /// In upper case.
    pub(crate) method: String,
    /// The path as the document has it.
    path: String,
    /// What the document says of the operation.
    described: Value,
}

// === impl Operation ===

impl Operation {
    /// The path and query of a request about a lock. It is asked for with a second one where several are meant.
    pub(crate) fn target(&self, lock: &str) -> String {
        let path = self.path.replace("{code}", "locked");
        assert!(!path.replace("{name}", "").contains('{'), "{path}");
        let path = path.replace("{name}", lock);
        if self.takes("names") {
            return format!("{path}?names={lock},b");
        }
        path
    }

    /// The line of a request about a lock.
    pub(crate) fn line(&self, lock: &str) -> String {
        format!("{} {}", self.method, self.target(lock))
    }

    /// Whether the path names a lock.
    pub(crate) fn names_lock(&self) -> bool {
        self.path.contains("{name}")
    }

    /// Whether a parameter is described, in the path, the query or a header.
    pub(crate) fn takes(&self, parameter: &str) -> bool {
        let mut parameters = self.described["parameters"]
            .as_array()
            .into_iter()
            .flatten();
        parameters.any(|it| it["name"] == parameter)
    }

    /// Whether a body is described, and if so whether it must be sent.
    pub(crate) fn body_is_required(&self) -> Option<bool> {
        let body = self.described["requestBody"].as_object()?;
        Some(body.get("required") == Some(&Value::Bool(true)))
    }

    /// Whether a problem is among those that the operation answers.
    pub(crate) fn answers(&self, code: &str) -> bool {
        let mut codes = self.described["x-problem-codes"].as_array().unwrap().iter();
        codes.any(|it| it == code)
    }

    /// The media types of success.
    pub(crate) fn media(&self) -> Vec<&str> {
        let content = self.described["responses"]["200"]["content"].as_object();
        content
            .into_iter()
            .flatten()
            .map(|(media, _)| media.as_str())
            .collect()
    }

    /// Whether the operation could change something or keeps a connection, and so is for no page of elsewhere.
    pub(crate) fn is_guarded(&self) -> bool {
        self.method != "GET" || self.media() == ["text/event-stream"]
    }
}

/// All operations.
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

/// The paths below which something is, as one asks for them about the lock `a`, and what each says in `Allow`.
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

/// The methods in the order in which `Allow` names them.
const METHODS: [(usize, &str); 4] = [GET, (1, "POST"), (2, "PUT"), (3, "DELETE")];
const GET: (usize, &str) = (0, "GET, HEAD");
