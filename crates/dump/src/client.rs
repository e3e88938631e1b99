//! The few commands that the tools need, over one connection.

use crate::error::{DumpError, Result};
use crate::namespace::Namespace;
use bench::connection::{Connection, is_ok, refusal, whole_number};
use bench::interrupt::Interrupt;
use bench::message::Message;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Document, doc};
use std::net::{SocketAddr, ToSocketAddrs};

/// Namespaces of a server's own that a dump of everything leaves out.
const OWN_DATABASES: [&str; 2] = ["local", "config"];

/// The address and the database, if it names one, of `mongodb://HOST[:PORT][/DATABASE][?OPTIONS]`. Of the options,
/// `tls` and `ssl` are refused and all others change nothing for one server.
pub fn parse_uri(uri: &str) -> Result<(SocketAddr, Option<String>)> {
    let choice = |what: &str| DumpError::Choice(format!("{uri}: {what}"));
    let rest = uri
        .strip_prefix("mongodb://")
        .ok_or_else(|| choice("it does not start with mongodb://"))?;
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
    if host.contains('@') {
        return Err(DumpError::Choice("connecting as a user is not supported".to_owned()));
    }
    if host.contains(',') {
        return Err(choice("one host is supported, not several"));
    }
    let is_tls = |option: &str| matches!(option, "tls=true" | "ssl=true");
    if options.split('&').any(is_tls) {
        return Err(choice("TLS is not supported"));
    }
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let with_port = if has_port {
        host.to_owned()
    } else {
        format!("{host}:27017")
    };
    let address = with_port
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .ok_or_else(|| choice("there is no such host"))?;
    Ok((address, (!database.is_empty()).then(|| database.to_owned())))
}

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
    connection: Connection,
    message: Message,
}

impl Client {
    /// Connects and says hello. Who waits for a reply is woken when the user wants to stop.
    pub fn open(address: SocketAddr, interrupt: &Interrupt) -> Result<Self> {
        let mut connection = Connection::open_until(address, interrupt)?;
        connection.hello()?;
        Ok(Self {
            connection,
            message: Message::new(u128::from(address.port()) << 64 | 0x6475_6D70),
        })
    }

    /// Runs a command; a reply that is not `ok: 1` is an error.
    pub fn run(&mut self, database: &str, command: &Document) -> Result<Document> {
        let command = raw(command)?;
        Ok(self.connection.run(database, &command)?)
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

    fn documents(&mut self, database: &str, command: &Document) -> Result<Vec<Document>> {
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

    /// Runs a command that opens a cursor, and reads it to its end.
    pub fn cursor(
        &mut self,
        database: &str,
        command: &RawDocument,
        each: &mut dyn FnMut(&RawDocument) -> Result<()>,
    ) -> Result<()> {
        self.message.whole(command, database);
        let mut name = "firstBatch";
        loop {
            let reply = self.connection.call(&self.message)?;
            if !is_ok(reply) {
                return Err(refusal(if name == "firstBatch" { "the command" } else { "getMore" }, reply).into());
            }
            let cursor = reply.get_document("cursor").map_err(|error| protocol(&error))?;
            for document in cursor.get_array(name).map_err(|error| protocol(&error))? {
                match document.map_err(|error| protocol(&error))? {
                    RawBsonRef::Document(document) => each(document)?,
                    other => return Err(protocol(&format!("{other:?} in a batch")).into()),
                }
            }
            let id = whole_number(cursor, "id")?;
            if id == 0 {
                return Ok(());
            }
            let namespace = cursor.get_str("ns").map_err(|error| protocol(&error))?;
            let (database, collection) = namespace.split_once('.').unwrap_or((database, namespace));
            self.message.begin_get_more(id, collection);
            self.message.end_body(database);
            name = "nextBatch";
        }
    }

    /// Runs a command with a sequence of whole documents, one behind the other in `documents`. The reply is whole, so
    /// that each write error can be told; one that is not `ok: 1` is an error.
    pub fn write(
        &mut self,
        database: &str,
        command: &RawDocument,
        identifier: &str,
        documents: &[u8],
    ) -> Result<Document> {
        self.message.whole(command, database);
        self.message.begin_sequence(identifier);
        self.message.encoded_element(documents);
        self.message.end_sequence();
        let reply = self.connection.call(&self.message)?;
        if !is_ok(reply) {
            return Err(refusal(identifier, reply).into());
        }
        Ok(Document::try_from(reply).map_err(|error| protocol(&error))?)
    }

    /// Inserts whole documents, one behind the other in `documents`; failures of single ones are counted.
    pub(crate) fn insert(&mut self, namespace: &Namespace, documents: &[u8], count: u64) -> Result<Inserted> {
        self.message.begin("insert", &namespace.collection);
        self.message.boolean("ordered", false);
        self.message.end_body(&namespace.database);
        self.message.begin_sequence("documents");
        self.message.encoded_element(documents);
        self.message.end_sequence();
        let reply = self.connection.call(&self.message)?;
        if !is_ok(reply) {
            return Err(refusal("insert", reply).into());
        }
        let documents = u64::try_from(whole_number(reply, "n")?).unwrap_or(0);
        Ok(Inserted {
            documents,
            failed: count.saturating_sub(documents),
            first_failure: (documents < count).then(|| refusal("insert", reply).to_string()),
        })
    }
}

fn raw(document: &Document) -> Result<RawDocumentBuf> {
    RawDocumentBuf::try_from(document).map_err(|error| protocol(&error).into())
}

fn protocol(error: &dyn std::fmt::Display) -> bench::Error {
    bench::Error::Protocol(error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::parse_uri;

    #[test]
    fn addresses() {
        for (uri, address, database) in [
            ("mongodb://127.0.0.1", "127.0.0.1:27017", None),
            ("mongodb://127.0.0.1:5/", "127.0.0.1:5", None),
            ("mongodb://[::1]:5/shop?directConnection=true", "[::1]:5", Some("shop")),
        ] {
            let (found, name) = parse_uri(uri).unwrap();
            assert_eq!((found.to_string().as_str(), name.as_deref()), (address, database));
        }
        for uri in [
            "127.0.0.1",
            "mongodb://a:b@127.0.0.1",
            "mongodb://127.0.0.1,127.0.0.2",
            "mongodb://127.0.0.1/?tls=true",
        ] {
            assert!(parse_uri(uri).is_err(), "{uri}");
        }
    }
}
