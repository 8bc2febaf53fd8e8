//! How far the frames of HTTP/2 have come that are read from a connection.

use std::mem;

/// Where in its frames a connection over HTTP/2 is, as the bytes tell that came.
#[derive(Debug)]
pub(super) struct Incoming {
    /// How much of the head of a frame has come.
    head: usize,
    /// How much is to follow the head, as far as it is known.
    length: usize,
    /// How much is left of what follows the head, or of the greeting.
    left: usize,
}

/// What the client says before its first frame.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What the head of a frame has: three bytes of length, the kind, the flags, the stream.
const HEAD: usize = 9;
const LENGTH: usize = 3;
const KIND: usize = 3;
/// The frames after which a connection may end: a ping, because it may answer ours that asks whether
/// the client has heard that we close, and the client's word that it closes.
const LAST: [u8; 2] = [6, 7];

// === impl Incoming ===

impl Default for Incoming {
    /// Nothing has come.
    fn default() -> Self {
        Self {
            head: 0,
            length: 0,
            left: GREETING.len(),
        }
    }
}

impl Incoming {
    /// These bytes came. If a frame begins with them after which the connection may end, only so many of
    /// them count that it is known, and not complete.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut passed = 0;
        while let Some(&byte) = bytes.get(passed) {
            if self.left > 0 {
                let more = self.left.min(bytes.len() - passed);
                self.left -= more;
                passed += more;
                continue;
            }
            passed += 1;
            if self.pass_head(byte) {
                return Some(passed);
            }
        }
        None
    }

    /// Whether this byte tells that the frame is one of the last.
    fn pass_head(&mut self, byte: u8) -> bool {
        let is_last = self.head == KIND && LAST.contains(&byte);
        if self.head < LENGTH {
            self.length = self.length << 8 | usize::from(byte);
        }
        self.head += 1;
        if self.head == HEAD {
            self.left = mem::take(&mut self.length);
            self.head = 0;
        }
        is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: &[u8] = b"\0\0\x03\0\0\0\0\0\x01\x06\x07\x06";
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0you here";
    const GOAWAY: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";

    #[test]
    fn what_may_be_the_last_frame_is_found_however_it_is_cut() {
        let sent = [GREETING, DATA, PING, DATA, GOAWAY].concat();
        let first = GREETING.len() + DATA.len();
        let stops = [first, first + PING.len() + DATA.len()].map(|at| at + KIND + 1);
        for piece in [1, 2, 5, 24, 25, 40, sent.len()] {
            let mut incoming = Incoming::default();
            let (mut at, mut found) = (0, Vec::new());
            while at < sent.len() {
                let end = sent.len().min(at + piece);
                match incoming.pass(&sent[at..end]) {
                    Some(passed) => {
                        at += passed;
                        found.push(at);
                    }
                    None => at = end,
                }
            }
            assert_eq!(found, stops, "in pieces of {piece}");
            assert_eq!((incoming.head, incoming.left), (0, 0));
        }
    }
}
