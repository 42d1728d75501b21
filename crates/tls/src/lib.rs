//! TLS for Fulmar: an endpoint wrapped in rustls is a transport.
