//! Proves who a client is and tells what it may do: SCRAM as a state machine, the credentials that are kept for it,
//! names in certificates, what members of a cluster prove themselves by, privileges and the built-in roles.
//!
//! This crate knows no storage, no sockets and no clock: bytes in, bytes out. Randomness and time come from the caller.

mod action;
mod attempts;
mod certificate;
mod cluster;
mod credentials;
mod mechanism;
mod privileges;
mod restrictions;
pub mod roles;
mod scram;

pub use action::{Action, ActionSet};
pub use attempts::{Admission, Attempts};
pub use certificate::{CertificateError, SubjectName};
pub use cluster::{ClusterAuth, ClusterAuthMode, ClusterKeyError, ClusterKeys, INTERNAL_DATABASE, INTERNAL_USER};
pub use credentials::{Credentials, CredentialsError, session_user};
pub use mechanism::Mechanism;
pub use privileges::{Privilege, Privileges, Resource, Target};
pub use restrictions::{AddressRange, Ends, Restriction, restrictions_allow};
pub use roles::RoleName;
pub use scram::{ClientConversation, ClientFirst, Exchange, ScramError, ServerProof, Verdict};
