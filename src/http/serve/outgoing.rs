//! How far the frames of HTTP/2 have come that are written to a connection.

/// Where in its frames a connection over HTTP/2 is, as the bytes tell that were written.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// How much of the head of a frame has been written.
    head: usize,
    /// How much is to follow the head, as far as it is known.
    length: u32,
    kind: u8,
    /// Whether the headers of a message have begun, and not come to their end: nothing may stand between
    /// the frames of one.
    is_within_headers: bool,
    /// How much is left of what follows the head.
    left: u32,
}

/// What the head of a frame has: three bytes of length, the kind, the flags, the stream.
const HEAD: usize = 9;
const LENGTH: usize = 3;
const KIND: usize = 3;
const FLAGS: usize = 4;
/// The kinds of frames with headers: the first, those of a push, the others.
const HEADERS: [u8; 3] = [1, 5, 9];
/// The flag of the last of them.
const END_HEADERS: u8 = 4;

// === impl Outgoing ===

impl Outgoing {
    /// Whether a frame may be put in here.
    pub(super) fn is_between_frames(&self) -> bool {
        self.head == 0 && self.left == 0 && !self.is_within_headers
    }

    /// These bytes were written.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.left > 0 {
                let passed = bytes.len().min(self.left as usize);
                self.left -= u32::try_from(passed).expect("no more than is left");
                bytes = &bytes[passed..];
            } else {
                self.pass_head(byte);
                bytes = rest;
            }
        }
    }

    fn pass_head(&mut self, byte: u8) {
        match self.head {
            ..LENGTH => self.length = self.length << 8 | u32::from(byte),
            KIND => self.kind = byte,
            FLAGS if HEADERS.contains(&self.kind) => {
                self.is_within_headers = byte & END_HEADERS == 0;
            }
            _ => {}
        }
        self.head += 1;
        if self.head == HEAD {
            self.left = std::mem::take(&mut self.length);
            self.head = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let [_, length_bytes @ ..] = u32::try_from(length).unwrap().to_be_bytes();
        let head = [&length_bytes[..], &[kind, flags, 0, 0, 0, 1]].concat();
        [head, vec![b'x'; length]].concat()
    }

    #[test]
    fn is_between_frames_after_each_but_within_headers_however_the_bytes_are_cut() {
        let frames = [
            (frame(4, 0, 0), true),
            (frame(1, 0, 70_000), false),
            (frame(9, 0, 1), false),
            (frame(9, END_HEADERS, 300), true),
            (frame(0, 1, 16_384), true),
            (frame(1, END_HEADERS | 1, 20), true),
        ];
        for cut in [1, 2, 8, 10, 100_000] {
            let mut outgoing = Outgoing::default();
            assert!(outgoing.is_between_frames());
            for (frame, is_between) in &frames {
                let (last, others) = frame.split_last().unwrap();
                for piece in others.chunks(cut) {
                    outgoing.pass(piece);
                    assert!(!outgoing.is_between_frames());
                }
                outgoing.pass(&[*last]);
                assert_eq!(outgoing.is_between_frames(), *is_between);
            }
        }
    }
}
