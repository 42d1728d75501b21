//! Compiles .proto files to Fulmar clients and servers, without protoc.
