//! All engines of a store behave alike: one suite, run on each.

mod build;
mod engines;
mod formats;
mod history;
mod leases;
mod model;
mod outage;
mod suite;
mod tls;
