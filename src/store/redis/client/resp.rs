//! Parses the replies of a server (RESP2) from the bytes that have arrived so far.

use bb8_redis::redis::{Value, parse_redis_value};
use bytes::{Buf, BytesMut};

/// The state of the reply parser: lists whose end has not arrived yet.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    /// The incomplete lists, the innermost last: how many elements each list still lacks, and the elements that it has.
    open: Vec<(usize, Vec<Value>)>,
}

/// What the unread bytes of a reply begin with.
enum Element {
    Whole(Value),
    /// The header of a list, whose elements follow.
    Opens,
    /// An element of a reply that has not arrived completely.
    Missing,
}

/// The error for bytes that are no reply of a Redis server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProtocolError;

/// Maximum depth of nested lists in a reply. Our scripts and `CLUSTER SLOTS` nest lists four deep.
const DEEPEST: usize = 16;
/// Maximum length of a line in a reply, in bytes: more than any error, number or header has.
const LONGEST_LINE: usize = 64 * 1_024;
/// Maximum length of a text in a reply, in bytes: Redis stores no longer text.
const LONGEST_TEXT: usize = 512 * 1_024 * 1_024;
/// Maximum number of list elements for which memory is reserved in advance: a header alone must not reserve much
/// memory.
const EXPECTED: usize = 64;

// === impl Replies ===

impl Replies {
    /// Takes the next reply from `input`; `None` while it has not arrived completely.
    pub(crate) fn next(&mut self, input: &mut BytesMut) -> Result<Option<Value>, ProtocolError> {
        loop {
            let mut value = match self.element(input)? {
                Element::Whole(value) => value,
                Element::Opens => continue,
                Element::Missing => return Ok(None),
            };
            loop {
                let Some((missing, elements)) = self.open.last_mut() else {
                    return Ok(Some(value));
                };
                elements.push(value);
                *missing -= 1;
                if *missing > 0 {
                    break;
                }
                let (_, elements) = self.open.pop().ok_or(ProtocolError)?;
                value = Value::Array(elements);
            }
        }
    }

    fn element(&mut self, input: &mut BytesMut) -> Result<Element, ProtocolError> {
        let Some(end) = input.iter().take(LONGEST_LINE).position(|&b| b == b'\n') else {
            return if input.len() < LONGEST_LINE {
                Ok(Element::Missing)
            } else {
                Err(ProtocolError)
            };
        };
        let (&kind, line) = match input[..end].split_first() {
            Some((kind, line)) => (kind, line.strip_suffix(b"\r").ok_or(ProtocolError)?),
            None => return Err(ProtocolError),
        };
        let value = match kind {
            b':' => Value::Int(number(line)?),
            b'+' if line == b"OK" => Value::Okay,
            b'+' => Value::SimpleString(String::from_utf8_lossy(line).into_owned()),
            b'-' => error(line)?,
            b'$' => match number(line)? {
                -1 => Value::Nil,
                length => {
                    let length = usize::try_from(length).map_err(|_negative| ProtocolError)?;
                    if length > LONGEST_TEXT {
                        return Err(ProtocolError);
                    }
                    let begin = end + 1;
                    if input.len() < begin + length + 2 {
                        return Ok(Element::Missing);
                    }
                    let (text, rest) = input[begin..].split_at(length);
                    if !rest.starts_with(b"\r\n") {
                        return Err(ProtocolError);
                    }
                    let text = text.to_vec();
                    input.advance(begin + length + 2);
                    return Ok(Element::Whole(Value::BulkString(text)));
                }
            },
            b'*' => match number(line)? {
                -1 => Value::Nil,
                0 => Value::Array(Vec::new()),
                count => {
                    let count = usize::try_from(count).map_err(|_negative| ProtocolError)?;
                    if self.open.len() >= DEEPEST {
                        return Err(ProtocolError);
                    }
                    self.open
                        .push((count, Vec::with_capacity(count.min(EXPECTED))));
                    input.advance(end + 1);
                    return Ok(Element::Opens);
                }
            },
            _ => return Err(ProtocolError),
        };
        input.advance(end + 1);
        Ok(Element::Whole(value))
    }
}

fn number(digits: &[u8]) -> Result<i64, ProtocolError> {
    let digits = std::str::from_utf8(digits).map_err(|_| ProtocolError)?;
    digits.parse().map_err(|_| ProtocolError)
}

/// Parses an error line of a reply with the library, because only the library can create an error. Errors are rare, so
/// this need not be fast.
fn error(line: &[u8]) -> Result<Value, ProtocolError> {
    let line = format!("-{}\r\n", String::from_utf8_lossy(line));
    parse_redis_value(line.as_bytes()).map_err(|_| ProtocolError)
}

/// A text as a server sends it in a reply: a bulk string.
#[cfg(test)]
pub(crate) fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses replies from bytes that arrive `at_once` at a time.
    fn read(bytes: &[u8], at_once: usize) -> Result<Vec<Value>, ProtocolError> {
        let (mut replies, mut input) = (Replies::default(), BytesMut::new());
        let mut values = Vec::new();
        for some in bytes.chunks(at_once) {
            input.extend_from_slice(some);
            while let Some(value) = replies.next(&mut input)? {
                values.push(value);
            }
        }
        assert!(values.is_empty() || input.is_empty(), "{input:?}");
        Ok(values)
    }

    #[test]
    fn reads_every_reply_as_the_library_does_however_the_bytes_come() {
        let all = [
            "+OK\r\n",
            "+PONG\r\n",
            ":-17\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "$0\r\n\r\n",
            "$5\r\na\r\nb\n\r\n",
            "*0\r\n",
            "*2\r\n$1\r\na\r\n:3\r\n",
            "*3\r\n*2\r\n:1\r\n*1\r\n+x\r\n-MOVED 7 h:1\r\n$2\r\nab\r\n",
            "-NOSCRIPT No matching script.\r\n",
            "-ERR\r\n",
        ];
        let expected: Vec<_> = all
            .iter()
            .map(|bytes| parse_redis_value(bytes.as_bytes()).unwrap())
            .collect();
        for at_once in 1..=all.concat().len() {
            let values = read(all.concat().as_bytes(), at_once);
            assert_eq!(values.as_ref(), Ok(&expected), "{at_once}");
        }
    }

    #[test]
    fn refuses_what_no_redis_sends() {
        let deep = "*1\r\n".repeat(DEEPEST + 1);
        let long = "+".repeat(LONGEST_LINE + 1);
        for bytes in [
            "HTTP/1.1 400 Bad Request\r\n",
            "\r\n",
            "\n",
            "+OK\n",
            "$-2\r\n",
            "$x\r\n",
            "$2\r\nabc\r\n",
            "*-2\r\n",
            ":1.5\r\n",
            "$99999999999\r\n",
            "%1\r\n+a\r\n+b\r\n",
            &deep,
            &long,
        ] {
            assert_eq!(read(bytes.as_bytes(), 7), Err(ProtocolError), "{bytes:.40}");
        }
    }
}
