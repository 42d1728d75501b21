//! HTTP/2 (RFC 9113): both ends of a connection as one state machine without I/O.
