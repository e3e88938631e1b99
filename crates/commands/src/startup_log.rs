//! `local.startup_log`: what was started, when, with which options. It is in memory, as whatever a server keeps of
//! itself alone, and so tells of this start only.

use crate::command::{STARTUP_LOG, build_document};
use crate::server::Server;
use bson::raw::RawDocumentBuf;
use bson::{DateTime, doc};
use bytes::Bytes;
use storage::{CappedLimits, Namespace, StorageError};

/// Its size, as in MongoDB.
const SIZE_BYTES: u64 = 10 << 20;

impl Server {
    /// Notes that the server starts. A collection of that name that was restored from elsewhere stays as it is.
    ///
    /// # Errors
    /// The document cannot be made.
    pub(crate) fn note_start(&self) -> Result<(), StorageError> {
        let namespace = Namespace::parse(STARTUP_LOG)?;
        let limits = CappedLimits {
            size_bytes: SIZE_BYTES,
            max_documents: None,
        };
        match self.storage.create_local_capped(&namespace, limits) {
            Err(StorageError::NamespaceExists(_)) => return Ok(()),
            made => made?,
        }
        let (now_ms, host) = (self.started.0, &self.settings.host);
        let document = doc! {
            "_id": format!("{host}-{now_ms}"),
            "hostname": host,
            "startTime": DateTime::from_millis(now_ms),
            "startTimeLocal": local_text(now_ms),
            "cmdLine": self.settings.parsed.clone(),
            "pid": i64::from(std::process::id()),
            "buildinfo": build_document(&self.settings),
        };
        let document =
            RawDocumentBuf::try_from(&document).map_err(|error| StorageError::InvalidDocument(error.to_string()))?;
        if let Some(log) = self.storage.local_capped(&namespace) {
            log.push(Bytes::copy_from_slice(document.as_bytes()));
        }
        Ok(())
    }
}

/// `Wed Nov 25 20:00:00.000`, by the machine's zone.
fn local_text(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let zoned = time.to_zoned(jiff::tz::TimeZone::system());
    zoned.strftime("%a %b %e %H:%M:%S.%3f").to_string()
}
