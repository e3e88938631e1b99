//! Message framing of the MongoDB wire protocol.
