//! What the examples share: the generated code of hello world and route guide, the services, and the places that the route
//! guide knows. The programs themselves are in `examples/`; `cargo run --release --example quickstart` starts the first.

#![forbid(unsafe_code)]

/// Generated from `proto/helloworld.proto`.
pub mod helloworld {
    fulmar::include_proto!("helloworld");
}

/// Generated from `proto/route_guide.proto`.
pub mod routeguide {
    fulmar::include_proto!("routeguide");
}

mod arguments;
mod features;
mod geometry;
mod greeter;
mod guide;
mod proxy;

pub use arguments::arguments;
pub use features::features;
pub use geometry::{contains, distance_metres};
pub use greeter::Hello;
pub use guide::Guide;
pub use proxy::forward;

/// The programs of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

/// The programs of the guide, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
pub struct GuideBook;
