//! `shunt top --once`: the changes during one interval as text or JSON, without a terminal.

use std::thread;
use std::time::Duration;

use super::format::{bytes, known, micros, percent, rate};
use super::sampler::Sampler;
use super::sort::{SortKey, select};
use super::view::{MountView, View};
use crate::error::{Result, failed};
use crate::text::{Align, Table};

/// Takes two readings, and returns the mounts that match a filter, in order.
///
/// # Errors
/// The mounts cannot be read.
pub fn sample(interval: Duration, key: SortKey, reversed: bool, filter: &str) -> Result<View> {
    let mut sampler = Sampler::default();
    sampler.sample()?;
    thread::sleep(interval);
    let view = sampler.sample()?;
    let mounts = select(&view, filter, key, reversed).into_iter().cloned().collect();
    Ok(View { mounts, ..view })
}

/// Formats a view as JSON.
///
/// # Errors
/// It cannot be encoded.
pub fn json(view: &View) -> Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(view).map_err(failed)?))
}

/// Formats a view as a table.
pub fn table(view: &View) -> String {
    if view.mounts.is_empty() {
        return "no mounts\n".to_owned();
    }
    let mut table = Table::new(&[
        ("MOUNT", Align::Left),
        ("KIND", Align::Left),
        ("OP/S", Align::Right),
        ("ERR/S", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("READ/S", Align::Right),
        ("WRITE/S", Align::Right),
        ("PASS", Align::Right),
        ("CALLERS", Align::Left),
    ]);
    for mount in &view.mounts {
        let rates = mount.rates();
        table.row([
            mount.mountpoint.clone(),
            mount.kind.clone(),
            known(rates, |rates| rate(rates.operations_per_s)),
            known(rates, |rates| rate(rates.errors_per_s)),
            known(mount.latency(), |latency| micros(latency.p50_us)),
            known(mount.latency(), |latency| micros(latency.p99_us)),
            known(rates, |rates| bytes(rates.read_bytes_per_s)),
            known(rates, |rates| bytes(rates.written_bytes_per_s)),
            known(mount.up.as_ref().and_then(|up| up.passthrough.share), percent),
            callers(mount),
        ]);
    }
    table.render()
}

/// The three busiest processes, or why there is no report.
fn callers(mount: &MountView) -> String {
    let Some(up) = &mount.up else {
        return format!("{}: {}", mount.state, mount.reason.as_deref().unwrap_or_default());
    };
    let texts = up.callers.iter().take(3).map(|caller| match caller.pid {
        None | Some(0) => caller.name().into_owned(),
        Some(pid) => format!("{pid} {}", caller.name()),
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::processes::Processes;
    use super::super::view::tests::{reading, silent, stat, up};
    use super::*;
    use crate::control::QueryResult;

    #[test]
    fn a_table_for_people_and_json_for_programs() {
        let start = Instant::now();
        let before = reading(start, vec![up(stat(1.0, 0)), QueryResult::NoDaemon]);
        let now = reading(start + Duration::from_secs(1), vec![up(stat(2.0, 100)), silent("no reply")]);
        let view = View::between(Some(&before), &now, &mut Processes::default());
        let text = table(&view);
        let line = |number: usize| -> Vec<String> {
            text.lines().nth(number).unwrap().split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(line(1), ["/m0", "mirror", "200", "10", "10us", "20us", "400K", "0", "50%"]);
        assert_eq!(line(2)[9..], ["silent:", "no", "reply"]);
        let json: serde_json::Value = serde_json::from_str(&json(&view).unwrap()).unwrap();
        assert_eq!(json["mounts"][0]["rates"]["operations_per_s"], 200.0);
        assert_eq!(table(&View::default()), "no mounts\n");
    }
}
