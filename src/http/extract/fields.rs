//! The fields of a JSON body or of a query, taken one by one while all errors are collected.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    fmt::{self, Display},
    ops::Range,
};

use http::Method;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};

use crate::{
    config::LimitsConfig,
    http::problem::{FieldError, Problem},
};

use super::field::{Field, Kind};

/// The fields of a request that no reader has taken yet, and the errors of the fields taken so far.
///
/// In a body a field with `null` counts as left out. A field that no reader takes is unknown, and is refused.
pub(in crate::http) struct Fields<'a> {
    pub(in crate::http) limits: &'a LimitsConfig,
    place: Place<'a>,
    left: Object<'a>,
    /// The fields that the handler has read. Any other field of the request is refused as unknown.
    known: [Option<&'static Field>; USUAL_FIELDS],
    /// Further fields that the handler has read. A request with the usual number of fields allocates nothing for this list.
    more: Vec<&'static Field>,
    errors: Vec<FieldError>,
}

/// The part of a request that has the fields.
pub(super) enum Place<'a> {
    /// The fields stand in a body.
    Body,
    /// The fields stand in the query of a request with this method.
    Query(&'a Method),
    /// The fields stand in an object in a body; the text is the place of the object, such as `names[1]`.
    Element(String),
}

/// How many errors an answer names: a person reads no more, and the body may have thousands.
const NAMED: usize = 16;
/// How many fields the handlers ask for at most today. A handler that asks for more costs its requests an allocation.
const USUAL_FIELDS: usize = 13;
/// Range of whole numbers that may be written with a fraction or an exponent (`30000.0`, `3e4`): a 64-bit
/// float holds each of these numbers exactly.
const EXACT: Range<f64> = 0.0..9_007_199_254_740_992.0;
/// The byte order mark, which some editors and shells put before a text.
const BOM: &[u8] = "\u{feff}".as_bytes();

// === impl Fields ===

impl<'a> Fields<'a> {
    /// Reads a body that is a JSON object. An empty body has no fields.
    pub(in crate::http) fn parse(
        body: &'a [u8],
        limits: &'a LimitsConfig,
    ) -> Result<Self, Problem> {
        let left = if body.is_empty() {
            Vec::new()
        } else {
            object(body)?
        };
        Ok(Self::new(Place::Body, left, limits))
    }

    /// The fields of a request that has none, to learn which fields a reader asks for.
    pub(super) fn none(limits: &'a LimitsConfig) -> Self {
        Self::new(Place::Body, Vec::new(), limits)
    }

    pub(super) fn new(place: Place<'a>, left: Object<'a>, limits: &'a LimitsConfig) -> Self {
        Self {
            limits,
            place,
            left,
            known: [None; USUAL_FIELDS],
            more: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// The fields that readers have asked for, in that order.
    pub(super) fn known(&self) -> impl Iterator<Item = &'static Field> {
        let usual = self.known.iter().flatten();
        usual.chain(&self.more).copied()
    }

    /// Takes a field whose value is a whole number within its bounds.
    pub(in crate::http) fn whole(&mut self, field: &'static Field) -> Option<u64> {
        let Kind::Whole(bounds, unit) = field.form.kind else {
            unreachable!("`{}` is declared as another kind of value", field.name)
        };
        let (value, (least, most)) = (self.take(field), bounds(self.limits));
        let number = match value? {
            JsonValue::Whole(number) => number,
            JsonValue::Fraction(number) if is_whole(number) =>
            {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a whole number within a range that u64 holds"
                )]
                (number as u64)
            }
            JsonValue::Text(text) => match (&self.place, digits(&text)) {
                (Place::Query(_), Some(number)) => number,
                (Place::Query(_), None) => return self.refused(field, "is not a whole number"),
                (Place::Body | Place::Element(_), _) => {
                    return self.refused(field, "is a text; a number is expected, without quotes");
                }
            },
            other => {
                let expected = format!("a whole number from {least} to {most} is");
                return self.expected(field, &other, &expected);
            }
        };
        if (least..=most).contains(&number) {
            return Some(number);
        }
        self.refused(
            field,
            format!("is {number}{unit}; allowed are {least} to {most}{unit}"),
        )
    }

    /// Takes a field whose value is true or false.
    pub(in crate::http) fn flag(&mut self, field: &'static Field) -> Option<bool> {
        match self.take(field)? {
            JsonValue::Bool(flag) => Some(flag),
            JsonValue::Text(text) if matches!(self.place, Place::Query(_)) => match &*text {
                "true" => Some(true),
                "false" => Some(false),
                _ => self.refused(field, "is neither true nor false"),
            },
            other => self.expected(field, &other, "true or false is"),
        }
    }

    /// Takes a field whose value is a text.
    pub(in crate::http) fn text(&mut self, field: &'static Field) -> Option<Cow<'a, str>> {
        match self.take(field)? {
            JsonValue::Text(text) => Some(text),
            other => self.expected(field, &other, "a text is"),
        }
    }

    /// Takes a field whose value is a text, and parses the text.
    pub(in crate::http) fn parsed<T, E: Display>(
        &mut self,
        field: &'static Field,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(field)?;
        self.check(field, parse(&text))
    }

    /// Takes a field whose value is an object of texts.
    pub(in crate::http) fn texts(
        &mut self,
        field: &'static Field,
    ) -> Option<BTreeMap<String, String>> {
        let entries = match self.take(field)? {
            JsonValue::Object(entries) => entries,
            other => return self.expected(field, &other, "an object of texts is"),
        };
        let mut texts = BTreeMap::new();
        for (key, value) in entries {
            if let JsonValue::Text(text) = value {
                texts.insert(key.into_owned(), text.into_owned());
            } else {
                let reason = format!("{}; a text is expected", value.is());
                self.refuse_at(format!("{}.{key}", field.name), reason);
            }
        }
        Some(texts)
    }

    /// Takes a field whose value is a list of texts, which `parse` reads, or of objects, whose fields `read` takes. An
    /// element is `None` if it is wrong, or beyond the largest number of elements.
    pub(in crate::http) fn list<T, E: Display>(
        &mut self,
        field: &'static Field,
        parse: impl Fn(&str) -> Result<T, E>,
        mut read: impl FnMut(&mut Fields<'_>) -> Option<T>,
    ) -> Option<Vec<Option<T>>> {
        let Kind::List(_, _, _, most) = field.form.kind else {
            unreachable!("`{}` is declared as another kind of value", field.name)
        };
        let elements = match self.take(field)? {
            JsonValue::List(elements) => elements,
            other => return self.expected(field, &other, "a list is"),
        };
        let mut read_all = Vec::with_capacity(elements.len());
        for (at, element) in elements.into_iter().enumerate() {
            let place = format!("{}[{at}]", field.name);
            read_all.push(match element {
                _ if at >= most => None,
                JsonValue::Text(text) => parse(&text)
                    .map_err(|error| self.refuse_at(place, error.to_string()))
                    .ok(),
                JsonValue::Object(left) => self.inside(place, left, &mut read),
                other => {
                    self.refuse_at(
                        place,
                        format!("{}; a text or an object is expected", other.is()),
                    );
                    None
                }
            });
        }
        Some(read_all)
    }

    /// Takes a field whose value is an object, whose fields `read` takes.
    pub(in crate::http) fn object<T>(
        &mut self,
        field: &'static Field,
        read: impl FnOnce(&mut Fields<'_>) -> Option<T>,
    ) -> Option<T> {
        match self.take(field)? {
            JsonValue::Object(left) => self.inside(field.name.to_owned(), left, read),
            other => self.expected(field, &other, "an object is"),
        }
    }

    /// Reads the fields of an object that stands at this place of the body.
    fn inside<T>(
        &mut self,
        place: String,
        left: Object<'_>,
        read: impl FnOnce(&mut Fields<'_>) -> Option<T>,
    ) -> Option<T> {
        let mut fields = Fields::new(Place::Element(place), left, self.limits);
        let value = read(&mut fields);
        self.errors.extend(fields.into_errors());
        value
    }

    /// Whether the request has this field, which no reader has taken yet.
    pub(in crate::http) fn has(&self, field: &Field) -> bool {
        let mut left = self.left.iter();
        left.any(|(key, value)| key == field.name && !matches!(value, JsonValue::Null))
    }

    /// Returns the value of a field if it is valid; otherwise records the error of the field.
    pub(in crate::http) fn check<T>(
        &mut self,
        field: &Field,
        value: Result<T, impl Display>,
    ) -> Option<T> {
        value.map_or_else(|error| self.refused(field, error.to_string()), Some)
    }

    /// Records that a field is wrong, and why, for the answer.
    pub(in crate::http) fn refuse(&mut self, field: &Field, reason: impl Into<String>) {
        self.refuse_at(field.name, reason);
    }

    fn refused<T>(&mut self, field: &Field, reason: impl Into<String>) -> Option<T> {
        self.refuse(field, reason);
        None
    }

    /// Records that a value is of another kind than is `expected`.
    fn expected<T>(&mut self, field: &Field, value: &JsonValue<'_>, expected: &str) -> Option<T> {
        self.refused(field, format!("{}; {expected} expected", value.is()))
    }

    /// Records that a part of a field is wrong, such as an element of a list.
    pub(in crate::http) fn refuse_at(
        &mut self,
        place: impl Into<Cow<'static, str>>,
        reason: impl Into<String>,
    ) {
        let place = match self.place {
            Place::Body => place.into(),
            Place::Query(_) => format!("query.{}", place.into()).into(),
            Place::Element(ref element) => format!("{element}.{}", place.into()).into(),
        };
        self.errors.push(FieldError::new(place, reason));
    }

    /// Whether all fields that were taken so far are right.
    pub(in crate::http) fn are_right(&self) -> bool {
        self.errors.is_empty()
    }

    /// Ends the reading of the fields. Fails with all errors, including unknown fields, which no reader took.
    pub(in crate::http) fn finish(self) -> Result<(), Problem> {
        let mut errors = self.into_errors();
        if errors.is_empty() {
            return Ok(());
        }
        errors.truncate(NAMED);
        Err(Problem::invalid(errors))
    }

    /// All errors, including unknown fields, which no reader took.
    fn into_errors(mut self) -> Vec<FieldError> {
        if self.left.is_empty() {
            return self.errors;
        }
        let known: Vec<_> = self.known().map(|field| field.name).collect();
        let names = known.join(", ");
        let known_are = match (&self.place, known.as_slice()) {
            (Place::Body, _) => format!("the fields of this body are {names}"),
            (Place::Element(_), _) => format!("the fields of this object are {names}"),
            // A request with a safe method has no body, so the reason does not point to one.
            (Place::Query(method), []) if method.is_safe() => {
                "this call takes no query parameters".to_owned()
            }
            (Place::Query(_), []) => {
                "this call takes no query parameters, only fields of the JSON body".to_owned()
            }
            (Place::Query(_), [one]) => format!("the only parameter of this call is {one}"),
            (Place::Query(_), _) => format!("the parameters of this call are {names}"),
        };
        for (name, _) in std::mem::take(&mut self.left) {
            // The message names the unknown field, and does not repeat its value, which may be a token in the
            // wrong place.
            let reason = if known.contains(&&*name) {
                "is given more than once".to_owned()
            } else {
                format!("is not known; {known_are}")
            };
            self.refuse_at(name.into_owned(), reason);
        }
        self.errors
    }

    fn take(&mut self, field: &'static Field) -> Option<JsonValue<'a>> {
        match self.known.iter_mut().find(|known| known.is_none()) {
            Some(free) => *free = Some(field),
            None => self.more.push(field),
        }
        let at = self.left.iter().position(|(key, _)| key == field.name)?;
        // `remove` keeps the order of the fields that are left, in which `finish` names them.
        match self.left.remove(at).1 {
            JsonValue::Null => None,
            value => Some(value),
        }
    }
}

/// Whether a number with a fraction or an exponent is whole, and exact in this representation.
fn is_whole(number: f64) -> bool {
    number.fract() == 0.0 && EXACT.contains(&number) && number.is_sign_positive()
}

/// The number in a text of digits only.
pub(super) fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn object(body: &[u8]) -> Result<Object<'_>, Problem> {
    let refuse = |reason| Err(Problem::invalid_field("body", reason));
    if body.starts_with(BOM) {
        return refuse("begins with a byte order mark; leave it out".to_owned());
    }
    match serde_json::from_slice(body) {
        Ok(JsonValue::Object(entries)) => Ok(entries),
        Ok(other) => refuse(format!("{}; a JSON object is expected", other.is())),
        Err(error) if error.is_data() => refuse(format!("is ambiguous: {error}")),
        Err(error) => refuse(format!("is not JSON: {error}")),
    }
}

// === Json value ===
//
// A JSON value as it was sent, before it is checked.

/// A JSON value. Unlike [`serde_json::Value`] it refuses an object with a repeated key: a proxy that reads
/// the other copy would see a different request.
pub(super) enum JsonValue<'a> {
    Null,
    Bool(bool),
    Whole(u64),
    Negative(i64),
    Fraction(f64),
    Text(Cow<'a, str>),
    List(Vec<JsonValue<'a>>),
    Object(Object<'a>),
}

/// The entries of an object, in the order of the request.
pub(super) type Object<'a> = Vec<(Cow<'a, str>, JsonValue<'a>)>;

struct JsonValueVisitor;

/// Number of keys up to which a repeated key is searched by comparison; no valid body has more keys.
const MAX_COMPARED_KEYS: usize = 16;

/// A key of an object, borrowed if it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

// === impl JsonValue ===

impl JsonValue<'_> {
    /// Description of the value, to be read after a field's name. A text is not repeated: it may be a secret.
    pub(super) fn is(&self) -> String {
        match self {
            Self::Null => "is null".to_owned(),
            Self::Bool(_) => "is true or false".to_owned(),
            Self::Whole(number) => format!("is {number}"),
            Self::Negative(number) => format!("is {number}"),
            Self::Fraction(number) if *number < -9e15 || *number > 9e15 => {
                format!("is {number:e}")
            }
            Self::Fraction(number) => format!("is {number:?}"),
            Self::Text(_) => "is a text".to_owned(),
            Self::List(_) => "is a list".to_owned(),
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

    fn visit_bool<E>(self, flag: bool) -> Result<JsonValue<'de>, E> {
        Ok(JsonValue::Bool(flag))
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
        // Every element is read like any other value, so that a repeated key is refused at any depth.
        let mut elements = Vec::new();
        while let Some(element) = list.next_element()? {
            elements.push(element);
        }
        Ok(JsonValue::List(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonValue<'de>, A::Error> {
        let mut entries = Object::new();
        // With few keys, each key is compared with all others. With many keys that would take quadratic time,
        // so a set is used.
        let mut many = HashSet::new();
        while let Some((Key(key), value)) = map.next_entry()? {
            if entries.len() == MAX_COMPARED_KEYS {
                many.extend(entries.iter().map(|(key, _)| key.clone()));
            }
            let is_repeated = if entries.len() < MAX_COMPARED_KEYS {
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

#[cfg(test)]
mod tests {
    use super::{super::field::Form, *};

    #[test]
    fn a_reader_may_ask_for_any_number_of_fields() {
        const FLAG: Field = Field {
            name: "flag",
            doc: "",
            form: Form::FLAG,
        };
        let limits = LimitsConfig::default();
        let mut fields = Fields::none(&limits);
        for _ in 0..100 {
            assert_eq!(fields.flag(&FLAG), None);
        }
        assert_eq!(fields.known().count(), 100);
    }
}
