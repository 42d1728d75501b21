//! Deterministic worlds for Fulmar's engines: virtual time, links with faults, checks.
