//! A gRPC transport for services that care about latency: no allocation per message, no runtime needed.
