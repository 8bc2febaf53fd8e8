//! A call of a script, packed while it is filled as it is sent: the most frequent command is written once.

use std::io;

use bb8_redis::redis::{Cmd, RedisWrite, ToRedisArgs};

use crate::lock::Ttl;

/// A command whose arguments are bulk strings, in their order.
pub(crate) struct ScriptCall {
    /// The arguments as RESP writes them, without the line before them that says how many they are.
    packed: Vec<u8>,
    arguments: usize,
}

/// An argument that is being written; complete when this is dropped.
struct ArgumentWriter<'a> {
    call: &'a mut ScriptCall,
    argument: Vec<u8>,
}

// === impl ScriptCall ===

impl ScriptCall {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self {
            packed: Vec::with_capacity(bytes),
            arguments: 0,
        }
    }

    /// Appends what the value has to say, in one argument or several.
    pub(crate) fn arg(&mut self, value: impl ToRedisArgs) -> &mut Self {
        value.write_redis_args(self);
        self
    }

    /// Appends a TTL in milliseconds, or an empty argument.
    pub(crate) fn arg_ttl(&mut self, ttl: Option<Ttl>) -> &mut Self {
        match ttl {
            Some(ttl) => self.arg(ttl.as_millis()),
            None => self.arg(""),
        }
    }

    /// How many bytes the arguments take.
    pub(crate) fn size(&self) -> usize {
        self.packed.len()
    }

    /// The arguments, in their order.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.packed.as_slice();
        std::iter::from_fn(move || {
            let end = rest.iter().position(|&byte| byte == b'\r')?;
            let digits = rest[1..end].iter();
            let length = digits.fold(0, |sum, digit| 10 * sum + usize::from(digit - b'0'));
            let argument = rest.get(end + 2..end + 2 + length)?;
            rest = &rest[end + 2 + length + 2..];
            Some(argument)
        })
    }

    /// The same as a command of the library, for a pipeline.
    pub(crate) fn as_command(&self) -> Cmd {
        let mut command = Cmd::with_capacity(self.arguments, self.packed.len());
        self.arguments().for_each(|argument| {
            command.arg(argument);
        });
        command
    }

    /// Appends it as it is sent.
    pub(crate) fn write_to(&self, unsent: &mut Vec<u8>) {
        unsent.reserve(self.packed.len() + LENGTH_LINE);
        write_length(unsent, b'*', self.arguments);
        unsent.extend_from_slice(&self.packed);
    }
}

impl RedisWrite for ScriptCall {
    fn write_arg(&mut self, argument: &[u8]) {
        self.arguments += 1;
        self.packed.reserve(argument.len() + LENGTH_LINE + 2);
        write_length(&mut self.packed, b'$', argument.len());
        self.packed.extend_from_slice(argument);
        self.packed.extend_from_slice(b"\r\n");
    }

    fn writer_for_next_arg(&mut self) -> impl io::Write + '_ {
        ArgumentWriter {
            call: self,
            argument: Vec::new(),
        }
    }
}

/// The longest line that says a length: a sign, 20 digits, and its end.
const LENGTH_LINE: usize = 23;

fn write_length(packed: &mut Vec<u8>, sign: u8, length: usize) {
    let (mut line, mut begin, mut rest) = ([0; LENGTH_LINE], LENGTH_LINE - 2, length);
    line[begin..].copy_from_slice(b"\r\n");
    loop {
        begin -= 1;
        line[begin] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    line[begin - 1] = sign;
    packed.extend_from_slice(&line[begin - 1..]);
}

// === impl ArgumentWriter ===

impl io::Write for ArgumentWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.argument.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for ArgumentWriter<'_> {
    fn drop(&mut self) {
        self.call.write_arg(&self.argument);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn is_written_as_the_library_writes_it() {
        let long = "x".repeat(1_000);
        let mut call = ScriptCall::with_capacity(0);
        call.arg("EVALSHA").arg("").arg("a\r\nb").arg(-17_i64);
        call.arg(u64::MAX).arg(&long).arg([1_u8, 0, 255].as_slice());
        call.writer_for_next_arg().write_all(b"$3\r\nxyz").unwrap();
        let command = call.as_command();
        let mut ours = b"before".to_vec();
        call.write_to(&mut ours);
        let mut theirs = b"before".to_vec();
        command.write_packed_command(&mut theirs);
        assert_eq!(ours, theirs);
        let arguments: Vec<_> = call.arguments().collect();
        assert_eq!(arguments.len(), 8);
        assert_eq!(arguments[1..4], [&b""[..], b"a\r\nb", b"-17"]);
        assert_eq!(arguments[7], b"$3\r\nxyz");
    }
}
