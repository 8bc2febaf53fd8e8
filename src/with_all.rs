//! Enums that list their own variants.

/// Declares an enum as it stands there, and the constant `ALL` of its variants, from which none can be missing.
macro_rules! with_all {
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
            /// All of them, in the order of their declaration.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];
        }
    };
}

pub(crate) use with_all;
