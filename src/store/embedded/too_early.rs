//! A known-wrong variant: answers before anything is written.

use std::{thread, time::Duration};

use crate::mutants::{self, Mutant};

use super::{command::Done, moment::Moment, writer::Writer};

/// For so long it is answered and not written.
const LATE: Duration = Duration::from_millis(300);

// === impl Writer ===

impl Writer {
    /// Answers at once, if this is that variant; who is still to be answered otherwise.
    pub(super) fn too_early(&mut self, done: Vec<Done>, now: Moment) -> Vec<Done> {
        if !mutants::is(Mutant::AnswerBeforeFsync) {
            return done;
        }
        self.answer(done, now);
        thread::sleep(LATE);
        Vec::new()
    }
}
