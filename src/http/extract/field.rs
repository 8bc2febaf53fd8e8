//! Fields, parameters and headers that callers may send: each is declared once, for its reader and for the
//! OpenAPI document.

use utoipa::openapi::{
    ArrayBuilder, KnownFormat, Object, ObjectBuilder, OneOfBuilder, Ref, RefOr, Required, Schema,
    SchemaFormat,
    path::{Parameter, ParameterBuilder, ParameterIn},
    schema::{SchemaType, Type},
};

use crate::config::LimitsConfig;

/// A field of a body, a parameter of a query or of a path, a header, or a body as such.
pub(in crate::http) struct Field {
    pub(in crate::http) name: &'static str,
    /// The description of the field for callers, as Markdown: the lines of a doc comment.
    pub(in crate::http) doc: &'static str,
    pub(in crate::http) form: Form,
}

/// The values that a field may have.
pub(in crate::http) struct Form {
    pub(super) kind: Kind,
    pub(super) is_required: bool,
    /// Whether only requests have the field, and no answer has it.
    is_write_only: bool,
    example: Option<&'static str>,
    /// Default value, which the text of the field names at its end.
    default: Option<fn(&LimitsConfig) -> u64>,
}

/// The type of a value, with its bounds.
pub(super) enum Kind {
    Flag,
    /// A whole number with its bounds, and the unit that messages write after it.
    Whole(Bounds, &'static str),
    /// A text: its smallest and largest number of characters, and the regular expression that it matches.
    Text(usize, usize, &'static str),
    /// An object of texts: the largest number of entries, and of bytes together.
    Texts(usize, usize),
    /// A list without repetitions, of texts or of objects: the form of the texts, the name of the schema of the
    /// objects, and the smallest and largest number of elements.
    List(&'static Form, &'static str, usize, usize),
    /// An object with fields of its own: its schema.
    Object(fn(&LimitsConfig) -> RefOr<Schema>),
}

/// Function from the limits of a gateway to the smallest and the largest number allowed.
pub(in crate::http) type Bounds = fn(&LimitsConfig) -> (u64, u64);

/// Declares fields: for each its text for callers, its name and its form. With `Header TYPE` or `Path TYPE`
/// the field is the parameter of an extractor, or of a type that only stands for the field in the OpenAPI
/// document.
macro_rules! declare_fields {
    ($($(#[doc = $doc:literal])+ $vis:vis const $field:ident: $name:expr => $form:expr;)+) => {$(
        $(#[doc = $doc])+
        $vis const $field: $crate::http::extract::Field = $crate::http::extract::Field {
            name: $name,
            doc: concat!($($doc, "\n"),+),
            form: $form,
        };
    )+};
    ($($(#[doc = $doc:literal])+ $place:ident $type:ty: $name:expr => $form:expr;)+) => {$(
        impl utoipa::IntoParams for $type {
            fn into_params(
                _: impl Fn() -> Option<utoipa::openapi::path::ParameterIn>,
            ) -> Vec<utoipa::openapi::path::Parameter> {
                $crate::http::extract::declare_fields! { $(#[doc = $doc])+ const DECLARED: $name => $form; }
                vec![DECLARED.parameter(utoipa::openapi::path::ParameterIn::$place)]
            }
        }
    )+};
}

pub(in crate::http) use declare_fields;

// === impl Field ===

impl Field {
    /// The field as a property of the schema of a body.
    pub(super) fn property(&self, limits: &LimitsConfig) -> Schema {
        let mut schema = self.form.schema(limits, !self.form.is_required);
        let description = Some(self.description(limits));
        match &mut schema {
            Schema::Array(array) => array.description = description,
            Schema::Object(object) => {
                object.description = description;
                object.write_only = self.form.is_write_only.then_some(true);
                object.example = self.form.example.map(Into::into);
            }
            _ => unreachable!("a field is an object, a list or a single value"),
        }
        schema
    }

    /// The field as a parameter outside a body.
    pub(in crate::http) fn parameter(&self, place: ParameterIn) -> Parameter {
        let limits = LimitsConfig::default();
        let (is_required, example) = (self.form.is_required, self.form.example);
        let (shown, listed) = if is_required {
            (example, None)
        } else {
            (None, example)
        };
        let mut schema = self.form.schema(&limits, false);
        if let Schema::Object(object) = &mut schema {
            // The page `/docs` sends the `example` of a parameter unless the user deletes it. A request with an
            // optional parameter that the user did not choose would do something else.
            object.examples = listed.map(Into::into).into_iter().collect();
        }
        ParameterBuilder::new()
            .name(self.name)
            .parameter_in(place)
            .description(Some(self.description(&limits)))
            .required(if is_required {
                Required::True
            } else {
                Required::False
            })
            .schema(Some(schema))
            .example(shown.map(Into::into))
            .build()
    }

    /// Adds the text and the example of the field to the schema of an object.
    pub(in crate::http) fn describe(&self, object: &mut Object, limits: &LimitsConfig) {
        let example = self.form.example;
        let example = example.map(|json| serde_json::from_str(json).expect("an example is JSON"));
        object.description = Some(self.description(limits));
        object.example = example;
    }

    fn description(&self, limits: &LimitsConfig) -> String {
        // Each line of a doc comment begins with a space.
        let lines = self
            .doc
            .lines()
            .map(|line| line.strip_prefix(' ').unwrap_or(line));
        let mut text = lines.collect::<Vec<_>>().join("\n");
        if let Some(default) = self.form.default {
            text.extend([" Left out: ", &default(limits).to_string(), "."]);
        }
        text
    }
}

// === impl Form ===

impl Form {
    /// A field whose value is true or false.
    pub(in crate::http) const FLAG: Self = Self::new(Kind::Flag);
    /// A field whose value is a text of any length and content.
    pub(in crate::http) const TEXT: Self = Self::text(0, usize::MAX, "");

    /// A text with its smallest and largest number of characters, which matches a regular expression.
    pub(in crate::http) const fn text(least: usize, most: usize, pattern: &'static str) -> Self {
        Self::new(Kind::Text(least, most, pattern))
    }

    /// A text for people, without control characters, of 1 to `most` characters.
    pub(in crate::http) const fn prose(most: usize) -> Self {
        Self::text(1, most, PROSE)
    }

    /// An object of at most `most` texts, of at most `max_bytes` bytes together.
    pub(in crate::http) const fn texts(most: usize, max_bytes: usize) -> Self {
        Self::new(Kind::Texts(most, max_bytes))
    }

    /// A list of `least` to `most` elements, each once: of this form, or an object with this schema.
    pub(in crate::http) const fn list(
        &'static self,
        object: &'static str,
        least: usize,
        most: usize,
    ) -> Self {
        Self::new(Kind::List(self, object, least, most))
    }

    /// An object with this schema, which [`body_schema`](super::body_schema) makes.
    pub(in crate::http) const fn object(schema: fn(&LimitsConfig) -> RefOr<Schema>) -> Self {
        Self::new(Kind::Object(schema))
    }

    /// A field whose value is a whole number within bounds.
    pub(in crate::http) const fn whole(bounds: Bounds) -> Self {
        Self::new(Kind::Whole(bounds, ""))
    }

    /// A field whose value is a whole number of milliseconds within bounds.
    pub(in crate::http) const fn millis(bounds: Bounds) -> Self {
        Self::new(Kind::Whole(bounds, " ms"))
    }

    pub(in crate::http) const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    pub(in crate::http) const fn write_only(mut self) -> Self {
        self.is_write_only = true;
        self
    }

    pub(in crate::http) const fn example(mut self, example: &'static str) -> Self {
        self.example = Some(example);
        self
    }

    /// Sets the default value, which the text of the field names at its end.
    pub(in crate::http) const fn or_else(mut self, default: fn(&LimitsConfig) -> u64) -> Self {
        self.default = Some(default);
        self
    }

    const fn new(kind: Kind) -> Self {
        Self {
            kind,
            is_required: false,
            is_write_only: false,
            example: None,
            default: None,
        }
    }

    fn schema(&self, limits: &LimitsConfig, is_nullable: bool) -> Schema {
        let typed = |kind: Type| {
            let object = ObjectBuilder::new().schema_type(kind.clone());
            if is_nullable {
                return object.schema_type(SchemaType::from_iter([kind, Type::Null]));
            }
            object
        };
        match self.kind {
            Kind::Flag => typed(Type::Boolean).into(),
            Kind::Object(schema) => {
                let RefOr::T(Schema::Object(mut object)) = schema(limits) else {
                    unreachable!("the schema of a body is an object")
                };
                object.schema_type = SchemaType::from_iter([Type::Object, Type::Null]);
                object.into()
            }
            Kind::Whole(bounds, _) => typed(Type::Integer)
                .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
                .minimum(Some(bounds(limits).0))
                .maximum(Some(bounds(limits).1))
                .into(),
            Kind::Text(least, most, pattern) => typed(Type::String)
                .min_length((least > 0).then_some(least))
                .max_length((most < usize::MAX).then_some(most))
                .pattern((!pattern.is_empty()).then_some(pattern))
                .into(),
            Kind::Texts(most, max_bytes) => typed(Type::Object)
                .max_properties(Some(most))
                .property_names(Some(Self::prose(max_bytes).schema(limits, false)))
                .additional_properties(Some(Self::text(0, max_bytes, PROSE).schema(limits, false)))
                .into(),
            Kind::List(form, object, least, most) => ArrayBuilder::new()
                .items(
                    OneOfBuilder::new()
                        .item(form.schema(limits, false))
                        .item(Ref::from_schema_name(object)),
                )
                .min_items(Some(least))
                .max_items(Some(most))
                .unique_items(true)
                .into(),
        }
    }
}

/// Regular expression for texts without control characters.
const PROSE: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";
