//! The client's side of what members of a cluster prove to each other, message by message: it knows no socket.
//!
//! A member that has connected to another one runs [`MemberLogin::run`] before anything else; then the connection may
//! do everything. The TLS that a certificate is shown by is the connection's affair.

use auth::{ClientConversation, ClusterAuth, INTERNAL_DATABASE, INTERNAL_USER, Mechanism};
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, rawdoc};
use vfs::Random;

/// See the module.
pub struct MemberLogin<'a> {
    auth: &'a ClusterAuth,
    random: &'a dyn Random,
}

/// Sends a command and answers the reply if it says `ok: 1`; else a sentence, which for a refusal is its `errmsg`.
type Call<'c> = &'c mut dyn FnMut(&RawDocument) -> Result<RawDocumentBuf, String>;

impl<'a> MemberLogin<'a> {
    /// By what `auth` says; nonces come from `random`.
    pub fn new(auth: &'a ClusterAuth, random: &'a dyn Random) -> Self {
        Self { auth, random }
    }

    /// Logs in. Of several keys each is tried in turn, so that the other end may have the old ones still.
    ///
    /// # Errors
    /// A sentence: nothing here is a proof to the other end, it does not prove to have the key itself, or the
    /// connection broke.
    pub fn run(&self, call: Call<'_>) -> Result<(), String> {
        if self.auth.mode.sends_certificate() {
            let command = rawdoc! { "authenticate": 1, "mechanism": "MONGODB-X509", "$db": "$external" };
            return call(&command).map(drop);
        }
        let keys = self.auth.keys.as_ref().ok_or("there is no key to log in with")?;
        let mut last = Ok(());
        for key in keys.iter() {
            last = self.with_key(key, call);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    fn with_key(&self, key: &str, call: Call<'_>) -> Result<(), String> {
        let mut random = [0; 24];
        self.random.fill_secret(&mut random);
        let mechanism = Mechanism::ScramSha256;
        let begun = ClientConversation::begin(mechanism, INTERNAL_USER, key, &random);
        let (first, conversation) = begun.map_err(|error| error.to_string())?;
        let reply = call(&rawdoc! {
            "saslStart": 1,
            "mechanism": mechanism.name(),
            "payload": payload(first),
            "options": { "skipEmptyExchange": true },
            "$db": INTERNAL_DATABASE,
        })?;
        let id = reply.get_i32("conversationId").map_err(|error| error.to_string())?;
        let proven = conversation.prove(payload_of(&reply)?);
        let (last, server) = proven.map_err(|error| error.to_string())?;
        let reply = call(&rawdoc! {
            "saslContinue": 1, "conversationId": id, "payload": payload(last), "$db": INTERNAL_DATABASE,
        })?;
        server.verify(payload_of(&reply)?).map_err(|error| error.to_string())?;
        match reply.get_bool("done") {
            Ok(true) => Ok(()),
            _ => Err("the other end does not end the login".to_owned()),
        }
    }
}

fn payload(text: String) -> Binary {
    Binary {
        subtype: BinarySubtype::Generic,
        bytes: text.into_bytes(),
    }
}

fn payload_of(reply: &RawDocument) -> Result<&[u8], String> {
    let payload = reply.get_binary("payload").map_err(|error| error.to_string())?;
    Ok(payload.bytes)
}
