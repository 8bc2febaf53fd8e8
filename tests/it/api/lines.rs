//! What the program logs, for tests to read.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
};

use tracing::{Dispatch, Level, subscriber::NoSubscriber};
use tracing_subscriber::fmt::MakeWriter;

/// What was logged.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

// === impl Lines ===

impl Lines {
    pub(crate) fn read(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Logs everything of this thread here until the guard is dropped.
    pub(crate) fn collect(&self) -> tracing::subscriber::DefaultGuard {
        // With only one subscriber in the process, whoever first comes by a line of the program
        // decides whether it is ever logged, and that may be a thread that collects nothing.
        static ANOTHER: OnceLock<Dispatch> = OnceLock::new();
        ANOTHER.get_or_init(|| Dispatch::new(NoSubscriber::new()));
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::TRACE)
            .with_ansi(false)
            .with_writer(self.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
