//! All store engines behave alike: one suite runs on each.

mod builders;
mod conformance;
mod engines;
mod formats;
mod history;
mod leases;
mod model;
mod outage;
mod tls;
