//! Examples of Fulmar: hello world, route guide and a quickstart.
