//! The bodies of the fuzz targets in `fuzz/`: each takes any bytes, and panics if something that must hold does not. They are
//! here so that a test replays the committed corpora on every machine.

mod hpack;

pub use self::hpack::{hpack_decode, hpack_roundtrip};
