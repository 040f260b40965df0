//! Orders and filters mounts.

use clap::ValueEnum;

use super::view::{MountView, View};

/// A column by which mounts can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// Operations per second
    Ops,
    /// Failed operations per second
    Errors,
    /// Median latency
    P50,
    /// 99th percentile of the latency
    P99,
    /// Bytes read per second
    Read,
    /// Bytes written per second
    Write,
    /// Share of opens passed through
    Passthrough,
    /// Mount point
    Mount,
}

impl SortKey {
    /// The key after this one, in a circle; with `back` the one before.
    pub fn next(self, back: bool) -> Self {
        let keys = Self::value_variants();
        let at = keys.iter().position(|key| *key == self).unwrap_or_default();
        keys[(at + if back { keys.len() - 1 } else { 1 }) % keys.len()]
    }

    fn value(self, mount: &MountView) -> f64 {
        let rate = |read: fn(&super::view::Rates) -> f64| mount.rates().map(read);
        let value = match self {
            SortKey::Ops => rate(|rates| rates.operations_per_s),
            SortKey::Errors => rate(|rates| rates.errors_per_s),
            SortKey::P50 => mount.latency().map(|latency| latency.p50_us),
            SortKey::P99 => mount.latency().map(|latency| latency.p99_us),
            SortKey::Read => rate(|rates| rates.read_bytes_per_s),
            SortKey::Write => rate(|rates| rates.written_bytes_per_s),
            SortKey::Passthrough => mount.up.as_ref().and_then(|up| up.passthrough.share),
            SortKey::Mount => None,
        };
        // An unknown value is less than 0.
        value.unwrap_or(-1.0)
    }
}

/// Sorts mounts: numbers descending, mount points ascending; the other way round if `reversed`. Equal ones are sorted by mount point.
fn sort(mounts: &mut [&MountView], key: SortKey, reversed: bool) {
    mounts.sort_by(|one, other| {
        let order = key.value(other).total_cmp(&key.value(one));
        let order = order.then_with(|| one.mountpoint.cmp(&other.mountpoint));
        if reversed { order.reverse() } else { order }
    });
}

/// The mounts that match a filter, in order.
pub fn select<'a>(view: &'a View, filter: &str, key: SortKey, reversed: bool) -> Vec<&'a MountView> {
    let mut mounts: Vec<_> = view.mounts.iter().filter(|mount| matches(mount, filter)).collect();
    sort(&mut mounts, key, reversed);
    mounts
}

/// Reports whether a mount point, source, kind, state or calling program contains a text, whatever its case.
fn matches(mount: &MountView, filter: &str) -> bool {
    let filter = filter.to_lowercase();
    let callers = mount.up.iter().flat_map(|up| &up.callers);
    let texts = [mount.mountpoint.as_str(), &mount.source, &mount.kind, mount.state].into_iter();
    texts
        .chain(callers.filter_map(|caller| caller.command.as_deref()))
        .any(|text| text.to_lowercase().contains(&filter))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::processes::Processes;
    use super::super::view::tests::{reading, stat, up};
    use super::*;
    use crate::control::QueryResult;

    fn view() -> View {
        let start = Instant::now();
        let mounts = |uptime_s, reads: [u64; 3]| {
            let [one, two, three] = reads.map(|reads| up(stat(uptime_s, reads)));
            vec![one, two, QueryResult::NoDaemon, three]
        };
        let before = reading(start, mounts(1.0, [0; 3]));
        let now = reading(start + Duration::from_secs(1), mounts(2.0, [10, 30, 20]));
        View::between(Some(&before), &now, &mut Processes::default())
    }

    fn order(key: SortKey, reversed: bool) -> Vec<String> {
        let view = view();
        let mut mounts: Vec<_> = view.mounts.iter().collect();
        sort(&mut mounts, key, reversed);
        mounts.iter().map(|mount| mount.mountpoint.clone()).collect()
    }

    #[test]
    fn the_busiest_is_first_and_the_dead_last() {
        assert_eq!(order(SortKey::Ops, false), ["/m1", "/m3", "/m0", "/m2"]);
        assert_eq!(order(SortKey::Read, true), ["/m2", "/m0", "/m3", "/m1"]);
        assert_eq!(order(SortKey::Mount, false), ["/m0", "/m1", "/m2", "/m3"]);
        assert_eq!(order(SortKey::Write, false), ["/m0", "/m1", "/m3", "/m2"]);
    }

    #[test]
    fn keys_form_a_circle() {
        for key in SortKey::value_variants() {
            assert_eq!(key.next(false).next(true), *key);
        }
        assert_eq!(SortKey::Ops.next(true), SortKey::Mount);
    }

    #[test]
    fn filters_ignore_case() {
        let view = view();
        assert!(matches(&view.mounts[0], "M0") && matches(&view.mounts[2], "dead"));
        assert!(matches(&view.mounts[0], "") && !matches(&view.mounts[0], "m1"));
    }
}
