//! The real daemon, killed with SIGKILL at every named place, started again, and asked to go on: the run must end as if
//! nothing had happened. Asserted against the world (the connector's own record, the tree), not only our log.
#![cfg(feature = "failpoints")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod approvals;
mod driver;
mod matrix;
mod refusals;
