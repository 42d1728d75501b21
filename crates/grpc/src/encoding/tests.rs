//! What must hold of encodings.
