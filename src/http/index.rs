//! `GET /`: where everything is, for somebody who just opened it.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::{extract::AcceptsJson, json_response::JsonResponse, problem::Problem, state::AppState};

/// What this is and where to go from here.
#[derive(Serialize, ToSchema)]
pub(super) struct Index {
    /// The name of the program.
    #[schema(value_type = String, example = "latchgate")]
    name: &'static str,
    /// Its version.
    #[schema(value_type = String, example = "0.1.0")]
    version: &'static str,
    /// The path of a page that shows every route and lets one try it.
    #[schema(example = "/docs")]
    docs: String,
    /// The path of a page that shows the locks.
    #[schema(example = "/dashboard")]
    dashboard: String,
    /// The path of the OpenAPI document.
    #[schema(example = "/openapi.json")]
    openapi: String,
}

/// Find the way
///
/// Names the program and says where its routes are described.
#[utoipa::path(
    get,
    path = "/",
    operation_id = "getIndex",
    tag = "documentation",
    responses((status = 200, body = Index, description = "Where everything is."))
)]
pub(super) async fn index(
    State(gateway): State<Arc<AppState>>,
    _: AcceptsJson,
) -> Result<JsonResponse<Index>, Problem> {
    let base = &gateway.base_path;
    Ok(JsonResponse(Index {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
        dashboard: format!("{base}/dashboard"),
        docs: format!("{base}/docs"),
        openapi: format!("{base}/openapi.json"),
    }))
}
