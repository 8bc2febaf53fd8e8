//! A JSON value as it was given, before anybody knows whether it fits.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};

/// A JSON value. Unlike [`serde_json::Value`] it refuses an object with a repeated key: whoever
/// reads the other copy than we do would see a different request.
pub(super) enum JsonValue<'a> {
    Null,
    Bool,
    Whole(u64),
    Negative(i64),
    Fraction(f64),
    Text(Cow<'a, str>),
    List,
    Object(Object<'a>),
}

/// The entries of an object, in the order in which they were given.
pub(super) type Object<'a> = Vec<(Cow<'a, str>, JsonValue<'a>)>;

struct JsonValueVisitor;

/// As many keys as a body has that is right.
const FEW: usize = 16;

/// A key of an object, borrowed if it has no escapes.
struct Key<'a>(Cow<'a, str>);

struct KeyVisitor;

// === impl JsonValue ===

impl JsonValue<'_> {
    /// What it is, to be read after a field's name. A text is not repeated: it may be a secret.
    pub(super) fn is(&self) -> String {
        match self {
            Self::Null => "is null".to_owned(),
            Self::Bool => "is true or false".to_owned(),
            Self::Whole(number) => format!("is {number}"),
            Self::Negative(number) => format!("is {number}"),
            // The sign is all that keeps it from being a whole number.
            Self::Fraction(number) if *number == 0.0 && number.is_sign_negative() => {
                "is -0".to_owned()
            }
            Self::Fraction(number) if *number < -9e15 || *number > 9e15 => {
                format!("is {number:e}")
            }
            Self::Fraction(number) => format!("is {number:?}"),
            Self::Text(_) => "is a text".to_owned(),
            Self::List => "is a list".to_owned(),
            Self::Object(_) => "is an object".to_owned(),
        }
    }
}

impl<'de> Deserialize<'de> for JsonValue<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonValueVisitor)
    }
}

// === impl JsonValueVisitor ===

impl<'de> Visitor<'de> for JsonValueVisitor {
    type Value = JsonValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue::Bool)
    }

    fn visit_u64<E>(self, number: u64) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue::Whole(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue::Negative(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue::Fraction(number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<JsonValue<'de>, A::Error> {
        // Every element is read like any other value: a repeated key is refused at any depth.
        while list.next_element::<JsonValue<'de>>()?.is_some() {}
        Ok(JsonValue::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonValue<'de>, A::Error> {
        let mut entries = Object::new();
        // Of a few keys each is compared with each; of many that would take the square of their number.
        let mut many = HashSet::new();
        while let Some((Key(key), value)) = map.next_entry()? {
            if entries.len() == FEW {
                many.extend(entries.iter().map(|(key, _)| key.clone()));
            }
            let is_repeated = if entries.len() < FEW {
                entries.iter().any(|(other, _)| *other == key)
            } else {
                !many.insert(key.clone())
            };
            if is_repeated {
                return Err(A::Error::custom(format_args!(
                    "the key {key:?} is repeated"
                )));
            }
            entries.push((key, value));
        }
        Ok(JsonValue::Object(entries))
    }
}

// === impl Key ===

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyVisitor).map(Self)
    }
}

// === impl KeyVisitor ===

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E>(self, key: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}
