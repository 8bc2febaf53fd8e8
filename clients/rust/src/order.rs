//! Sets the order that a lock remembers.

use reqwest::Method;
use serde_json::json;

use crate::{
    Client, ClientError,
    http::Call,
    lock::{LockName, OrderNumber, Reason},
};

// === impl Client ===

impl Client {
    /// Sets the order that a lock remembers; `None`: the lock forgets its order. `seen` is the order that the lock
    /// remembers now, as an inspection shows it. If the lock remembers another order, nothing is changed, and the error is
    /// [`ClientError::Refused`] with the code `order-changed`.
    pub async fn set_order(
        &self,
        name: &LockName,
        order: Option<OrderNumber>,
        seen: Option<OrderNumber>,
        reason: &Reason,
    ) -> Result<(), ClientError> {
        let call = Call::new(Method::PUT, name, "/granted-order").json(json!({
            "order": order.map(OrderNumber::get),
            "if_order": seen.map(OrderNumber::get),
            "reason": reason.as_str(),
        }));
        let answer = call.send(self).await?;
        if answer.status.is_success() {
            let other = answer.names_other(name);
            return other.map_or(Ok(()), |why| Err(ClientError::unknown(why, None)));
        }
        let in_doubt = answer.in_doubt;
        match answer.refusal() {
            // An earlier copy may have set the order, before another caller or a grant changed it.
            ClientError::Refused(problem) if in_doubt && problem.code == "order-changed" => Err(
                ClientError::after_unanswered(problem.to_string(), Some(problem)),
            ),
            error => Err(error),
        }
    }
}
