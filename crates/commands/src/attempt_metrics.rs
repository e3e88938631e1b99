//! How often somebody tried to prove to be a user: `serverStatus.security.authentication`.

use crate::counter::Counter;
use auth::Mechanism;
use bson::{Bson, Document, doc};

/// The name of the mechanism of certificates.
pub const X509: &str = "MONGODB-X509";

/// Attempts begun, and those that succeeded.
#[derive(Default)]
pub struct AttemptCounters {
    /// Begun.
    pub received: Counter,
    /// Of those, the ones that proved what they said.
    pub successful: Counter,
}

impl AttemptCounters {
    fn document(&self) -> Document {
        doc! { "received": self.received.get(), "successful": self.successful.get() }
    }
}

/// Attempts by one mechanism.
#[derive(Default)]
pub struct MechanismCounters {
    /// All of them.
    pub all: AttemptCounters,
    /// Those that began in `hello`.
    pub speculative: AttemptCounters,
    /// Those of members of the cluster.
    pub cluster: AttemptCounters,
}

/// `serverStatus.security.authentication`.
#[derive(Default)]
pub struct AttemptMetrics {
    /// `hello` that asked for a user's mechanisms.
    pub mechanisms_asked_for: Counter,
    /// In the order of [`MECHANISMS`].
    by_mechanism: [MechanismCounters; MECHANISMS],
}

/// Certificates, and those of [`Mechanism::ALL`].
const MECHANISMS: usize = 1 + Mechanism::ALL.len();

impl AttemptMetrics {
    fn rows(&self) -> impl Iterator<Item = (&'static str, &MechanismCounters)> {
        let names = std::iter::once(X509).chain(Mechanism::ALL.map(Mechanism::name));
        names.zip(&self.by_mechanism)
    }

    /// Those by a mechanism.
    pub fn of(&self, mechanism: &str) -> Option<&MechanismCounters> {
        self.rows()
            .find(|(name, _)| *name == mechanism)
            .map(|(_, counters)| counters)
    }

    /// As `serverStatus` shows it.
    pub fn document(&self) -> Document {
        let mechanisms: Document = self
            .rows()
            .map(|(name, counters)| {
                let counted = doc! {
                    "speculativeAuthenticate": counters.speculative.document(),
                    "clusterAuthenticate": counters.cluster.document(),
                    "authenticate": counters.all.document(),
                };
                (name.to_owned(), Bson::Document(counted))
            })
            .collect();
        doc! { "saslSupportedMechsReceived": self.mechanisms_asked_for.get(), "mechanisms": mechanisms }
    }
}
