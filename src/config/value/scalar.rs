//! Values that are written as a single text, number or boolean: their deserializer and their schema.

use std::fmt;
use std::marker::PhantomData;

use schemars::Schema;
use serde::de::{self, Deserializer, Unexpected, Visitor};

/// Reason why a value is rejected.
pub(in crate::config) enum Refused {
    /// Wrong kind of value.
    Kind,
    /// Right kind, but not the expected syntax.
    Value,
    /// Specific message.
    Because(String),
}

/// Value that is written as a single text, number or boolean.
pub(in crate::config) trait Scalar: Sized {
    /// Name in the schema.
    const NAME: &'static str;
    /// Whether the schema is inlined where the type is used, instead of a named definition.
    const INLINE: bool = false;
    /// Expected syntax, for messages.
    const EXPECTED: &'static str;

    /// Parses a text.
    fn of_text(text: &str) -> Result<Self, Refused>;

    /// Converts a number.
    fn of_number(_: u64) -> Result<Self, Refused> {
        Err(Refused::Kind)
    }

    /// Converts a boolean.
    fn of_bool(_: bool) -> Result<Self, Refused> {
        Err(Refused::Kind)
    }

    /// Returns the schema of everything that [`of_text`](Self::of_text) and the other conversions accept.
    fn schema() -> Schema;
}

/// Deserializes a [`Scalar`]; errors contain [`Scalar::EXPECTED`].
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

/// Implements `Deserialize` and `JsonSchema` for types that implement [`Scalar`].
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
