//! All store engines behave alike: one suite runs on each.

mod build;
mod engines;
mod formats;
mod history;
mod leases;
mod model;
mod outage;
mod suite;
mod tls;
