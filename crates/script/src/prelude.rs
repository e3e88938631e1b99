//! The prelude, and what of it the host calls.

use rquickjs::{Ctx, Function, Object, Persistent, Symbol};

/// Evaluates to a function of `native` that gives the makers.
pub(crate) const SOURCE: &str = include_str!("prelude.js");

macro_rules! makers {
    ($($name:ident: $type:ident = $property:literal,)*) => {
        /// What the prelude gives the host.
        #[derive(Clone)]
        pub(crate) struct Makers {
            $(pub(crate) $name: Persistent<$type<'static>>,)*
        }

        impl Makers {
            /// Takes them out of the object that the prelude has returned.
            pub(crate) fn of<'js>(ctx: &Ctx<'js>, object: &Object<'js>) -> rquickjs::Result<Self> {
                Ok(Self {
                    $($name: Persistent::save(ctx, object.get::<_, $type<'js>>($property)?),)*
                })
            }
        }
    };
}

makers! {
    tag: Symbol = "tag",
    held: Symbol = "held",
    origin: Symbol = "origin",
    object_id: Function = "objectId",
    long: Function = "long",
    decimal: Function = "decimal",
    timestamp: Function = "timestamp",
    binary: Function = "binary",
    date: Function = "date",
    far_date: Function = "farDate",
    regex: Function = "regex",
    code: Function = "code",
    pointer: Function = "pointer",
    min_key: Function = "minKey",
    max_key: Function = "maxKey",
    time_of: Function = "timeOf",
    regex_parts: Function = "regexParts",
    function_text: Function = "functionText",
    well_formed: Function = "wellFormed",
    told: Function = "told",
    state: Function = "state",
}
