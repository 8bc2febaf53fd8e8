//! `latchgate order`, which shows or sets the order that a lock remembers.

use clap::Args;

use crate::{
    client::{ClientError, Inspection, describe_grant},
    lock::{LockName, OrderNumber, Reason},
};

use super::{
    caller::{connection::ConnectionArgs, environment::Environment, request::number},
    error::{CliError, Exit},
    terminal::{output, visible},
};

/// Show or set the order that a lock remembers.
///
/// The lock is granted for no lower order than the one that it remembers. Set it after a mistake: milliseconds instead of
/// seconds, or run numbers that begin again at 1. To deploy an older version on purpose, use
/// `latchgate run --order N --rollback WHY` instead.
#[derive(Args)]
pub(super) struct OrderArgs {
    /// The lock
    name: LockName,
    /// Set the order, higher or lower. Nothing is changed if the order has changed since the command looked
    #[arg(long, value_name = "N", group = "change", requires = "reason", value_parser = order_number)]
    set: Option<OrderNumber>,
    /// Forget the order: the next grant with an order decides
    #[arg(long, group = "change", requires = "reason")]
    forget: bool,
    /// Why the order is set: 1 to 200 characters
    #[arg(long, value_name = "TEXT", requires = "change", value_parser = Reason::not_blank)]
    reason: Option<Reason>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn order(args: &OrderArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let name = &args.name;
    let lock = client.inspect(name).await?;
    let Some(reason) = &args.reason else {
        return output::answer(&describe(name, &lock));
    };
    let seen = lock.granted_order.map(OrderNumber::new).transpose();
    let seen =
        seen.map_err(|error| CliError::unexpected(format!("the order of {name} {error}")))?;
    match client.set_order(name, args.set, seen, reason).await {
        Err(ClientError::Refused(problem)) if problem.code == "order-changed" => {
            let now = or_none(problem.granted_order);
            let text = format!(
                "{name}: nothing was changed: the order was {} and is {now} now; look again",
                or_none(lock.granted_order)
            );
            return Err(CliError::new(Exit::Refused, text));
        }
        set => set?,
    }
    let (before, now) = (or_none(lock.granted_order), args.set.map(OrderNumber::get));
    output::note(&format!(
        "the order of {name} is {} now, and was {before}",
        or_none(now)
    ));
    Ok(())
}

fn describe(name: &LockName, lock: &Inspection) -> String {
    match (lock.granted_order, &lock.order_granted) {
        (Some(order), Some(grant)) => {
            let grant = describe_grant(grant);
            format!(
                "{name} was granted for the order {order} {}\n",
                visible(&grant)
            )
        }
        (Some(order), None) => format!("{name} remembers the order {order}\n"),
        (None, _) => format!("{name} remembers no order\n"),
    }
}

fn or_none(order: Option<u64>) -> String {
    order.map_or_else(|| "none".to_owned(), |order| order.to_string())
}

fn order_number(text: &str) -> Result<OrderNumber, String> {
    number(text, OrderNumber::new)
}
