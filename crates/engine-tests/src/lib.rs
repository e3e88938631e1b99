//! The conformance kit every storage engine passes.
