//! Enums that list their own variants.

/// Declares an enum and a constant `ALL` with all its variants, so that none can be forgotten. If each variant has
/// a word after `=>`, `as_str` returns it.
macro_rules! with_all {
    (
        $(#[$of_enum:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$of_variant:meta])* $variant:ident => $word:literal,)+
        }
    ) => {
        $crate::with_all::with_all! {
            $(#[$of_enum])*
            $visibility enum $name {
                $($(#[$of_variant])* $variant,)+
            }
        }

        impl $name {
            /// The word for the variant.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
    (
        $(#[$of_enum:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$of_variant:meta])* $variant:ident $(= $value:literal)?,)+
        }
    ) => {
        $(#[$of_enum])*
        $visibility enum $name {
            $($(#[$of_variant])* $variant $(= $value)?,)+
        }

        impl $name {
            /// All variants, in the order of their declaration.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];
        }
    };
}

pub(crate) use with_all;
