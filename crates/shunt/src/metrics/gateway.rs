//! The metrics of a gateway.

use std::sync::Arc;

use shunt_volume::gateway::{GatewayStatistics, LATENCY_BOUNDS};

use crate::process;

use super::sample::{Family, Kind, Read, Sample, Unit, Value, integer, labelled, number};
use super::scrape::{GatewayScrape, Scrape, Source};

use Kind::{Counter, Gauge, Histogram};
use Unit::{Bytes, None as Plain, Seconds};

/// Reads the counters of a gateway of this process.
pub struct GatewaySource {
    /// The volume that it serves.
    pub volume: String,
    /// Its counters.
    pub statistics: Arc<GatewayStatistics>,
}

impl Source for GatewaySource {
    fn scrape(&self) -> Arc<Scrape> {
        let gateway = GatewayScrape {
            volume: self.volume.clone(),
            counts: self.statistics.snapshot(),
            cpu_s: process::cpu_seconds(),
            rss_bytes: process::resident_bytes(),
        };
        Arc::new(Scrape { mounts: Vec::new(), gateway: Some(gateway) })
    }
}

pub const GATEWAY: &[Family] = &[
    by_operation(
        "shunt_gateway_requests",
        Counter,
        Plain,
        "Requests of nodes that were answered",
        |gateway| {
            let operations = gateway.counts.operations.iter();
            operations.map(|operation| labelled(operation.name, Value::Integer(operation.count))).collect()
        },
    ),
    by_operation(
        "shunt_gateway_request_errors",
        Counter,
        Plain,
        "Requests answered with a failure",
        |gateway| {
            let operations = gateway.counts.operations.iter();
            operations.map(|operation| labelled(operation.name, Value::Integer(operation.errors))).collect()
        },
    ),
    by_operation(
        "shunt_gateway_request_duration",
        Histogram,
        Seconds,
        "Time from a request to its response; wait and wait_lease are long polls",
        |gateway| {
            let operations = gateway.counts.operations.iter();
            operations
                .map(|operation| {
                    let bounds =
                        LATENCY_BOUNDS.iter().map(|bound| bound.as_secs_f64()).chain([f64::INFINITY]);
                    let buckets = bounds.zip(operation.latency).collect();
                    labelled(operation.name, Value::Histogram(buckets, operation.total.as_secs_f64()))
                })
                .collect()
        },
    ),
    of_gateway("shunt_gateway_connections", Gauge, Plain, "Open connections of nodes", |gateway| {
        integer(gateway.counts.connections)
    }),
    of_gateway(
        "shunt_gateway_connections_accepted",
        Counter,
        Plain,
        "Connections of nodes accepted",
        |gateway| integer(gateway.counts.accepted),
    ),
    of_gateway(
        "shunt_gateway_connections_refused",
        Counter,
        Plain,
        "Connections refused because too many were pending",
        |gateway| integer(gateway.counts.refused),
    ),
    of_gateway("shunt_gateway_received", Counter, Bytes, "Contents received from nodes", |gateway| {
        integer(gateway.counts.received_bytes)
    }),
    of_gateway("shunt_gateway_sent", Counter, Bytes, "Contents sent to nodes", |gateway| {
        integer(gateway.counts.sent_bytes)
    }),
    of_gateway("shunt_gateway_cpu", Counter, Seconds, "Processor time of the gateway", |gateway| {
        number(gateway.cpu_s)
    }),
    of_gateway("shunt_gateway_resident_memory", Gauge, Bytes, "Resident memory of the gateway", |gateway| {
        integer(gateway.rss_bytes)
    }),
];

const fn of_gateway(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    help: &'static str,
    read: fn(&GatewayScrape) -> Vec<Sample>,
) -> Family {
    Family { name, kind, unit, labels: &[], help, read: Read::Gateway(read) }
}

const fn by_operation(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    help: &'static str,
    read: fn(&GatewayScrape) -> Vec<Sample>,
) -> Family {
    Family { labels: &["operation"], ..of_gateway(name, kind, unit, help, read) }
}
