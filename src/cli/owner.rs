//! Who says that they asked, where `--owner` does not.

use crate::lock::Owner;

use super::environment::Environment;

/// `USER@HOST`, as a shell's prompt would have it. Not the process: it ends before the lease.
pub(super) fn default(environment: &Environment) -> Option<Owner> {
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
