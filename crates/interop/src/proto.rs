//! What is generated from the `.proto` files of the official tests.

#![allow(missing_docs)] // the schemas are written down without comments

include!(concat!(env!("OUT_DIR"), "/official/packages.rs"));
