//! The manifest model: parsing, defaults, rules. Must not know runs or the ledger.
