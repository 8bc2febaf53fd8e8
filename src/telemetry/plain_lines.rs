//! Log lines that show no other text than the one that is there.

use std::{
    borrow::Cow,
    io::{self, Write},
};

/// A writer to which whole lines are written, and which escapes what is not seen in them: names and
/// error messages of others must not pretend to be something else.
pub(super) struct PlainLines<W> {
    inner: W,
    escape: fn(&str) -> Cow<'_, str>,
}

// === impl PlainLines ===

impl<W: Write> PlainLines<W> {
    /// `escape`: how the format of the lines names such a character.
    pub(super) fn new(inner: W, escape: fn(&str) -> Cow<'_, str>) -> Self {
        Self { inner, escape }
    }
}

impl<W: Write> Write for PlainLines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match str::from_utf8(line) {
            Ok(text) => self.inner.write_all((self.escape)(text).as_bytes())?,
            // Not a line of ours.
            Err(_) => self.inner.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
