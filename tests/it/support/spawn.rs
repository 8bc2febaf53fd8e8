//! Starts other programs with the signal settings of an interactive shell, however the tests were started.

use std::{ffi::OsStr, process::Command, sync::Once, thread};

use nix::sys::signal::SigSet;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};

/// A command whose process starts with default signal dispositions and an unblocked mask. Without this, the process
/// would inherit the signals that `nohup`, or a shell with background jobs, made this process ignore.
///
/// The mask belongs to the thread that spawns the process, so the thread that calls this must spawn it.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    static HANDLED: Once = Once::new();
    // A separate thread, because a Tokio runtime cannot be dropped inside another runtime.
    HANDLED.call_once(|| thread::spawn(handle_what_is_ignored).join().unwrap());
    SigSet::empty().thread_set_mask().unwrap();
    Command::new(program)
}

/// Installs a handler that does nothing for each ignored signal. This process still ignores the signal, but a child
/// gets its default disposition.
fn handle_what_is_ignored() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    let mut builder = runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().build().unwrap();
    let _entered = runtime.enter();
    // Signals 32 and 33 belong to glibc, whose `posix_spawn` makes children ignore them.
    let numbers = (1..=31).chain(34..=64);
    for number in numbers.filter(|number| ignored >> (number - 1) & 1 == 1) {
        // The handler stays when the stream is dropped.
        drop(signal(SignalKind::from_raw(number)).unwrap());
    }
}
