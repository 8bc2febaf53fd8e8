//! Starting other programs so that they begin as from an interactive shell, whoever started the tests.

use std::{ffi::OsStr, process::Command, sync::Once, thread};

use nix::sys::signal::SigSet;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};

/// A command whose process starts with default signal dispositions and an unblocked mask: `nohup` and a
/// shell that starts this process in the background have some ignored, which children inherit.
///
/// The mask is that of the thread that spawns it, which must be the one that calls this.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    static HANDLED: Once = Once::new();
    // In a thread of its own, because a runtime cannot be dropped where another one runs.
    HANDLED.call_once(|| thread::spawn(handle_what_is_ignored).join().unwrap());
    SigSet::empty().thread_set_mask().unwrap();
    Command::new(program)
}

/// Has a handler that does nothing in the place of each ignored signal: this process goes on to ignore it,
/// but what has a handler has its default again in a child.
fn handle_what_is_ignored() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    let mut builder = runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().build().unwrap();
    let _entered = runtime.enter();
    // 32 and 33 belong to glibc, whose `posix_spawn` has them ignored.
    let numbers = (1..=31).chain(34..=64);
    for number in numbers.filter(|number| ignored >> (number - 1) & 1 == 1) {
        // The handler stays when the stream is dropped.
        drop(signal(SignalKind::from_raw(number)).unwrap());
    }
}
