//! The variable part of a path.

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;

use crate::{http::problem::Problem, lock::LockName};

/// A path parameter that is valid, percent-decoded once.
pub(in crate::http) struct ApiPath<T>(pub(in crate::http) T);

/// What can be read from a path.
pub(in crate::http) trait PathParameter: Sized {
    /// The name of the parameter in the route.
    const NAME: &str;

    /// Reads the decoded text.
    fn read(text: &str) -> Result<Self, Problem>;
}

// === impl ApiPath ===

impl<T: PathParameter, S: Send + Sync> FromRequestParts<S> for ApiPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        // The only other rejection is a route without parameters, which the routes rule out.
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| Problem::invalid_field(T::NAME, "is not UTF-8 after percent-decoding"))?;
        let (_, text) = params
            .iter()
            .find(|(name, _)| *name == T::NAME)
            .expect("a handler is routed at a path with its parameter");
        T::read(text).map(Self)
    }
}

// === impl LockName ===

impl PathParameter for LockName {
    const NAME: &str = "name";

    fn read(text: &str) -> Result<Self, Problem> {
        Self::new(text).map_err(|error| Problem::invalid_field(Self::NAME, error.to_string()))
    }
}
