//! `saslStart`, `saslContinue`, `authenticate`, `logout`, and what `hello` has of them. Certificates are in
//! `authenticate_x509.rs`.
//!
//! A client that names a user who does not exist, or one without credentials for the mechanism, goes through the same
//! messages and is refused at the same one as a client with a wrong password. One connection is one user: whoever
//! proves to be another afterwards is only that one.

use super::attempt::Attempt;
use super::authenticate_x509::{self, EXTERNAL, Request, X509};
use super::role_store::Held;
use super::user_store;
use crate::arguments::{Arguments, missing_field, wrong_type};
use crate::authentication::{Conversation, Identity, Step};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::internal_user;
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::throttle;
use auth::{ClientFirst, Credentials, Exchange, Mechanism, Verdict};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use std::sync::Arc;
use wire::ErrorCode;

/// `saslStart`.
pub const SASL_START: Command = Command::new(
    "saslStart",
    "Begins to prove who the client is.",
    OperationKind::Command,
    Access::Open,
    |call, reply| {
        let (database, body) = (call.database, call.body);
        let turn = start(call, "saslStart", database, body, |name| {
            crate::arguments::is_generic(name.as_bytes())
        })?;
        turn.write(reply);
        Ok(())
    },
)
.ends_with_client()
.secondary_ok()
.api_version_1()
.secret(&["payload"]);
/// `saslContinue`.
pub const SASL_CONTINUE: Command = Command::new(
    "saslContinue",
    "Goes on with saslStart.",
    OperationKind::Command,
    Access::Open,
    sasl_continue,
)
.ends_with_client()
.secondary_ok()
.api_version_1()
.secret(&["payload"]);
/// `authenticate`.
pub const AUTHENTICATE: Command = Command::new(
    "authenticate",
    "Authenticates by certificate.",
    OperationKind::Command,
    Access::Open,
    authenticate,
)
.ends_with_client()
.secondary_ok()
.api_version_1()
.secret(&["key", "nonce"]);
/// `logout`.
pub const LOGOUT: Command = Command::new(
    "logout",
    "Forgets who the connection has proven to be.",
    OperationKind::Command,
    Access::Open,
    |call, _| {
        call.for_each_field(|_, _| Ok(false))?;
        let left = {
            let mut state = call.client.authentication.lock();
            let left = state.user.take_if(|user| user.database == call.database);
            if left.is_some() {
                state.grant = None;
            }
            left
        };
        if let Some(left) = left {
            call.server
                .audit_logout(call.client, &left, "the client has logged out");
        }
        Ok(())
    },
)
.secondary_ok()
.api_version_1();

fn authenticate(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut mechanism, mut user) = (None, None);
    call.for_each_field(|name, value| {
        match name {
            "mechanism" => mechanism = Some(arguments.string(name, value)?),
            "user" => user = Some(arguments.string(name, value)?),
            // Of mechanisms that were.
            "db" | "nonce" | "key" => {}
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // What names none is MONGODB-CR, the only one that did without.
    match mechanism.unwrap_or("MONGODB-CR") {
        X509 => {
            let request = Request::new(call.database, user);
            reply.append_all(&authenticate_x509::authenticate(call, &request)?);
            Ok(())
        }
        "MONGODB-CR" => Err(CommandError::new(
            ErrorCode::AuthenticationFailed,
            "MONGODB-CR is no longer spoken: use SCRAM-SHA-256 or SCRAM-SHA-1",
        )),
        other => Err(CommandError::bad_value(format!("Unsupported mechanism '{other}'"))),
    }
}

/// What the server says in a conversation.
struct Turn {
    conversation: i32,
    done: bool,
    payload: String,
}

impl Turn {
    fn write(self, reply: &mut Reply<'_>) {
        reply.append_all(&self.document());
    }

    fn document(self) -> Document {
        let payload = Binary {
            subtype: BinarySubtype::Generic,
            bytes: self.payload.into_bytes(),
        };
        doc! { "conversationId": self.conversation, "done": self.done, "payload": payload }
    }
}

/// The fields of `saslStart`, also inside `hello`; `known` tells what may stand beside them.
fn start(
    call: &mut Invocation<'_>,
    command: &'static str,
    database: &str,
    body: &RawDocument,
    known: fn(&str) -> bool,
) -> Result<Turn> {
    let arguments = Arguments::of(command);
    let (mut mechanism, mut payload, mut skip_empty_exchange) = (None, None, false);
    arguments.each(body, |name, value| {
        match name {
            "saslStart" | "autoAuthorize" => {}
            "mechanism" => mechanism = Some(arguments.string(name, value)?),
            "payload" => payload = Some(bytes(command, value)?),
            "options" => {
                for element in arguments.document(name, value)? {
                    let (name, value) = element?;
                    if name.as_str() == "skipEmptyExchange" {
                        skip_empty_exchange = arguments.boolean("options.skipEmptyExchange", value)?;
                    }
                }
            }
            other => return Ok(known(other)),
        }
        Ok(true)
    })?;
    let name = mechanism.ok_or_else(|| missing_field(command, "mechanism"))?;
    let payload = payload.ok_or_else(|| missing_field(command, "payload"))?;
    call.client.authentication.lock().conversation = None;
    let Ok(mechanism) = name.parse::<Mechanism>() else {
        return Err(CommandError::new(
            ErrorCode::MechanismUnavailable,
            format!("Received authentication for mechanism {name} which is unknown or not enabled"),
        ));
    };
    let is_speculative = command != "saslStart";
    let first = ClientFirst::parse(&payload).map_err(|error| {
        Attempt::new(mechanism.name(), database, "").fail(call, &error.to_string());
        failed()
    })?;
    let user = first.user().to_owned();
    Attempt::new(mechanism.name(), database, &user)
        .speculative(is_speculative)
        .begin(call);
    let cluster_auth = call.server.settings.cluster_auth.as_ref();
    let is_member = internal_user::is_internal(cluster_auth, database, &user);
    let document = match is_member {
        true => None,
        false => user_store::find_one(call, database, &user)?,
    };
    let id = user_store::id(database, &user);
    // Made up for all, so that what takes time does so for all.
    let pretended = Credentials::pretended(mechanism, &id, call.server.pretence());
    let kept = document
        .as_ref()
        .and_then(|document| user_store::credentials(document, mechanism));
    let verifiers = match is_member {
        true => cluster_auth
            .and_then(|auth| call.server.access.internal.get(auth, mechanism, &pretended))
            .map(<[_]>::to_vec),
        false => kept.map(|kept| vec![kept]),
    };
    let claimed = user_store::identity(database, &user, document.as_ref().unwrap_or(&Document::new()));
    let mut random = [0; 24];
    call.server.env.random.fill_secret(&mut random);
    let (message, exchange) = first.answer_any(verifiers.unwrap_or_else(|| vec![pretended]), &random);
    let mut state = call.client.authentication.lock();
    state.conversations = state.conversations.wrapping_add(1);
    state.conversation = Some(Conversation {
        mechanism,
        claimed,
        is_speculative,
        skip_empty_exchange,
        step: Step::Proof(Box::new(exchange)),
    });
    Ok(Turn {
        conversation: state.conversations,
        done: false,
        payload: message,
    })
}

fn sasl_continue(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut number, mut payload) = (None, None);
    call.for_each_field(|name, value| {
        match name {
            "conversationId" => number = Some(arguments.integer(name, value)?),
            "payload" => payload = Some(bytes("saslContinue", value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let number = number.ok_or_else(|| missing_field("saslContinue", "conversationId"))?;
    let payload = payload.ok_or_else(|| missing_field("saslContinue", "payload"))?;
    // A conversation has one try: it is taken out, and put back only when it goes on.
    let (current, conversation) = {
        let mut state = call.client.authentication.lock();
        (state.conversations, state.conversation.take())
    };
    let protocol = |message: &str| CommandError::new(ErrorCode::ProtocolError, message);
    let Conversation {
        mechanism,
        claimed,
        is_speculative,
        skip_empty_exchange,
        step,
    } = conversation.ok_or_else(|| protocol("No SASL session state found"))?;
    if number != i64::from(current) {
        return Err(protocol("sasl: Mismatched conversation id"));
    }
    let attempt = |claimed: &Identity, outcome: std::result::Result<(), &str>, call: &Invocation<'_>| {
        let attempt = Attempt::new(mechanism.name(), &claimed.database, &claimed.user).speculative(is_speculative);
        match outcome {
            Ok(()) => attempt.succeed(call),
            Err(reason) => attempt.fail(call, reason),
        }
    };
    let message = match step {
        Step::Empty if payload.is_empty() => String::new(),
        Step::Empty => return Err(protocol("the last message of a SCRAM conversation is empty")),
        Step::Proof(exchange) => {
            let message = heard(call, &claimed, *exchange, &payload)?.map_err(|unproven| {
                let (reason, error) = unproven.told();
                attempt(&claimed, Err(&reason), call);
                error
            })?;
            if !skip_empty_exchange {
                call.client.authentication.lock().conversation = Some(Conversation {
                    mechanism,
                    claimed,
                    is_speculative,
                    skip_empty_exchange,
                    step: Step::Empty,
                });
                Turn {
                    conversation: current,
                    done: false,
                    payload: message,
                }
                .write(reply);
                return Ok(());
            }
            message
        }
    };
    become_user(call, claimed.clone());
    attempt(&claimed, Ok(()), call);
    Turn {
        conversation: current,
        done: true,
        payload: message,
    }
    .write(reply);
    Ok(())
}

/// Why somebody has not proven to be who it says.
enum Unproven {
    /// The proof was heard.
    Refused(String),
    /// It was not: too many others failed, and wait before it.
    Unheard,
}

impl Unproven {
    /// What the log says, and what the client is told.
    fn told(self) -> (String, CommandError) {
        match self {
            Self::Refused(reason) => (reason, failed()),
            Self::Unheard => {
                let reason = "too many attempts failed";
                let told = format!("{reason} to log in as this user from this address: try again later");
                (reason.to_owned(), CommandError::overloaded(told))
            }
        }
    }
}

/// Hears the proof, later the more of them failed before: what the server says to it, or why it is refused. Proofs of
/// members' keys that cannot be guessed are heard at once.
fn heard(
    call: &mut Invocation<'_>,
    claimed: &Identity,
    exchange: Exchange,
    proof: &[u8],
) -> Result<std::result::Result<String, Unproven>> {
    let throttle = &Arc::clone(call.server).access.throttle;
    let cluster_auth = call.server.settings.cluster_auth.as_ref();
    let is_guessed = cluster_auth
        .filter(|_| internal_user::is_internal(cluster_auth, &claimed.database, &claimed.user))
        .is_none_or(internal_user::is_guessable);
    let key = is_guessed.then(|| {
        let address = call.client.peer().address();
        throttle::key(call.server.pretence(), &claimed.user, &claimed.database, address)
    });
    if let Some(key) = key
        && !throttle.wait(key, &call.operation)?
    {
        return Ok(Err(Unproven::Unheard));
    }
    let reason = match exchange.finish(proof) {
        Ok(Verdict::Proven(_)) if is_barred(call, claimed)? => "not allowed from this address".to_owned(),
        Ok(Verdict::Proven(message)) => {
            if let Some(key) = key {
                throttle.succeeded(key, &call.operation);
            }
            return Ok(Ok(message));
        }
        Ok(Verdict::Refused) => "the proof is wrong, or there is no such user".to_owned(),
        Err(error) => error.to_string(),
    };
    if let Some(key) = key {
        throttle.failed(key, &call.operation);
    }
    Ok(Err(Unproven::Refused(reason)))
}

/// Do the user's restrictions, or those of a role it holds, shut this connection out? Only asked about who has
/// proven to be the user.
fn is_barred(call: &mut Invocation<'_>, claimed: &Identity) -> Result<bool> {
    let Some(document) = user_store::find_account(call, &claimed.database, &claimed.user)? else {
        return Ok(true);
    };
    Ok(!Held::of(call, &document)?.let_in(call.client.peer().ends()))
}

/// `speculativeAuthenticate` of `hello`: the first step of `saslStart`, or all of `authenticate`. What does not work is
/// as if it had not been asked for; the client tries again in the usual way and is told why.
pub fn speculate(call: &mut Invocation<'_>, request: &RawDocument, reply: &mut Reply<'_>) {
    if let Some(request) = Request::speculative(request) {
        if let Ok(done) = authenticate_x509::authenticate(call, &request) {
            reply.value("speculativeAuthenticate", &Bson::Document(done));
        }
        return;
    }
    let Ok(Some(RawBsonRef::String(database))) = request.get("db") else {
        return;
    };
    if let Ok(turn) = start(call, "hello.speculativeAuthenticate", database, request, |name| {
        name == "db"
    }) {
        reply.value("speculativeAuthenticate", &Bson::Document(turn.document()));
    }
}

/// `saslSupportedMechs` of `hello`: the mechanisms of `database.user`; all of them for a user who does not exist.
///
/// # Errors
/// `BadValue` for a name without a database.
pub fn supported(call: &mut Invocation<'_>, name: &str) -> Result<Vec<&'static str>> {
    let (database, user) = name
        .split_once('.')
        .ok_or_else(|| CommandError::bad_value("UserName must contain a '.' separated database.user pair"))?;
    call.server.metrics.attempts.mechanisms_asked_for.add(1);
    // Whether or not there is such a user.
    if database == EXTERNAL {
        return Ok(vec![X509]);
    }
    let cluster_auth = call.server.settings.cluster_auth.as_ref();
    let document = match internal_user::is_internal(cluster_auth, database, user) {
        true => None,
        false => user_store::find_one(call, database, user)?,
    };
    let mechanisms = match document {
        Some(document) => user_store::mechanisms(&document),
        None => Mechanism::ALL.to_vec(),
    };
    Ok(mechanisms.into_iter().map(Mechanism::name).collect())
}

/// Whom the connection has proven to be, and the user's document as it is now. A user who was dropped, or dropped and
/// made again, since is nobody.
pub fn current_user(call: &mut Invocation<'_>) -> Result<Option<(Identity, Document)>> {
    let Some(known) = call.client.authentication.lock().user.clone() else {
        return Ok(None);
    };
    let document = user_store::find_account(call, &known.database, &known.user)?;
    Ok(document
        .filter(|document| user_store::identity(&known.database, &known.user, document) == known)
        .map(|document| (known, document)))
}

/// The one thing that a client learns.
pub fn failed() -> CommandError {
    CommandError::new(ErrorCode::AuthenticationFailed, "Authentication failed.")
}

/// Takes the client for the user that it has proven to be without a conversation; refuses it when there is no such
/// user, or not here. There is nothing to guess: no attempt waits for those before it.
pub fn admit(call: &mut Invocation<'_>, attempt: &Attempt<'_>, claimed: Option<Identity>) -> Result<()> {
    let reason = match claimed {
        None => "there is no such user",
        Some(claimed) if is_barred(call, &claimed)? => "not allowed from this address",
        Some(claimed) => {
            become_user(call, claimed);
            attempt.succeed(call);
            return Ok(());
        }
    };
    attempt.fail(call, reason);
    Err(failed())
}

/// From now on the connection is the user's.
fn become_user(call: &Invocation<'_>, user: Identity) {
    let mut state = call.client.authentication.lock();
    state.user = Some(user);
    state.grant = None;
}

/// Binary data, or base64 of it.
fn bytes(command: &str, value: RawBsonRef<'_>) -> Result<Vec<u8>> {
    match value {
        RawBsonRef::Binary(binary) => Ok(binary.bytes.to_vec()),
        RawBsonRef::String(text) => STANDARD
            .decode(text)
            .map_err(|_| CommandError::new(ErrorCode::FailedToParse, "the payload is not base64")),
        other => Err(wrong_type(command, "payload", other, "types '[string, binData]'")),
    }
}
