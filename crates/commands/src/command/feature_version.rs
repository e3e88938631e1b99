//! `admin.system.version`: the document by which tools learn which version's features there are.

use super::update;
use crate::error::Result;
use crate::server::Server;
use bson::doc;
use bson::raw::{RawBsonRef, RawDocumentBuf};
use std::sync::Arc;
use storage::Namespace;

/// The `_id` of the document, and the name of the parameter that tells the same.
pub(crate) const NAME: &str = "featureCompatibilityVersion";

/// The version as tools compare it: `8.0`.
pub(crate) fn text(server: &Server) -> String {
    let [major, minor, _] = server.settings.emulated_version;
    format!("{major}.{minor}")
}

impl Server {
    /// Keeps the version announced in `admin.system.version`, and the secret of the pretence. To be called once,
    /// before there are clients.
    pub fn keep_version(self: &Arc<Self>) -> std::result::Result<(), String> {
        self.write_version()
            .and_then(|()| self.keep_pretence())
            .map_err(|error| error.message)
    }

    fn write_version(self: &Arc<Self>) -> Result<()> {
        let filter = RawDocumentBuf::try_from(&doc! { "_id": NAME })?;
        let change = RawDocumentBuf::try_from(&doc! { "$set": { "version": text(self) } })?;
        let mut statement = update::Statement::new(None);
        statement.filter = &filter;
        statement.change = RawBsonRef::Document(&change);
        statement.upsert = true;
        let namespace = Namespace::new("admin", "system.version")?;
        self.own_call(|call| update::run(call, &namespace, &statement, update::Images::None).map(drop))
    }
}
