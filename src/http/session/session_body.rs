//! Who somebody is here, and what they may do.

use std::{borrow::Cow, time::SystemTime};

use serde::Serialize;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr, Schema,
        schema::{ArrayBuilder, ObjectBuilder, Type},
    },
};

use crate::{
    auth::{Access, Permission, Permissions},
    http::locks::{millis, timestamp},
    lock::Ttl,
};

/// Who asks, and what they may do.
#[derive(Serialize, ToSchema)]
#[schema(as = Session, example = json!({
    "authentication": true,
    "signed_in": true,
    "name": "ops",
    "permissions": {"acquire": ["deploy:"], "view": ["*"], "break": ["deploy:"], "metrics": true},
    "max_ttl_ms": null,
    "expires_in_ms": 43_200_000,
    "expires_at": "2026-11-21T20:00:00.000Z",
}))]
pub(in crate::http) struct SessionBody {
    /// Whether the gateway has API keys. If it has none, everybody may do everything.
    authentication: bool,
    /// Whether somebody is known: by a session, or by an API key in the request.
    signed_in: bool,
    /// The name of the API key; null if nobody is known.
    #[schema(required = true)]
    name: Option<String>,
    /// What is permitted now.
    permissions: PermissionsBody,
    /// The longest TTL that may be asked for; null if there is no limit of its own.
    #[schema(required = true)]
    max_ttl_ms: Option<u64>,
    /// What is left until a new one is needed: of the session, or of its key if that is less. Null if
    /// there is no end.
    #[schema(required = true)]
    expires_in_ms: Option<u64>,
    /// When that is, by the clock of the gateway.
    #[schema(format = DateTime, required = true)]
    expires_at: Option<String>,
}

/// What is permitted.
#[derive(Serialize)]
struct PermissionsBody(Permissions);

// === impl SessionBody ===

impl SessionBody {
    /// Anybody, at a gateway without keys.
    pub(super) fn of_anybody() -> Self {
        Self {
            authentication: false,
            signed_in: false,
            name: None,
            permissions: PermissionsBody(Permissions::all()),
            max_ttl_ms: None,
            expires_in_ms: None,
            expires_at: None,
        }
    }

    /// Somebody who is not known.
    pub(super) fn of_nobody() -> Self {
        Self {
            authentication: true,
            permissions: PermissionsBody(Permissions::default()),
            ..Self::of_anybody()
        }
    }

    /// Somebody who was let in. `now` is the wall time of the gateway.
    pub(super) fn of(access: &Access, now: SystemTime) -> Self {
        let Some(key) = access.key() else {
            return Self::of_anybody();
        };
        let ends_at = access.ends_at();
        let left = ends_at.map(|end| end.duration_since(now).unwrap_or_default());
        Self {
            authentication: true,
            signed_in: true,
            name: Some(key.name.to_string()),
            permissions: PermissionsBody(key.permissions.clone()),
            max_ttl_ms: access.max_ttl().map(Ttl::as_millis),
            expires_in_ms: left.map(millis),
            expires_at: ends_at.map(|end| timestamp(Some(end))),
        }
    }
}

// === impl PermissionsBody ===

impl PartialSchema for PermissionsBody {
    fn schema() -> RefOr<Schema> {
        let object = ObjectBuilder::new().description(Some(
            "What is permitted, by the beginnings of lock names; `*` is every name, and an empty list none.",
        ));
        let add = |object: ObjectBuilder, permission: Permission| {
            let row = permission.row();
            let schema = if row.is_per_name {
                let text = Some(format!("The names that the key may {}.", row.allows));
                let texts = ArrayBuilder::new()
                    .items(String::schema())
                    .description(text);
                Schema::from(texts)
            } else {
                let text = Some(format!("Whether the key may {}.", row.allows));
                let flag = ObjectBuilder::new()
                    .schema_type(Type::Boolean)
                    .description(text);
                Schema::from(flag)
            };
            object.property(row.name, schema).required(row.name)
        };
        let object = Permission::ALL.into_iter().fold(object, add);
        RefOr::T(object.into())
    }
}

impl ToSchema for PermissionsBody {
    fn name() -> Cow<'static, str> {
        "Permissions".into()
    }
}
