//! Commitments to arguments and results. Must not know where they are stored.
