//! Metrics: what the exporter and the daemons report about real mounts, and that Prometheus understands it.

mod contrib;
mod cost;
mod daemons;
mod exporter;
mod prometheus;
