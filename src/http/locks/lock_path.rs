//! The path parameter of the routes under `/locks`, for the OpenAPI document.

use utoipa::IntoParams;

/// The lock that a path names.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it only describes what `ApiPath<LockName>` reads")]
pub(super) struct LockPath {
    /// The lock: ASCII letters, digits and `. _ : @ ~ -`. Use `:` for hierarchy.
    #[param(
        min_length = 1,
        max_length = 200,
        example = "deploy:prod",
        pattern = r"^(\.*[A-Za-z0-9_:@~-][A-Za-z0-9._:@~-]*|\.{3,})$"
    )]
    name: String,
}
