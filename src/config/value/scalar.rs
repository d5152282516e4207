//! Values that are written as one text, number or truth value: what reads them and what their schema is, once for all.

use std::fmt;
use std::marker::PhantomData;

use schemars::Schema;
use serde::de::{self, Deserializer, Unexpected, Visitor};

/// Why a value is none of this type.
pub(in crate::config) enum Refused {
    /// It is another kind of value.
    Kind,
    /// It is not what is expected.
    Value,
    /// This.
    Because(String),
}

/// A value that is written as one text, number or truth value.
pub(in crate::config) trait Scalar: Sized {
    /// What it is called in the schema.
    const NAME: &'static str;
    /// Whether the schema has it where it is used, without a name.
    const INLINE: bool = false;
    /// What is expected, for messages.
    const EXPECTED: &'static str;

    /// Reads a text.
    fn of_text(text: &str) -> Result<Self, Refused>;

    /// Reads a number.
    fn of_number(_: u64) -> Result<Self, Refused> {
        Err(Refused::Kind)
    }

    /// Reads a truth value.
    fn of_bool(_: bool) -> Result<Self, Refused> {
        Err(Refused::Kind)
    }

    /// What [`of_text`](Self::of_text) and the others read.
    fn schema() -> Schema;
}

/// Reads it with what names the place of a mistake.
pub(in crate::config) fn read<'de, T: Scalar, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct ScalarVisitor<T>(PhantomData<T>);

    impl<T: Scalar> ScalarVisitor<T> {
        fn judge<E: de::Error>(&self, read: Result<T, Refused>, found: Unexpected<'_>) -> Result<T, E> {
            read.map_err(|refused| match refused {
                Refused::Kind => E::invalid_type(found, self),
                Refused::Value => E::invalid_value(found, self),
                Refused::Because(reason) => E::custom(reason),
            })
        }
    }

    impl<T: Scalar> Visitor<'_> for ScalarVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTED)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            self.judge(T::of_text(text), Unexpected::Str(text))
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
            self.judge(T::of_number(number), Unexpected::Unsigned(number))
        }

        fn visit_bool<E: de::Error>(self, on: bool) -> Result<T, E> {
            self.judge(T::of_bool(on), Unexpected::Bool(on))
        }
    }

    deserializer.deserialize_any(ScalarVisitor(PhantomData))
}

/// Lets serde and the schema take a [`Scalar`].
macro_rules! scalar {
    ($($type:ty),+) => {$(
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::config::value::scalar::read(deserializer)
            }
        }

        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                <Self as $crate::config::value::scalar::Scalar>::INLINE
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                <Self as $crate::config::value::scalar::Scalar>::NAME.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <Self as $crate::config::value::scalar::Scalar>::schema()
            }
        }
    )+};
}

pub(in crate::config) use scalar;
