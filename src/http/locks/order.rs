//! `PUT /locks/{name}/granted-order`: set the order that a lock remembers.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    audit::OrderAttempt,
    auth::scope,
    engine::SetOrderError,
    http::{
        extract::{
            AcceptsJson, ApiJson, ApiPath, Caller, Field, Fields, Form, NoQuery, Provenance,
            RequestBody, declare_fields,
        },
        json_response::JsonResponse,
        problem::Problem,
        state::AppState,
    },
    lock::{LockName, OrderNumber, Reason},
    store::contract::{GrantedOrder, OrderChange},
};

/// Set the order that a lock remembers
///
/// Corrects the order below which the lock is granted no more, after a mistake: a time in ms instead of s, or numbers
/// of runs that begin again. The new order may be lower or higher. The order is set only if the lock remembers
/// `if_order` now; otherwise the answer is 409 `order-changed`. Leases and waiters stay as they are: a waiter is
/// compared with the new order when it is granted the lock.
///
/// Once begun, the change is carried out even if the caller hangs up, and it may be repeated.
#[utoipa::path(
    put,
    path = "/locks/{name}/granted-order",
    operation_id = "setGrantedOrder",
    tag = "locks",
    params(ApiPath<LockName>),
    request_body(content = OrderJson, description = "The orders before and after, and the reason."),
    responses(
        (status = 200, body = OrderAnswer, description = "The lock remembers the new order."),
    )
)]
pub(in crate::http) async fn set_order(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::Order>,
    provenance: Provenance,
    _: AcceptsJson,
    ApiPath(name): ApiPath<LockName>,
    _: NoQuery,
    ApiJson(body): ApiJson<OrderBody>,
) -> Result<JsonResponse<OrderAnswer>, Problem> {
    let OrderBody { change, reason } = body;
    let reason = reason.expect("a body without a reason is refused");
    let (audit, key) = (gateway.audit.clone(), caller.name().cloned());
    let (lock, why) = (name.clone(), reason.clone());
    let record = async move |outcome: Result<(), SetOrderError>| {
        let outcome = outcome.map_or_else(|error| Problem::from(error).code.as_str(), |()| "set");
        let attempt = OrderAttempt {
            requester: provenance.requester(key.as_ref()),
            name: &lock,
            order: change.new,
            reason: why.as_str(),
            outcome,
        };
        audit.order_set(&attempt).await;
    };
    // If the caller hangs up from here on, the engine still completes the command.
    let by = caller.actor();
    let set = gateway
        .engine
        .set_order(name.clone(), change, reason, by, record);
    match set.await {
        Ok(()) => Ok(JsonResponse(OrderAnswer {
            name: name.as_str().to_owned(),
            granted_order: change.new.map(OrderNumber::get),
        })),
        Err(SetOrderError::Changed(mut granted)) => {
            if !caller.views(&name) {
                granted = granted.map(|it| GrantedOrder { grant: None, ..it });
            }
            Err(SetOrderError::Changed(granted).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// The order that a lock remembers.
#[derive(Serialize, ToSchema)]
#[schema(as = GrantedOrder)]
pub(in crate::http) struct OrderAnswer {
    /// The name of the lock.
    name: String,
    /// The order; null if the lock remembers none now.
    #[schema(required = true, maximum = 9_007_199_254_740_991_u64)]
    granted_order: Option<u64>,
}

/// Body of a change of the order.
pub(in crate::http) struct OrderBody {
    change: OrderChange,
    /// Why the order is set. `None`: the field is missing or invalid, and the request is refused.
    reason: Option<Reason>,
}

/// Body of a change of the order in the OpenAPI document.
pub(in crate::http) type OrderJson = ApiJson<OrderBody>;

declare_fields! {
    /// The order that a lock remembers from now on, and why.
    const SET_ORDER: "OrderBody" => Form::TEXT.example(
        r#"{"order": 41902, "if_order": 1795170000000, "reason": "a script sent milliseconds"}"#
    );
    /// The new order. Null, or left out: the lock forgets its order.
    const NEW: "order" => Form::whole(|_| (0, OrderNumber::MAX.get()));
    /// The order that the lock remembers now, as inspect shows it. Null, or left out: it remembers none.
    const SEEN: "if_order" => Form::whole(|_| (0, OrderNumber::MAX.get()));
    /// Why the order is set, for people to read, in the audit log. No control characters.
    const REASON: "reason" => Form::prose(Reason::MAX_CHARS).required();
}

// === impl OrderBody ===

impl RequestBody for OrderBody {
    const ABOUT: Field = SET_ORDER;

    fn read(fields: &mut Fields<'_>) -> Self {
        let (new, seen) = (order(fields, &NEW), order(fields, &SEEN));
        let reason = fields.text(&REASON).unwrap_or_default();
        Self {
            change: OrderChange { seen, new },
            reason: fields.check(&REASON, Reason::not_blank(&reason)),
        }
    }
}

/// Reads a field with an order. `None`: the field was left out or refused.
pub(super) fn order(fields: &mut Fields<'_>, field: &'static Field) -> Option<OrderNumber> {
    let number = fields.whole(field)?;
    fields.check(field, OrderNumber::new(number))
}
