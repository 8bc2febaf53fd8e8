//! Reads server-sent events from bytes as they come.

/// Reads server-sent events from bytes as they come.
#[derive(Debug, Default)]
pub(super) struct EventParser {
    /// The beginning of a line that is not complete.
    line: Vec<u8>,
    name: String,
    data: String,
    /// The last id that was given, if it is not the one before.
    id: Option<String>,
}

/// One block of a stream, up to an empty line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Empty if it is no event.
    pub(super) name: String,
    pub(super) data: String,
    pub(super) id: Option<String>,
}

/// No line of a gateway is longer.
const LONGEST: usize = 64 * 1024;

/// What came is no stream of events.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

// === impl EventParser ===

impl EventParser {
    /// Takes bytes in and appends the blocks that are complete.
    pub(super) fn read(&mut self, bytes: &[u8], blocks: &mut Vec<Block>) -> Result<(), TooLong> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() > LONGEST {
                return Err(TooLong);
            }
            if self.line.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                blocks.extend(self.take_line(&String::from_utf8_lossy(&line)));
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &str) -> Option<Block> {
        let line = line.trim_end_matches(['\n', '\r']);
        if line.is_empty() {
            return Some(Block {
                name: std::mem::take(&mut self.name),
                data: std::mem::take(&mut self.data),
                id: self.id.take(),
            });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.data.push_str(value),
            "id" => self.id = Some(value.to_owned()),
            // Comments, and what later versions say.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ":\nretry: 2000\nid: a-0\n\nid: a-1\nevent: acquired\ndata: {\"n\":\"ä\"}\n\n:\r\nid:a-2\r\n\r\nevent: end\ndata: {}\n\n";

    fn block(id: Option<&str>, name: &str, data: &str) -> Block {
        Block {
            name: name.to_owned(),
            data: data.to_owned(),
            id: id.map(str::to_owned),
        }
    }

    #[test]
    fn reads_the_same_however_the_bytes_come() {
        let expected = [
            block(Some("a-0"), "", ""),
            block(Some("a-1"), "acquired", "{\"n\":\"ä\"}"),
            block(Some("a-2"), "", ""),
            block(None, "end", "{}"),
        ];
        for size in [1, 2, 7, STREAM.len()] {
            let (mut parser, mut blocks) = (EventParser::default(), Vec::new());
            for part in STREAM.as_bytes().chunks(size) {
                parser.read(part, &mut blocks).unwrap();
            }
            assert_eq!(blocks, expected, "{size} at a time");
        }
    }

    #[test]
    fn does_not_collect_without_end() {
        let (mut parser, mut blocks) = (EventParser::default(), Vec::new());
        let part = [b'x'; 1024];
        let refused = (0..LONGEST).find(|_| parser.read(&part, &mut blocks).is_err());
        assert_eq!(refused, Some(LONGEST / part.len()));
    }
}
