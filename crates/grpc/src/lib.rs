//! gRPC calls over HTTP/2 as a state machine without I/O: framing, metadata, status, deadlines, routes.
