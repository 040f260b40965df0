//! The state of a daemon, for `list`, `stat` and the line it prints at the start.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use shunt_fuse::guardian::Cause;
use shunt_fuse::{
    CallerStatistics, Capabilities, Handle, Opcode, RingBuffers, Snapshot, TransportInUse, latency_bounds,
};

use super::upgrade::Successor;
use super::{AnswerVolume, Attached, Extended, FsStatus, Service, SetOnline, kernel};
use crate::control::{Hello, Provider, VolumeAsk};
use crate::metrics;
use crate::process;
use crate::report::counters::{Caller, Transferred};
use crate::report::{
    Cache, Entry, Extension, Memory, Negotiated, Passthrough, Refused, Requests, Stat, TookOver,
};

/// Limit of the callers in a report.
const MAX_CALLERS: usize = 64;
/// Time after its last request during which a caller is reported.
const RECENT_CALLER: Duration = Duration::from_secs(60);
/// Time after its last request during which a caller counts as active.
const ACTIVE_CALLER: Duration = Duration::from_secs(5);

/// The state of a daemon.
pub struct DaemonInfo {
    mountpoint: String,
    source: String,
    kind: &'static str,
    cache: String,
    passthrough_off: Option<String>,
    since: Instant,
    /// Seconds since 1970.
    started_s: f64,
    pid_namespace: Option<u64>,
    handle: Handle,
    /// The number of the connection in the kernel.
    connection: u32,
    status: Box<dyn Fn() -> FsStatus + Send + Sync>,
    successor: Successor,
    took_over: OnceLock<TookOver>,
    online: Option<SetOnline>,
    answers: Option<AnswerVolume>,
}

impl DaemonInfo {
    pub fn new<F>(
        service: &Service<F>,
        attached: &Attached,
        held: Box<dyn Fn() -> FsStatus + Send + Sync>,
        successor: Successor,
    ) -> Self {
        DaemonInfo {
            mountpoint: attached.mount.path().to_string_lossy().into_owned(),
            source: service.source.to_string_lossy().into_owned(),
            kind: service.kind,
            cache: service.cache.clone(),
            passthrough_off: service.passthrough_off.clone(),
            since: Instant::now(),
            started_s: seconds_since_1970(),
            pid_namespace: process::pid_namespace(),
            handle: attached.handle.clone(),
            connection: attached.mount.dev().minor,
            status: held,
            successor,
            took_over: OnceLock::new(),
            online: service.online.clone(),
            answers: service.answers.clone(),
        }
    }

    /// Records how this daemon took over from another one.
    pub fn set_took_over(&self, took_over: TookOver) {
        let _ = self.took_over.set(took_over);
    }

    /// The source, mount point, transport, passthrough and cache mode, in one line.
    pub fn line(&self) -> String {
        let TransportInUse { transport, reason, buffers } = self.handle.transport();
        let mut line = format!("{} shows {} (transport {transport}", self.mountpoint, self.source);
        if let Some(buffers) = buffers.filter(|buffers| *buffers != RingBuffers::PerEntry) {
            let _ = write!(line, " with {buffers} buffers");
        }
        if let Some(reason) = reason {
            let _ = write!(line, ": {reason}");
        }
        line.push_str(", passthrough ");
        match self.no_passthrough() {
            None => line.push_str("on"),
            Some(reason) => {
                let _ = write!(line, "off: {reason}");
            }
        }
        let _ = write!(line, ", cache {}", self.cache);
        if let Some(rules) = (self.status)().rules {
            let _ = write!(line, ", rules {rules}");
        }
        line.push(')');
        crate::text::printable(&line).into_owned()
    }

    /// Directories of the source that are mounted on the mount.
    pub fn grafts(&self) -> Vec<PathBuf> {
        (self.status)().grafts
    }

    /// The reason why file data goes through the daemon; none with passthrough.
    fn no_passthrough(&self) -> Option<String> {
        if let Some(wish) = &self.passthrough_off {
            return Some(wish.clone());
        }
        if let Some(passthrough) = self.handle.passthrough() {
            let none_yet = self.handle.statistics().passthrough_opens == 0;
            return passthrough.refusal().filter(|_| none_yet).map(|errno| match errno {
                shunt_fuse::Errno::LOOP => "the source lies on too many stacked file systems".to_owned(),
                errno => format!("the kernel refuses backing files of the source ({errno})"),
            });
        }
        let refusal = self.handle.negotiated().refusal(Capabilities::PASSTHROUGH);
        Some(refusal.map_or("not requested", |refusal| refusal.reason).to_owned())
    }

    fn passthrough(&self, figures: &Snapshot) -> Passthrough {
        let reason = self.no_passthrough();
        Passthrough {
            enabled: reason.is_none(),
            reason,
            opens: figures.passthrough_opens,
            backing_files: self.handle.passthrough().map_or(0, |files| files.len() as u64),
        }
    }

    fn memory(&self, held: &FsStatus) -> Memory {
        Memory {
            nodes: held.nodes,
            node_bytes: held.bytes,
            open_nodes: self.handle.open_nodes() as u64,
            descriptors: process::descriptors(),
            rss_bytes: process::resident_bytes(),
        }
    }

    /// The callers of the last minute: first those that are active, then by their requests, so that the limit drops the least
    /// important ones.
    fn callers(&self) -> Vec<Caller> {
        let mut recent: Vec<_> =
            self.handle.callers().into_iter().filter(|caller| caller.idle <= RECENT_CALLER).collect();
        recent.sort_by_key(|caller| (caller.idle > ACTIVE_CALLER, Reverse(caller.requests)));
        recent.truncate(MAX_CALLERS);
        recent.into_iter().map(caller).collect()
    }

    fn extension(&self, held: Option<Extended>) -> Option<Extension> {
        let held = held?;
        let counts = kernel::counts(self.connection);
        Some(Extension { attached: held.refusal.is_none(), reason: held.refusal, files: held.files, counts })
    }

    fn negotiated(&self) -> Negotiated {
        let agreed = self.handle.negotiated();
        let refused = agreed.refused.iter().map(|refusal| Refused {
            capability: names(refusal.capability).join("|"),
            reason: refusal.reason.to_owned(),
        });
        Negotiated {
            protocol: format!("7.{}", agreed.minor),
            max_write: agreed.max_write,
            max_readahead: agreed.max_readahead,
            granted: names(agreed.granted),
            refused: refused.collect(),
        }
    }
}

impl metrics::Source for DaemonInfo {
    fn scrape(&self) -> Arc<metrics::Scrape> {
        Arc::new(metrics::Scrape::of_mount(self.stat()))
    }
}

impl Provider for DaemonInfo {
    fn hello(&self) -> Hello {
        let passthrough_reason = self.no_passthrough();
        let transport = self.handle.transport();
        let entry = Entry {
            mountpoint: self.mountpoint.clone(),
            source: self.source.clone(),
            kind: self.kind.to_owned(),
            pid: Some(std::process::id()),
            transport: Some(transport.transport.to_string()),
            transport_reason: transport.reason,
            passthrough: Some(passthrough_reason.is_none()),
        };
        Hello { entry, passthrough_reason }
    }

    fn stat(&self) -> Stat {
        let figures = self.handle.statistics();
        let held = (self.status)();
        let requests = requests(&figures);
        let transport = self.handle.transport();
        Stat {
            mountpoint: self.mountpoint.clone(),
            source: self.source.clone(),
            kind: self.kind.to_owned(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            transport: transport.transport.to_string(),
            transport_reason: transport.reason,
            transport_buffers: transport.buffers.map(|buffers| buffers.to_string()),
            uptime_s: self.since.elapsed().as_secs_f64(),
            started_s: self.started_s,
            cpu_s: process::cpu_seconds(),
            takeovers: self.handle.takeover().map_or(0, |takeover| takeover.takeovers().into()),
            takeover: self.took_over.get().cloned(),
            no_takeover: self.successor.obstacle(),
            threads: self.handle.threads() as u64,
            wakeful_bursts: self.handle.wakeful_bursts(),
            waiting: self.handle.waiting_requests() as u64,
            cancelled: figures.cancelled,
            malformed: figures.malformed,
            transferred: transferred(&figures),
            latency_bounds_us: latency_bounds_us(),
            errors: requests
                .iter()
                .filter(|(_, requests)| requests.errors > 0)
                .map(|(name, requests)| (name.clone(), requests.errors))
                .collect(),
            never_asked: Opcode::ALL
                .iter()
                .filter(|opcode| is_for_programs(**opcode))
                .map(|opcode| opcode.name().to_owned())
                .filter(|name| !requests.contains_key(name))
                .collect(),
            requests,
            passthrough: self.passthrough(&figures),
            memory: self.memory(&held),
            grafts: held.grafts,
            rules: held.rules,
            cache: Cache {
                mode: self.cache.clone(),
                overflows: self.handle.notification_overflows(),
                watch: held.watch,
            },
            negotiated: self.negotiated(),
            extension: self.extension(held.extension),
            callers: self.callers(),
            pid_namespace: self.pid_namespace,
            volume: held.volume,
            ext4: held.ext4,
        }
    }

    fn set_online(&self, online: bool) -> Result<(), String> {
        let set = self.online.as_ref().ok_or("this is not a volume with a store")?;
        set(online);
        Ok(())
    }

    fn volume(&self, ask: &VolumeAsk) -> Result<serde_json::Value, String> {
        self.answers.as_ref().ok_or("this is not a volume")?(ask)
    }

    fn upgrade(&self, binary: &Path) -> Result<Box<dyn FnOnce()>, String> {
        self.successor.upgrade(binary)
    }
}

fn caller(statistics: CallerStatistics) -> Caller {
    let CallerStatistics { tid, uid, requests, active, idle } = statistics;
    Caller { tid, uid, requests, since_s: (active + idle).as_secs(), idle_s: idle.as_secs() }
}

/// The cause of a takeover in the words of the report.
pub fn took_over(cause: Cause, pause_ms: f64) -> TookOver {
    let cause = match cause {
        Cause::Death => "death",
        Cause::Upgrade => "upgrade",
        Cause::FailedUpgrade => "failed upgrade",
        Cause::Restart => "restart",
    };
    TookOver { cause: cause.to_owned(), pause_ms }
}

/// Reports whether a program can cause a request; the others are sent by the kernel itself.
fn is_for_programs(opcode: Opcode) -> bool {
    use Opcode::*;
    opcode.has_reply() && !matches!(opcode, Init | Destroy | Setupmapping | Removemapping)
}

pub fn requests(figures: &Snapshot) -> BTreeMap<String, Requests> {
    let micros = |time: Duration| (time.as_nanos() as f64) / 1e3;
    let of_one = figures.operations.iter().map(|operation| {
        let requests = Requests {
            count: operation.count,
            errors: operation.errors,
            p50_us: micros(operation.p50),
            p99_us: micros(operation.p99),
            max_us: micros(operation.slowest),
            total_us: micros(operation.total),
            latency: operation.latency.to_vec(),
        };
        (operation.opcode.name().to_owned(), requests)
    });
    of_one.collect()
}

/// File data that passed through the daemon.
pub fn transferred(figures: &Snapshot) -> Transferred {
    let Snapshot { read_bytes, written_bytes, zero_copied_bytes, .. } = *figures;
    Transferred { read_bytes, written_bytes, zero_copied_bytes }
}

/// Upper bounds of the latency buckets, in microseconds.
pub fn latency_bounds_us() -> Vec<f64> {
    latency_bounds().iter().map(|bound| bound.as_nanos() as f64 / 1e3).collect()
}

/// The present time.
pub fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

fn names(capabilities: Capabilities) -> Vec<String> {
    capabilities.iter_names().map(|(name, _)| name.to_owned()).collect()
}
