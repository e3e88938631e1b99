//! `filemd5`: the digest of a file of GridFS, which clients of long ago ask for after they have written one.

use super::db_hash::hexadecimal;
use super::find::empty_document;
use crate::arguments::wrong_type;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::{Action, Target};
use bson::raw::RawBsonRef;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use md5::{Digest, Md5};
use query::plan::{FindRequest, Hint};
use query::{DocumentSink, ExecState, SinkState};
use storage::Namespace;
use wire::ErrorCode;

/// `filemd5`.
pub const FILE_MD5: Command = Command::new(
    "filemd5",
    "The MD5 digest of a file in GridFS.",
    OperationKind::Command,
    Access::Fields(access),
    run,
)
.secondary_ok();

/// Where files are without another name.
const ROOT: &str = "fs";

/// To read the chunks, wherever the call may mean.
fn access(call: &Invocation<'_>) -> Result<bool> {
    let mut roots = Vec::new();
    for element in call.body {
        if let (name, RawBsonRef::String(root)) = element?
            && name.as_str() == "root"
        {
            roots.push(root);
        }
    }
    if roots.is_empty() {
        roots.push(ROOT);
    }
    Ok(roots.into_iter().all(|root| {
        let chunks = format!("{root}.chunks");
        call.may(Target::Collection(call.database, &chunks), Action::Find)
    }))
}

/// The digest so far.
struct Chunks {
    digest: Md5,
    /// The number of the chunk to come.
    next: i64,
    error: Option<CommandError>,
}

impl Chunks {
    fn add(&mut self, chunk: &RawDocument) -> Result<()> {
        let n = chunk.get("n")?.and_then(crate::arguments::number_as_i64);
        if n != Some(self.next) {
            return Err(CommandError::new(
                ErrorCode(10040),
                format!("chunks out of order: chunk {} is missing", self.next),
            ));
        }
        match chunk.get("data")? {
            Some(RawBsonRef::Binary(data)) => self.digest.update(data.bytes),
            other => {
                let other = other.unwrap_or(RawBsonRef::Null);
                return Err(wrong_type("filemd5", "data", other, "type 'binData'"));
            }
        }
        self.next += 1;
        Ok(())
    }
}

impl DocumentSink for Chunks {
    fn push(&mut self, chunk: &RawDocument) -> SinkState {
        match self.add(chunk) {
            Ok(()) => SinkState::Continue,
            Err(error) => {
                self.error = Some(error);
                SinkState::Full
            }
        }
    }
}

fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let file = call.target()?;
    let mut root = ROOT;
    call.for_each_field(|name, value| {
        match name {
            "root" => root = arguments.string(name, value)?,
            "partialOk" | "md5state" => return Err(CommandError::not_implemented(format!("filemd5.{name}"))),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let mut chunks = Chunks {
        digest: Md5::new(),
        next: 0,
        error: None,
    };
    let namespace: Namespace = call.namespace_of(&format!("{root}.chunks"))?;
    if call.definition(&namespace).is_some() {
        let mut filter = RawDocumentBuf::new();
        filter.append(bson::raw::cstr!("files_id"), file);
        let order = rawdoc! { "files_id": 1, "n": 1 };
        let request = FindRequest {
            sort: Some(&order),
            // Without its index, which all drivers make, a file would have to fit into memory.
            hint: Some(Hint::Key(&order)),
            projection: Some(empty_document()),
            ..FindRequest::new(namespace, &filter)
        };
        let mut executor = query::find(&call.context(), &request)?;
        call.set_plan_summary(executor.plan_summary());
        while chunks.error.is_none() && executor.next_documents(&call.context(), &mut chunks)? != ExecState::Exhausted {
        }
    }
    if let Some(error) = chunks.error {
        return Err(error);
    }
    reply.count("numChunks", chunks.next);
    reply.string("md5", &hexadecimal(chunks.digest));
    Ok(())
}
