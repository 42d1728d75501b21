//! Interoperability programs and tests of Fulmar against other gRPC implementations.
