//! The secret that users who do not exist are made up from.
//!
//! With access control it is kept in `admin.system.keys`, so that such a user has the same salt after the next
//! start, as one who exists has; without, everybody could read it there, and it is a new one at each start.

use super::update::{self, Images, Statement};
use super::user_store::{self, Store};
use crate::error::Result;
use crate::server::Server;
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, doc};
use std::sync::Arc;

/// The `_id` of its document.
const NAME: &str = "unknownUsers";

impl Server {
    /// The secret.
    pub(crate) fn pretence(&self) -> &[u8; 32] {
        self.pretence.get_or_init(|| self.fresh_secret())
    }

    fn fresh_secret(&self) -> [u8; 32] {
        let mut secret = [0; 32];
        self.env.random.fill_secret(&mut secret);
        secret
    }

    /// Reads the secret, or keeps a new one.
    pub(crate) fn keep_pretence(self: &Arc<Self>) -> Result<()> {
        if !self.access.is_enabled() {
            return Ok(());
        }
        let filter = doc! { "_id": NAME };
        let raw_filter = RawDocumentBuf::try_from(&filter)?;
        let key = Binary {
            subtype: BinarySubtype::Generic,
            bytes: self.fresh_secret().to_vec(),
        };
        let change = RawDocumentBuf::try_from(&doc! { "$setOnInsert": { "key": key } })?;
        let mut statement = Statement::new(None);
        statement.filter = &raw_filter;
        statement.change = RawBsonRef::Document(&change);
        statement.upsert = true;
        let kept = self.own_call(|call| {
            update::run(call, &Store::Keys.namespace()?, &statement, Images::None)?;
            Ok(user_store::find(call, Store::Keys, &filter)?.pop())
        })?;
        let bytes = kept.and_then(|document| document.get_binary_generic("key").ok()?.as_slice().try_into().ok());
        if let Some(secret) = bytes {
            // Nobody has asked for it before there were clients.
            let _ = self.pretence.set(secret);
        }
        Ok(())
    }
}
