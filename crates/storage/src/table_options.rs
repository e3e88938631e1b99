//! `storageEngine` in the options of collections and indexes: `{<engine>: {configString: "name=value,…"}}`.
//!
//! The settings of an engine count where that engine runs; those of other engines are kept and shown, so that a dump
//! can be restored on any engine. What no engine of ours understands is refused.

use bson::RawDocument;
use bson::raw::RawBsonRef;
use codec::Codec;

/// Names of engines in options, and the engine each means.
const ENGINES: [(&str, &str); 10] = [
    ("betree", "betree"),
    ("PerconaFT", "betree"),
    ("tokuft", "betree"),
    ("tokumx", "betree"),
    ("btree", "btree"),
    ("wiredTiger", "btree"),
    ("inMemory", "inMemory"),
    ("ephemeralForTest", "inMemory"),
    ("mmapv1", "mmapv1"),
    ("rocksdb", "rocksdb"),
];

/// The compressor that `storageEngine` names for an engine, `None` when it names none. The error tells the user what
/// cannot be honoured.
pub fn table_compressor(storage_engine: &RawDocument, engine: &str) -> Result<Option<Codec>, String> {
    let mut found = None;
    for element in storage_engine {
        let (name, value) = element.map_err(|error| error.to_string())?;
        let name = name.as_str();
        let Some((_, means)) = ENGINES.iter().find(|(known, _)| *known == name) else {
            return Err(format!("{name} is not a registered storage engine for this server"));
        };
        let RawBsonRef::Document(settings) = value else {
            return Err(format!("'storageEngine.{name}' has to be an embedded document."));
        };
        let compressor = of_settings(name, means, settings)?;
        if *means == engine {
            found = compressor.or(found);
        }
    }
    Ok(found)
}

fn of_settings(name: &str, means: &str, settings: &RawDocument) -> Result<Option<Codec>, String> {
    let mut compressor = None;
    for element in settings {
        let (field, value) = element.map_err(|error| error.to_string())?;
        let RawBsonRef::String(text) = value else {
            return Err(format!("storageEngine.{name}.{field} must be a string"));
        };
        if field.as_str() != "configString" {
            return Err(format!(
                "storageEngine.{name}.{field} is not an option: only configString is"
            ));
        }
        for setting in text.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let refused = |why: &str| Err(format!("storageEngine.{name}.configString: '{setting}' {why}"));
            match setting.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
                _ if means != "btree" && means != "betree" => return refused("is not a setting of this engine"),
                Some(("block_compressor", value)) => match value.parse::<Codec>() {
                    Ok(codec) => compressor = Some(codec),
                    Err(_) => return refused("names no compressor: none, snappy, zlib, zstd and lz4 are there"),
                },
                Some(("prefix_compression", "true")) if means == "btree" => {}
                Some(("prefix_compression", _)) if means == "btree" => {
                    return refused("cannot be: common beginnings of keys are always stored once");
                }
                _ => return refused("is not supported; block_compressor=… is"),
            }
        }
    }
    Ok(compressor)
}

/// The compressor for a table from `{storageEngine: …}` among options that were checked when they came.
pub(crate) fn named_in(options: &RawDocument, engine: &str) -> Option<String> {
    let codec = table_compressor(options.get_document("storageEngine").ok()?, engine).ok()??;
    Some(codec.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn the_compressor_of_the_engine_in_use_is_found() {
        for (options, expected) in [
            (rawdoc! {}, None),
            (rawdoc! { "wiredTiger": {} }, None),
            (
                rawdoc! { "wiredTiger": { "configString": "block_compressor=zlib" } },
                Some(Codec::Zlib),
            ),
            (
                rawdoc! { "btree": { "configString": " prefix_compression=true, block_compressor = none," } },
                Some(Codec::None),
            ),
            (rawdoc! { "rocksdb": {} }, None),
        ] {
            assert_eq!(table_compressor(&options, "btree"), Ok(expected), "{options:?}");
            assert_eq!(table_compressor(&options, "inMemory"), Ok(None), "{options:?}");
        }
    }

    #[test]
    fn what_cannot_be_honoured_is_named() {
        let config = |text: &str| rawdoc! { "wiredTiger": { "configString": text } };
        for (options, expected) in [
            (rawdoc! { "devnull": {} }, "devnull is not a registered storage engine"),
            (rawdoc! { "wiredTiger": 1 }, "has to be an embedded document"),
            (rawdoc! { "wiredTiger": { "configString": 1 } }, "must be a string"),
            (rawdoc! { "wiredTiger": { "other": "x" } }, "only configString is"),
            (
                rawdoc! { "inMemory": { "configString": "a=b" } },
                "not a setting of this engine",
            ),
            (
                config("block_compressor=gzip"),
                "'block_compressor=gzip' names no compressor",
            ),
            (config("prefix_compression=false"), "always stored once"),
            (config("allocation_size=4KB"), "'allocation_size=4KB' is not supported"),
            (config("block_compressor"), "'block_compressor' is not supported"),
        ] {
            let refusal = table_compressor(&options, "inMemory").expect_err("refused");
            assert!(refusal.contains(expected), "{options:?}: {refusal}");
        }
    }
}
