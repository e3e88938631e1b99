//! Cluster parameters: what all members of a set go by, kept in `config.clusterParameters` as MongoDB keeps it, a
//! document for each that was ever set.
//!
//! A parameter is here only when something reads it.

use crate::arguments::{Arguments, number_as_i64, wrong_type};
use crate::error::{CommandError, Result};
use crate::server::Server;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Document, doc};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use storage::Namespace;
use wire::ErrorCode;

/// Where they are kept.
pub(crate) const COLLECTION: &str = "config.clusterParameters";
/// The field that says when one was set.
pub(crate) const TIME: &str = "clusterParameterTime";
/// Where it is kept that users' writes are held off, as MongoDB keeps it.
pub(crate) const USER_WRITES: &str = "config.user_writes_critical_sections";

/// Does the collection keep cluster parameters, or what else all members go by?
pub(crate) fn is_about_cluster_parameters(namespace: &Namespace) -> bool {
    [COLLECTION, USER_WRITES].contains(&namespace.as_str())
}

/// What they are set to, as it is lived by.
#[derive(Default)]
pub struct ClusterParameters {
    /// `defaultMaxTimeMS.readOperations`: how long a read may take that does not say; 0: as long as it likes.
    read_ms_max: AtomicU64,
    /// Held while they are taken up.
    pub(crate) loading: Mutex<()>,
}

impl ClusterParameters {
    /// The `maxTimeMS` of a read that names none; 0: none.
    pub fn read_ms_max(&self) -> u64 {
        self.read_ms_max.load(Ordering::Relaxed)
    }
}

/// One of them.
pub struct ClusterParameter {
    /// Its name, which is its document's `_id`.
    pub name: &'static str,
    /// What it is before it is set.
    pub default: fn() -> Document,
    /// The document to be kept, of what a client gives.
    pub read: fn(Arguments<'_>, &RawDocument) -> Result<Document>,
    take_up: fn(&Server, &Document),
}

impl ClusterParameter {
    /// The one of a name.
    ///
    /// # Errors
    /// `NoSuchKey`.
    pub fn find(name: &str) -> Result<&'static Self> {
        let found = ALL.iter().find(|parameter| parameter.name == name);
        found.ok_or_else(|| CommandError::new(ErrorCode::NoSuchKey, format!("Unknown server parameter: {name}")))
    }

    /// Lives by a document that is kept; by the default when there is none, or none that can be made sense of.
    pub fn take_up(&self, server: &Server, kept: Option<&Document>) {
        match kept {
            Some(kept) => (self.take_up)(server, kept),
            None => (self.take_up)(server, &(self.default)()),
        }
    }
}

/// Sorted by name.
pub const ALL: [ClusterParameter; 2] = [
    ClusterParameter {
        name: "changeStreamOptions",
        default: || doc! { "preAndPostImages": { "expireAfterSeconds": "off" } },
        // MongoDB says nothing nearer.
        read: |arguments, given| {
            read_stream_options(arguments, given).map_err(|error| CommandError::bad_value(error.message))
        },
        take_up: |server, kept| {
            let images = kept.get_document("preAndPostImages").ok();
            let seconds = images.and_then(|images| images.get_i64("expireAfterSeconds").ok());
            let life = seconds.and_then(|seconds| u64::try_from(seconds).ok());
            server.storage.set_pre_image_life(life.map(Duration::from_secs));
        },
    },
    ClusterParameter {
        name: "defaultMaxTimeMS",
        default: || doc! { "readOperations": 0_i64 },
        read: read_default_time,
        take_up: |server, kept| {
            let limit = kept.get_i64("readOperations").unwrap_or(0).max(0).unsigned_abs();
            server.cluster_parameters.read_ms_max.store(limit, Ordering::Relaxed);
        },
    },
];

fn read_stream_options(arguments: Arguments<'_>, given: &RawDocument) -> Result<Document> {
    const FIELD: &str = "preAndPostImages";
    const EXPIRY: &str = "expireAfterSeconds";
    let mut images = None;
    arguments.each(given, |name, value| {
        match name {
            FIELD => images = Some(arguments.document(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let images = images
        .ok_or_else(|| CommandError::bad_value("'changeStreamOptions' parameter must have 'preAndPostImages'"))?;
    let command = format!("{}.{FIELD}", arguments.command);
    let inner = Arguments::of(&command);
    let mut expiry = None;
    inner.each(images, |name, value| {
        match (name, value) {
            (EXPIRY, RawBsonRef::String("off")) => expiry = Some("off".into()),
            (EXPIRY, RawBsonRef::String(_)) => {
                return Err(CommandError::bad_value(
                    "Non-numeric value of 'expireAfterSeconds' should be 'off'",
                ));
            }
            (EXPIRY, value) => match number_as_i64(value) {
                Some(seconds) if seconds > 0 => expiry = Some(seconds.into()),
                Some(_) => {
                    return Err(CommandError::bad_value(
                        "Numeric value of 'expireAfterSeconds' should be positive",
                    ));
                }
                None => {
                    return Err(wrong_type(
                        &command,
                        name,
                        value,
                        "types '[string, int, long, double, decimal]'",
                    ));
                }
            },
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let expiry: bson::Bson = expiry.ok_or_else(|| crate::arguments::missing_field(&command, EXPIRY))?;
    Ok(doc! { FIELD: { EXPIRY: expiry } })
}

fn read_default_time(arguments: Arguments<'_>, given: &RawDocument) -> Result<Document> {
    let mut limit = 0_i64;
    arguments.each(given, |name, value| {
        match name {
            "readOperations" => limit = arguments.integer(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    match limit {
        0..=0x7fff_ffff => Ok(doc! { "readOperations": limit }),
        _ => Err(CommandError::bad_value(format!(
            "Invalid value for parameter defaultMaxTimeMS.readOperations: {limit} is not in the range from 0 to {}",
            i32::MAX
        ))),
    }
}
