//! Order-preserving keys and the comparison order of BSON values.
