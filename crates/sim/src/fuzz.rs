//! The bodies of the fuzz targets in `fuzz/`: each takes any bytes, and panics if something that must hold does not. They are
//! here so that a test replays the committed corpora on every machine.

mod bytes;
mod content;
mod grpc_message;
mod hpack;
mod http2_bytes;
mod pair_ops;

pub use self::grpc_message::grpc_message;
pub use self::hpack::{hpack_decode, hpack_roundtrip};
pub use self::http2_bytes::{http2_client_bytes, http2_server_bytes};
pub use self::pair_ops::pair_ops;
