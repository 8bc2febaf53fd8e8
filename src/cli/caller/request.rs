//! The names of the locks that a command acquires, and the options for the lease, such as its TTL.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;

use crate::{
    client::{AcquireMode, AcquireRequest, Acquiring, Client, GroupLocks, Lease, LeasePart},
    lock::{GroupNames, Limit, LockName, Metadata, OrderNumber, Owner, Reason, SupersedeKey},
};

use super::{
    super::{error::CliError, terminal::text},
    environment::Environment,
};

/// The options of all commands that acquire a lock.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// How long the lease lasts: 30s, 500ms, 2m [default: the gateway's, 30s]
    #[arg(long, value_name = "TIME", value_parser = text::parse_duration)]
    pub(crate) ttl: Option<Duration>,
    /// The longest time that the lease may be kept with renewals
    #[arg(long, value_name = "TIME", value_parser = text::parse_duration)]
    max_hold: Option<Duration>,
    /// Let the lock rest until this time after the grant is over, even if the lease is released earlier
    ///
    /// Until then no caller is granted the lock: the work is done once in this time. With --limit N it is done at most
    /// N times. A TTL that is shorter is raised to this time, so if this machine fails, the lock is held until then.
    #[arg(long, value_name = "TIME", value_parser = text::parse_duration)]
    min_hold: Option<Duration>,
    /// Hold the lock together with others that share it, not alone
    #[arg(long)]
    shared: bool,
    /// Hold the lock alone, even if the gateway's operator has declared it as shared
    ///
    /// Without this option and --shared, a lock is held as it is declared; a lock without a declaration is held alone.
    #[arg(long, conflicts_with_all = ["shared", "limit"])]
    exclusive: bool,
    /// Share the lock while fewer than N hold it (implies --shared)
    ///
    /// At most N hold the lock if all callers use the same N. The lease has a slot: the smallest number from 0 that
    /// no other lease of the lock has.
    #[arg(long, value_name = "N", value_parser = limit)]
    limit: Option<Limit>,
    /// Let only the newest waiter wait: take an older one with the same KEY out of the queue
    ///
    /// An older waiter of the same lock, API key and KEY ends with exit code 113. A command that does not wait takes
    /// nobody out. For one lock only.
    #[arg(
        long,
        value_name = "KEY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "latest",
        value_parser = SupersedeKey::not_blank
    )]
    latest: Option<SupersedeKey>,
    /// Acquire the lock only if it was not granted for a higher order than N before
    ///
    /// N is higher for newer work: the number of a run, or the time of a commit. An outdated command ends with exit code
    /// 114, also while it waits. Of several locks N is for all that are held alone; NAME=N, which may be repeated, is for
    /// one of them.
    #[arg(long, value_name = "[NAME=]N", value_parser = order)]
    order: Vec<(Option<LockName>, OrderNumber)>,
    /// Go back to older work on purpose: the order is neither compared nor remembered
    ///
    /// WHY is shown in the history of the lock. The API key needs the permission `order`.
    #[arg(long, value_name = "WHY", requires = "order", value_parser = Reason::not_blank)]
    rollback: Option<Reason>,
    /// Owner of the lease, for people to read [default: USER@HOST]
    #[arg(long, value_parser = Owner::new)]
    owner: Option<Owner>,
    /// An entry to attach to the lease; may be repeated
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = entry)]
    meta: Vec<(String, String)>,
}

/// The lock or the group of locks that the command line names.
#[derive(Debug, Clone)]
pub(crate) enum Locks {
    One(LockName),
    All(GroupNames),
}

/// An argument that names a lock to acquire: `NAME`, `NAME=shared`, `NAME=exclusive` or `NAME=LIMIT`.
#[derive(Debug, Clone)]
pub(crate) struct LockArg {
    name: LockName,
    /// The mode of the argument, if it has one.
    mode: Option<AcquireMode>,
}

/// The locks that a command acquires, each with its mode, and the orders of single locks.
pub(crate) struct WantedLocks {
    pub(crate) locks: Locks,
    modes: BTreeMap<LockName, AcquireMode>,
    orders: BTreeMap<LockName, OrderNumber>,
}

// === impl RequestArgs ===

impl RequestArgs {
    /// Makes the acquire request that these options describe, with this maximum wait.
    pub(crate) fn request(
        &self,
        wait: Duration,
        environment: &Environment,
    ) -> Result<AcquireRequest, CliError> {
        let owner = self.owner.clone().or_else(|| default(environment));
        let metadata =
            build_metadata(&self.meta).map_err(|error| CliError::argument("--meta", error))?;
        Ok(AcquireRequest {
            ttl: self.ttl,
            wait,
            max_hold: self.max_hold,
            min_hold: self.min_hold,
            mode: AcquireMode::default(),
            supersedes: self.latest.clone(),
            order: self.orders()?.remove(&None),
            rollback: self.rollback.clone(),
            reserve: None,
            owner,
            metadata,
            idempotency_key: None,
        })
    }

    /// The locks that these arguments name. `--shared`, `--limit` and `--exclusive` are for all of them, and cannot stand
    /// beside a mode of a single lock.
    pub(crate) fn wanted(&self, args: &[LockArg]) -> Result<WantedLocks, CliError> {
        let (mode, flag) = match self.limit {
            Some(_) => (AcquireMode::Shared { limit: self.limit }, "--limit"),
            None if self.shared => (AcquireMode::Shared { limit: None }, "--shared"),
            None if self.exclusive => (AcquireMode::Exclusive, "--exclusive"),
            None => (AcquireMode::Declared, ""),
        };
        if mode != AcquireMode::Declared && args.iter().any(|arg| arg.mode.is_some()) {
            let why =
                "is for all locks; leave it out, or leave out what stands behind the = of a NAME";
            return Err(CliError::argument(flag, why));
        }
        if self.latest.is_some() && args.len() > 1 {
            let why = "is for one lock; leave it out, or name one lock";
            return Err(CliError::argument("--latest", why));
        }
        let names: Vec<_> = args.iter().map(|arg| arg.name.clone()).collect();
        let orders = self.orders()?.into_iter();
        let orders: BTreeMap<_, _> = orders.filter_map(|(name, n)| Some((name?, n))).collect();
        if let Some(name) = orders.keys().find(|name| !names.contains(name)) {
            let why = format!("names {name}, which is none of the locks of the command");
            return Err(CliError::argument("--order", why));
        }
        let modes = args
            .iter()
            .map(|arg| (arg.name.clone(), arg.mode.unwrap_or(mode)));
        Ok(WantedLocks {
            locks: Locks::from_names(&names)?,
            modes: modes.collect(),
            orders,
        })
    }

    /// The orders by the name of their lock; without a name, the order of all locks that are held alone.
    fn orders(&self) -> Result<BTreeMap<Option<LockName>, OrderNumber>, CliError> {
        let mut orders = BTreeMap::new();
        for (name, order) in &self.order {
            if orders.insert(name.clone(), *order).is_some() {
                return Err(CliError::argument("--order", "is there twice for one lock"));
            }
        }
        Ok(orders)
    }
}

// === impl LockArg ===

impl LockArg {
    /// Parses a command-line argument. No name contains `=`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, mode) = match text.split_once('=') {
            None => (text, None),
            Some((name, "shared")) => (name, Some(AcquireMode::Shared { limit: None })),
            Some((name, "exclusive")) => (name, Some(AcquireMode::Exclusive)),
            Some((name, number)) => {
                let limit = limit(number).map_err(|error| {
                    format!(
                        "behind the = stands shared, exclusive or a limit, and {number:?}: {error}"
                    )
                })?;
                (name, Some(AcquireMode::Shared { limit: Some(limit) }))
            }
        };
        let name = LockName::new(name).map_err(|error| error.to_string())?;
        Ok(Self { name, mode })
    }
}

// === impl WantedLocks ===

impl From<LockName> for WantedLocks {
    /// One lock for which the command line names no mode: it is held as it is declared, or else alone.
    fn from(name: LockName) -> Self {
        Self {
            modes: [(name.clone(), AcquireMode::Declared)].into(),
            orders: BTreeMap::new(),
            locks: Locks::One(name),
        }
    }
}

impl WantedLocks {
    /// The locks whose mode the command line does not name.
    pub(crate) fn without_mode(&self) -> Vec<LockName> {
        let modes = self.modes.iter();
        let unsaid = modes.filter(|(_, mode)| **mode == AcquireMode::Declared);
        unsaid.map(|(name, _)| name.clone()).collect()
    }

    /// Prepares an acquire of the locks.
    pub(crate) fn acquiring(self, client: &Client, request: AcquireRequest) -> Acquiring {
        match &self.locks {
            Locks::One(name) => {
                let mode = self.modes[name];
                let order = self.orders.get(name).copied().or(request.order);
                let request = AcquireRequest {
                    mode,
                    order,
                    ..request
                };
                client.acquiring(name.clone(), request)
            }
            Locks::All(_) => {
                let mut locks = GroupLocks::from(self.modes);
                for (name, order) in &self.orders {
                    locks = locks.with_order(name, *order);
                }
                client.acquiring_all(locks, request)
            }
        }
    }
}

// === impl Locks ===

impl Locks {
    /// The locks that the command line names, at least one.
    pub(crate) fn from_names(names: &[LockName]) -> Result<Self, CliError> {
        if let [name] = names {
            return Ok(Self::One(name.clone()));
        }
        let names = GroupNames::new(names.iter().cloned());
        let names = names.map_err(|error| CliError::argument("NAME", error));
        names.map(Self::All)
    }

    /// The lock, or the first of several.
    pub(crate) fn first(&self) -> &LockName {
        match self {
            Self::One(name) => name,
            Self::All(names) => &names.as_slice()[0],
        }
    }

    /// A text that names the locks in progress messages, until the gateway reports for which lock of a group the
    /// command waits.
    pub(crate) fn label(&self) -> String {
        let more = match self {
            Self::One(name) => return name.to_string(),
            Self::All(names) => names.as_slice().len() - 1,
        };
        format!("{} and {more} more", self.first())
    }
}

/// The lease of each lock that was acquired.
pub(crate) fn parts(lease: &Lease) -> Vec<LeasePart> {
    if lease.parts.is_empty() {
        return vec![LeasePart {
            name: lease.name.clone(),
            fence: lease.fence,
            mode: lease.mode,
        }];
    }
    lease.parts.clone()
}

/// Parses an order of the command line: `N`, or `NAME=N` for one lock.
fn order(text: &str) -> Result<(Option<LockName>, OrderNumber), String> {
    let (name, order) = match text.split_once('=') {
        None => (None, text),
        Some((name, order)) => (Some(LockName::new(name)), order),
    };
    let name = name.transpose().map_err(|error| error.to_string())?;
    Ok((name, number(order, OrderNumber::new)?))
}

fn limit(text: &str) -> Result<Limit, String> {
    number(text, Limit::new)
}

/// Parses a number from a command-line argument, and converts it with `new`.
pub(crate) fn number<T, E: ToString>(
    text: &str,
    new: impl FnOnce(u64) -> Result<T, E>,
) -> Result<T, String> {
    let number = text
        .parse()
        .map_err(|_invalid| "expected a whole number".to_owned())?;
    new(number).map_err(|error| error.to_string())
}

// === Metadata ===
//
// The option `--meta NAME=VALUE`.

/// Parses one `NAME=VALUE` of the option `--meta`.
pub(crate) fn entry(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// Makes metadata from the entries of `--meta`. A repeated name is an error, because it is unclear which value is
/// meant.
pub(crate) fn build_metadata(entries: &[(String, String)]) -> Result<Metadata, String> {
    let mut map = BTreeMap::new();
    for (name, value) in entries {
        if map.insert(name.clone(), value.clone()).is_some() {
            return Err(format!("has the entry {name:?} twice"));
        }
    }
    Metadata::new(map).map_err(|error| error.to_string())
}

// === Owner ===
//
// The default owner, if `--owner` is not given.

/// The default owner, `USER@HOST`. The process id is left out, because the process of the command ends before the
/// lease.
pub(crate) fn default(environment: &Environment) -> Option<Owner> {
    let user = environment
        .text("USER")
        .or_else(|| environment.text("LOGNAME"));
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let text = match user {
        Some(user) => format!("{user}@{host}"),
        None => host.into_owned(),
    };
    let text: String = text
        .chars()
        .filter(|c| !c.is_control())
        .take(Owner::MAX_CHARS)
        .collect();
    Owner::new(&text).ok()
}
