//! The few commands that the tools need, over one connection.

use crate::error::Result;
use crate::namespace::Namespace;
use crate::server::{ReadPreference, Server, random};
use bench::connection::{Connection, REPLY_TIMEOUT, is_ok, refusal, whole_number, write_concern_error};
use bench::interrupt::Interrupt;
use bench::message::Message;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Document, doc};
use std::time::Duration;

/// What servers answer that do not know a field. Nothing has been written then.
const UNKNOWN_FIELD: i32 = 40415;
/// What deletes are sent as; they write no timestamps.
const DELETES: &str = "deletes";
/// A cursor that nobody reads is killed, if the server answers within this time.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// Namespaces of a server's own that a dump of everything leaves out.
const OWN_DATABASES: [&str; 2] = ["local", "config"];

/// What one insert did.
#[derive(Debug, Default)]
pub(crate) struct Inserted {
    pub(crate) documents: u64,
    pub(crate) failed: u64,
    /// The first failure's words.
    pub(crate) first_failure: Option<String>,
}

/// A connection to a server, and the commands of the tools over it.
#[derive(Debug)]
pub struct Client {
    /// What it is connected to.
    server: Server,
    connection: Connection,
    message: Message,
    interrupt: Interrupt,
    /// Writes say that empty timestamps stay as they are: servers put the present time in their place otherwise. Only
    /// the server's answer tells whether it knows the field; some know it and announce an older version.
    keeps_empty_timestamps: bool,
    /// Of what [`Client::change`] and [`Client::insert`] send.
    write_concern: Option<Document>,
}

impl Client {
    /// Connects, says hello and logs in. Who waits for a reply is woken when the user wants to stop.
    pub fn open(server: &Server, interrupt: &Interrupt) -> Result<Self> {
        let mut connection = connect(server, interrupt, REPLY_TIMEOUT)?;
        log_in(server, &mut connection)?;
        // A session of its own: what an earlier run has left open ends with that one's.
        let mut message = Message::new(u128::from_le_bytes(random()?));
        let mode = server.read_preference.map(ReadPreference::name);
        message.set_read_preference(mode);
        connection.set_read_preference(mode);
        Ok(Self {
            server: server.clone(),
            connection,
            message,
            interrupt: interrupt.clone(),
            keeps_empty_timestamps: true,
            write_concern: None,
        })
    }

    /// As [`Client::open`]; replies are waited for as long as it takes, as for indexes of much data.
    pub fn open_patient(server: &Server, interrupt: &Interrupt) -> Result<Self> {
        let mut client = Self::open(server, interrupt)?;
        client.wait_for_ever();
        Ok(client)
    }

    /// Replies are waited for as long as the connection lasts from here on.
    pub fn wait_for_ever(&mut self) {
        self.connection.wait_for_ever();
    }

    /// So many members must have what is restored.
    pub(crate) fn set_write_concern(&mut self, concern: &Document) {
        self.write_concern = Some(concern.clone());
    }

    /// As [`Client::run`], with the write concern, for what changes something.
    pub(crate) fn change(&mut self, database: &str, command: &Document) -> Result<Document> {
        self.interrupt.check()?;
        let mut command = command.clone();
        if let Some(concern) = &self.write_concern {
            command.insert("writeConcern", concern.clone());
        }
        self.run(database, &command)
    }

    /// Runs a command; a reply that is not `ok: 1` is an error.
    pub fn run(&mut self, database: &str, command: &Document) -> Result<Document> {
        let command = raw(command)?;
        Ok(self.connection.run(database, &command)?)
    }

    /// As [`Client::run`], and waits for the reply though the user wants to stop.
    pub fn run_through(&mut self, database: &str, command: &Document) -> Result<Document> {
        let command = raw(command)?;
        Ok(self.connection.run_through(database, &command)?)
    }

    pub(crate) fn version(&mut self) -> Result<String> {
        let reply = self.run("admin", &doc! { "buildInfo": 1 })?;
        Ok(reply.get_str("version").unwrap_or_default().to_owned())
    }

    /// All but a server's own, unless one is asked for by name.
    pub fn databases(&mut self, only: Option<&str>) -> Result<Vec<String>> {
        if let Some(only) = only {
            return Ok(vec![only.to_owned()]);
        }
        let reply = self.run("admin", &doc! { "listDatabases": 1, "nameOnly": true })?;
        let entries = reply.get_array("databases").map(Vec::as_slice).unwrap_or_default();
        Ok(entries
            .iter()
            .filter_map(|entry| entry.as_document()?.get_str("name").ok())
            .filter(|name| !OWN_DATABASES.contains(name))
            .map(str::to_owned)
            .collect())
    }

    /// Entries of `listCollections`.
    pub fn collections(&mut self, database: &str) -> Result<Vec<Document>> {
        self.documents(database, &doc! { "listCollections": 1 })
    }

    /// Entries of `listIndexes`.
    pub fn indexes(&mut self, namespace: &Namespace) -> Result<Vec<Document>> {
        self.documents(&namespace.database, &doc! { "listIndexes": &namespace.collection })
    }

    /// Bytes of all documents, as statistics have it; 0 when there are none.
    pub(crate) fn size_bytes(&mut self, namespace: &Namespace) -> Result<u64> {
        let command = raw(&doc! { "collStats": &namespace.collection })?;
        let reply = self.connection.ask(&namespace.database, &command)?;
        let size = reply.as_ref().and_then(|reply| reply.get("size"));
        Ok(match size {
            Some(bson::Bson::Int32(size)) => u64::try_from(*size).unwrap_or(0),
            Some(bson::Bson::Int64(size)) => u64::try_from(*size).unwrap_or(0),
            Some(bson::Bson::Double(size)) => *size as u64,
            _ => 0,
        })
    }

    /// All documents of the cursor that a command opens.
    pub(crate) fn documents(&mut self, database: &str, command: &Document) -> Result<Vec<Document>> {
        let mut documents = Vec::new();
        self.cursor(database, &raw(command)?, &mut |document| {
            let document = Document::try_from(document).map_err(|error| protocol(&error))?;
            documents.push(document);
            Ok(())
        })?;
        Ok(documents)
    }

    /// Every document of a collection that a filter finds, in the order in which the server gives them.
    pub fn find(
        &mut self,
        namespace: &Namespace,
        filter: Option<&RawDocument>,
        each: &mut dyn FnMut(&RawDocument) -> Result<()>,
    ) -> Result<()> {
        let mut command = RawDocumentBuf::new();
        command.append(bson::cstr!("find"), namespace.collection.as_str());
        if let Some(filter) = filter {
            command.append(bson::cstr!("filter"), filter.to_owned());
        }
        command.append(bson::cstr!("noCursorTimeout"), true);
        self.cursor(&namespace.database, &command, each)
    }

    /// Runs a command that opens a cursor, and reads it to its end. After an error the cursor is killed: it may have no
    /// time-out, and nobody goes on with it.
    pub fn cursor(
        &mut self,
        database: &str,
        command: &RawDocument,
        each: &mut dyn FnMut(&RawDocument) -> Result<()>,
    ) -> Result<()> {
        let mut open = None;
        let read = self.read_cursor(database, command, each, &mut open);
        if let (Err(_), Some((id, database, collection))) = (&read, open) {
            // The error is the first one, whether or not the server can still be told.
            let _ = self.kill_cursor(id, &database, collection);
        }
        read
    }

    /// Kills a cursor, whether or not the user wants to stop.
    fn kill_cursor(&mut self, id: i64, database: &str, collection: String) -> Result<()> {
        let command = raw(&doc! { "killCursors": collection, "cursors": [id] })?;
        if self.connection.has_whole_reply() {
            self.connection.run_within(database, &command, KILL_PATIENCE)?;
            return Ok(());
        }
        // Behind a reply that is still to come, or of which a part is there, another one would not be found.
        let mut connection = connect(&self.server, &Interrupt::new(), KILL_PATIENCE)?;
        connection.wait_at_most(KILL_PATIENCE);
        log_in(&self.server, &mut connection)?;
        connection.run(database, &command)?;
        Ok(())
    }

    /// `open`: the cursor while it is open, its database and collection.
    fn read_cursor(
        &mut self,
        database: &str,
        command: &RawDocument,
        each: &mut dyn FnMut(&RawDocument) -> Result<()>,
        open: &mut Option<(i64, String, String)>,
    ) -> Result<()> {
        self.message.whole(command, database);
        let mut name = "firstBatch";
        loop {
            // A reply that comes at once asks nobody whether to go on.
            self.interrupt.check()?;
            let reply = self.connection.call(&self.message)?;
            if !is_ok(reply) {
                return Err(refusal(if name == "firstBatch" { "the command" } else { "getMore" }, reply).into());
            }
            let cursor = reply.get_document("cursor").map_err(|error| protocol(&error))?;
            let id = whole_number(cursor, "id")?;
            let namespace = cursor.get_str("ns").map_err(|error| protocol(&error))?;
            let (database, collection) = namespace.split_once('.').unwrap_or((database, namespace));
            *open = (id != 0).then(|| (id, database.to_owned(), collection.to_owned()));
            for document in cursor.get_array(name).map_err(|error| protocol(&error))? {
                match document.map_err(|error| protocol(&error))? {
                    RawBsonRef::Document(document) => each(document)?,
                    other => return Err(protocol(&format!("{other:?} in a batch")).into()),
                }
            }
            if id == 0 {
                return Ok(());
            }
            self.message.begin_get_more(id, collection);
            self.message.end_body(database);
            name = "nextBatch";
        }
    }

    /// Runs a command with a sequence of whole documents, one behind the other in `documents`. The reply is whole, so
    /// that each write error can be told; one that is not `ok: 1` is an error. Timestamps are written as they are.
    pub fn write(
        &mut self,
        database: &str,
        command: &RawDocument,
        identifier: &str,
        documents: &[u8],
    ) -> Result<Document> {
        let reply = self.write_sequence(database, command, identifier, documents)?;
        if !is_ok(&reply) {
            return Err(refusal(identifier, &reply).into());
        }
        Ok(Document::try_from(&*reply).map_err(|error| protocol(&error))?)
    }

    /// The reply to a command with a sequence of documents, whatever it says. Empty timestamps stay as they are where
    /// the server can do that.
    fn write_sequence(
        &mut self,
        database: &str,
        command: &RawDocument,
        identifier: &str,
        documents: &[u8],
    ) -> Result<RawDocumentBuf> {
        loop {
            let keeps_empty_timestamps = self.keeps_empty_timestamps && identifier != DELETES;
            let mut command = command.to_owned();
            if keeps_empty_timestamps {
                command.append(bson::cstr!("bypassEmptyTsReplacement"), true);
            }
            self.message.whole(&command, database);
            self.message.begin_sequence(identifier);
            self.message.encoded_element(documents);
            self.message.end_sequence();
            let reply = self.connection.call(&self.message)?;
            let is_unknown = !is_ok(reply) && reply.get_i32("code").is_ok_and(|code| code == UNKNOWN_FIELD);
            if keeps_empty_timestamps && is_unknown {
                self.keeps_empty_timestamps = false;
                continue;
            }
            return Ok(reply.to_owned());
        }
    }

    /// Makes indexes, all at once. Options that only older servers knew are passed over.
    pub(crate) fn create_indexes(&mut self, namespace: &Namespace, indexes: Vec<Document>) -> Result<()> {
        let command = doc! {
            "createIndexes": &namespace.collection, "indexes": indexes, "ignoreUnknownIndexOptions": true,
        };
        self.change(&namespace.database, &command).map(drop)
    }

    /// Inserts whole documents, one behind the other in `documents`; failures of single ones are counted.
    pub(crate) fn insert(
        &mut self,
        namespace: &Namespace,
        documents: &[u8],
        count: u64,
        bypass_validation: bool,
    ) -> Result<Inserted> {
        self.interrupt.check()?;
        let mut command = doc! { "insert": &namespace.collection, "ordered": false };
        if let Some(concern) = &self.write_concern {
            command.insert("writeConcern", concern.clone());
        }
        if bypass_validation {
            command.insert("bypassDocumentValidation", true);
        }
        let reply = self.write_sequence(&namespace.database, &raw(&command)?, "documents", documents)?;
        // What a majority does not have may be taken back: it is not restored.
        if !is_ok(&reply) || write_concern_error(&reply).is_some() {
            return Err(refusal("insert", &reply).into());
        }
        let documents = u64::try_from(whole_number(&reply, "n")?).unwrap_or(0);
        Ok(Inserted {
            documents,
            failed: count.saturating_sub(documents),
            first_failure: (documents < count).then(|| refusal("insert", &reply).to_string()),
        })
    }
}

/// A connection on which nothing has been sent. An encrypted one is waited for so long.
fn connect(server: &Server, interrupt: &Interrupt, patience: Duration) -> Result<Connection> {
    Ok(match &server.encryption {
        None => Connection::open_until(server.address, interrupt)?,
        Some(encryption) => {
            let stream = encryption.connect(server.address, patience)?;
            Connection::over(stream, server.address, interrupt)
        }
    })
}

/// Says hello, and who it is.
fn log_in(server: &Server, connection: &mut Connection) -> Result<()> {
    connection.hello()?;
    if let Some(login) = &server.login {
        login.log_in(connection)?;
    }
    Ok(())
}

fn raw(document: &Document) -> Result<RawDocumentBuf> {
    RawDocumentBuf::try_from(document).map_err(|error| protocol(&error).into())
}

fn protocol(error: &dyn std::fmt::Display) -> bench::Error {
    bench::Error::Protocol(error.to_string())
}
