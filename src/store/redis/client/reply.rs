//! The reply of a script: its kind, the echo that shows which command it answers, and its fields.

use std::vec;

use bb8_redis::redis::Value;
use tokio::time::{Duration, Instant};

use crate::{
    lock::ForeignMark,
    store::{StoreError, Unavailability, Uncertainty, contract::Loss},
};

use super::{super::keys::Keys, identity::RunId};

/// A script's reply that answers our command, as the echo in the reply shows.
#[derive(Debug)]
pub(crate) struct Reply {
    kind: String,
    fields: Fields,
    /// When the answered command was sent: the times in the reply count from then.
    sent: Instant,
    by: Option<RunId>,
    /// Time until the lock in the reply may pass to a waiter, if shared leases hold it.
    next_look: Option<Duration>,
}

/// The fields of a script's reply, which follow its kind and its echo.
#[derive(Debug)]
enum Fields {
    /// Fields in one text: each field is its length, a colon, and its content.
    Flat(Flat),
    /// Fields in a list of values, as some scripts answer.
    Values(vec::IntoIter<Value>),
}

/// The fields of a reply in one text, of which the fields before `at` have been read.
#[derive(Debug)]
struct Flat {
    text: Vec<u8>,
    at: usize,
}

/// Maximum length to which a text of another program is shown, in characters: more than any version number has.
const LONGEST_FOREIGN: usize = 32;
/// Maximum number of digits in the length of a reply's field.
const LONGEST_LENGTH: usize = 9;

// === impl Reply ===

impl Reply {
    /// Parses the reply to a command that was sent at `sent`. A reply that does not repeat `echo` answers another
    /// command, which is an error.
    pub(crate) fn read(value: Value, echo: &str, sent: Instant) -> Result<Self, String> {
        let another = || "an answer to another command".to_owned();
        let (kind, fields) = match value {
            Value::BulkString(text) => {
                let kind = text.iter().position(|&byte| byte == b' ');
                let kind = kind.ok_or_else(another)?;
                let rest = text[kind + 1..].strip_prefix(echo.as_bytes());
                rest.and_then(|rest| rest.strip_prefix(b" "))
                    .ok_or_else(another)?;
                let at = kind + echo.len() + 2;
                (text[..kind].to_vec(), Fields::Flat(Flat { text, at }))
            }
            Value::Array(fields) => {
                let mut fields = fields.into_iter();
                match (fields.next(), fields.next()) {
                    (Some(Value::BulkString(kind)), Some(Value::BulkString(echoed)))
                        if echoed == echo.as_bytes() =>
                    {
                        (kind, Fields::Values(fields))
                    }
                    _ => return Err(another()),
                }
            }
            _ => return Err("neither text nor list".to_owned()),
        };
        Ok(Self {
            kind: String::from_utf8(kind).map_err(|_| "no kind".to_owned())?,
            ..Self::of_fields(fields, sent)
        })
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// Makes a reply without a kind from these fields.
    fn of_fields(fields: Fields, sent: Instant) -> Self {
        Self {
            kind: String::new(),
            fields,
            sent,
            by: None,
            next_look: None,
        }
    }

    /// The same reply, with the run of the server that gave the reply.
    pub(crate) fn by(self, run: Option<&RunId>) -> Self {
        Self {
            by: run.cloned(),
            ..self
        }
    }

    /// When the answered command was sent. The store decided later than that.
    pub(crate) fn sent(&self) -> Instant {
        self.sent
    }

    /// Time until the lock in the reply may pass to a waiter; `None` if the lock is not shared, or its leases were
    /// not read yet.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        self.next_look
    }

    pub(crate) fn note_next_look(&mut self, after: Duration) {
        self.next_look = Some(after);
    }

    /// Which run of which server gave the reply, if the server was asked for its run.
    pub(crate) fn run(&self) -> Option<&RunId> {
        self.by.as_ref()
    }

    pub(crate) fn integer(&mut self) -> Option<i64> {
        match &mut self.fields {
            Fields::Flat(flat) => std::str::from_utf8(flat.next()?).ok()?.parse().ok(),
            Fields::Values(values) => match values.next() {
                Some(Value::Int(number)) => Some(number),
                _ => None,
            },
        }
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn bytes(&mut self) -> Option<Vec<u8>> {
        match &mut self.fields {
            Fields::Flat(flat) => flat.next().map(<[u8]>::to_vec),
            Fields::Values(values) => match values.next() {
                Some(Value::BulkString(bytes)) => Some(bytes),
                _ => None,
            },
        }
    }

    /// Reads the next field of the reply as a text, without copying it; `None` if the reply is a list.
    pub(crate) fn str(&mut self) -> Option<&str> {
        match &mut self.fields {
            Fields::Flat(flat) => std::str::from_utf8(flat.next()?).ok(),
            Fields::Values(_) => None,
        }
    }

    /// Reads the next field of the reply as a text of further fields; `None` if no field is left.
    pub(crate) fn nested(&mut self) -> Option<Self> {
        let text = self.bytes()?;
        Some(Self::of_fields(
            Fields::Flat(Flat { text, at: 0 }),
            self.sent,
        ))
    }

    /// Whether all fields of the reply have been read.
    pub(crate) fn is_over(&self) -> bool {
        match &self.fields {
            Fields::Flat(flat) => flat.at == flat.text.len(),
            Fields::Values(values) => values.len() == 0,
        }
    }

    /// Reads the next field of the reply as a text that another program wrote, and makes the text fit to show: short,
    /// and in one line.
    pub(crate) fn foreign_text(&mut self) -> Option<String> {
        let bytes = self.bytes()?;
        let text = String::from_utf8_lossy(&bytes);
        let mut shown: String = text.chars().take(LONGEST_FOREIGN).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Some(shown.escape_debug().to_string())
    }

    /// The error for a reply of a kind that the script never gives.
    pub(crate) fn unexpected(&self) -> StoreError {
        Uncertainty::UnexpectedReply(format!("{:?} with unknown fields", self.kind)).into()
    }
}

// === impl Flat ===

impl Flat {
    /// Reads the next field of the text; `None` if the text ends, or if no valid field follows.
    fn next(&mut self) -> Option<&[u8]> {
        let rest = &self.text[self.at..];
        let digits = rest.iter().take(LONGEST_LENGTH + 1);
        let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
        if !(1..=LONGEST_LENGTH).contains(&digits) || rest.get(digits) != Some(&b':') {
            return None;
        }
        let length: usize = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
        let field = rest.get(digits + 1..digits + 1 + length)?;
        self.at += digits + 1 + length;
        Some(field)
    }
}

// === Refusal ===
//
// Reads why a script that grants locks did nothing.

// === impl Reply ===

impl Reply {
    /// Reads from the reply why the script granted nothing, for reasons that concern every caller. A reply of any other
    /// kind is unexpected.
    pub(crate) fn refusal(&mut self, keys: &Keys) -> StoreError {
        match self.kind() {
            "exhausted" => StoreError::FenceExhausted,
            "clock" => match self.integer() {
                Some(seconds) => Unavailability::Clock(format!("{seconds} s since 1970")).into(),
                None => self.unexpected(),
            },
            "counter" => StoreError::ForeignData {
                key: keys.fence().to_owned(),
                found: "a counter that is not a number and".into(),
            },
            _ => self.unexpected(),
        }
    }
}

// === Fields of a lock ===
//
// Fields of a lock that the scripts of all Redis stores write in the same way.

// === impl Reply ===

impl Reply {
    /// Reads the mark of a foreign lock: a hash of the value that another program wrote.
    pub(crate) fn mark(&mut self) -> Option<ForeignMark> {
        ForeignMark::new(&self.text()?).ok()
    }

    /// Reads from a reply how the token lost a lease that was broken.
    pub(crate) fn broken(&mut self) -> Result<Loss, StoreError> {
        match self.integer() {
            Some(held @ (0 | 1)) => Ok(Loss::Broken { held: held == 1 }),
            _ => Err(self.unexpected()),
        }
    }
}

// === Fuzzed ===

/// For the fuzzers: passes any bytes as a reply to each reader, and returns the outcomes as a text. Panics if a reply
/// without the echo is accepted, or if the outcome has control characters.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzzed(bytes: &[u8], readers: &[fn(&mut Reply, &Keys) -> String]) -> String {
    use crate::{
        lock::LockName,
        store::redis::{SlotTags, keys::GatewayId},
    };

    static KEYS: std::sync::LazyLock<Keys> = std::sync::LazyLock::new(|| {
        let name = LockName::new("a").expect("it is one letter");
        Keys::for_lock(&name, &SlotTags::compute(), &GatewayId::random())
    });
    /// The echo that every reply must repeat.
    const ECHO: &str = "e";
    let Ok(value) = bb8_redis::redis::parse_redis_value(bytes) else {
        return "no RESP".to_owned();
    };
    let mut outcome = String::new();
    for reader in readers {
        match Reply::read(value.clone(), ECHO, Instant::now()) {
            Err(why) => outcome += &why,
            Ok(mut reply) => {
                assert!(
                    bytes
                        .windows(ECHO.len())
                        .any(|part| part == ECHO.as_bytes())
                );
                let seen = reader(&mut reply, &KEYS);
                assert!(!seen.contains(char::is_control), "{seen:?}");
                outcome += &seen;
            }
        }
    }
    outcome
}

/// For the fuzzers: the outcome of a reader as a text. The values that were read are left out, because they add
/// nothing.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn shown<T>(read: Result<T, impl ToString>) -> String {
    read.map_or_else(|error| error.to_string(), |_| "taken".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{super::resp::text, *};

    fn read(value: Value, echo: &str) -> Result<Reply, String> {
        Reply::read(value, echo, Instant::now())
    }

    #[test]
    fn must_repeat_what_it_answers() {
        let value = |echo| Value::Array(vec![text("free"), text(echo), Value::Int(3)]);
        let mut reply = read(value("a"), "a").unwrap();
        assert_eq!(reply.kind(), "free");
        assert_eq!((reply.integer(), reply.integer()), (Some(3), None));
        assert!(read(value("b"), "a").is_err());
        assert!(read(Value::Array(vec![text("free")]), "a").is_err());
        assert!(read(Value::Int(1), "a").is_err());
    }

    #[test]
    fn one_text_is_taken_apart_into_its_fields() {
        let mut reply = read(text("held a:b 1:73:a:x5:3:abc2:-x"), "a:b").unwrap();
        assert_eq!(reply.kind(), "held");
        assert_eq!(reply.integer(), Some(7));
        assert_eq!(reply.text().as_deref(), Some("a:x"));
        let mut nested = reply.nested().unwrap();
        assert_eq!(nested.str(), Some("abc"));
        assert!(nested.str().is_none());
        assert_eq!(reply.integer(), None);
        for other in ["held", "held a:b", "held a:c 1:7", "held a:bc 1:7"] {
            assert!(read(text(other), "a:b").is_err(), "{other}");
        }
        for odd in [
            "",
            "1",
            "1:",
            "3:ab",
            ":a",
            "x:a",
            "+1:a",
            "9999999999:a",
            "-1:a",
        ] {
            let mut reply = read(text(&format!("held a {odd}")), "a").unwrap();
            assert_eq!(reply.text(), None, "{odd}");
        }
    }

    #[test]
    fn shows_of_what_somebody_else_has_written_a_little_and_in_one_line() {
        let shown = |bytes: &[u8]| {
            let value = Value::BulkString(bytes.to_vec());
            let fields = Fields::Values(vec![value].into_iter());
            Reply::of_fields(fields, Instant::now()).foreign_text()
        };
        assert_eq!(shown(b"2").as_deref(), Some("2"));
        let long = shown(&[b'9'; 5_000]).unwrap();
        assert_eq!(long, format!("{}…", "9".repeat(LONGEST_FOREIGN)));
        let odd = shown("a\nb\u{1b}[31m\u{202e}\"".as_bytes()).unwrap();
        assert_eq!(odd, "a\\nb\\u{1b}[31m\\u{202e}\\\"");
        assert_eq!(shown(b"\xff").as_deref(), Some("\u{fffd}"));
        let number = Fields::Values(vec![Value::Int(2)].into_iter());
        assert_eq!(
            Reply::of_fields(number, Instant::now()).foreign_text(),
            None
        );
    }

    #[test]
    fn shows_no_field_in_its_error() {
        let reply = read(Value::Array(vec![text("odd"), text("a"), text("x9")]), "a");
        assert!(!reply.unwrap().unexpected().to_string().contains("x9"));
    }
}
