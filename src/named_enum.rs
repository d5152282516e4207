//! Enumerations with a name for each value.

/// Defines an enumeration with the list of its values (`ALL`) and the name of each value (`as_str`, `Display`) for labels, metrics and
/// pages.
macro_rules! named_enum {
    ($(#[$about:meta])* $vis:vis enum $name:ident { $($(#[$meaning:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$about])*
        $vis enum $name {
            $($(#[$meaning])* $value,)+
        }

        impl $name {
            /// All values, in the order of their declaration.
            #[allow(dead_code, reason = "not every enumeration is listed")]
            $vis const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            /// Returns the name in labels, in metrics and on pages.
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use named_enum;
