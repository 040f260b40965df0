//! Dirty data of the mount in the kernel's write-back cache: an upper bound, and the limit that keeps it below the free space.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use shunt_fuse::mount::MountPoint;
use shunt_fuse::mount::bdi::DirtyLimit;

/// The part of the free space that may be dirty: 1/4. What is written out meanwhile takes free space as well, so a limit that was
/// set late must not exceed what is left.
const FREE_PER_LIMIT: u64 = 4;

/// Least limit. Overwriting files of a full file system needs some.
const MIN_LIMIT_BYTES: u64 = 2 << 20;

/// Meter of dirty data, and its limit. It keeps its files open, because a sandboxed daemon cannot open them any more.
#[derive(Clone, Debug)]
pub struct DirtyData(Arc<Files>);

#[derive(Debug)]
struct Files {
    /// `/proc/meminfo`. Without it, dirty data counts as zero.
    memory: Option<File>,
    /// The limit of the mount, once it is mounted, and the machine's limit in bytes.
    limit: OnceLock<(DirtyLimit, u64)>,
    /// The limit in force in bytes.
    limit_bytes: AtomicU64,
}

impl DirtyData {
    /// Opens `/proc/meminfo`.
    pub fn open() -> Self {
        Self(Arc::new(Files {
            memory: File::open("/proc/meminfo").ok(),
            limit: OnceLock::new(),
            limit_bytes: AtomicU64::new(u64::MAX),
        }))
    }

    /// Opens the limit of a mount. Before, and where that fails, only the memory of the machine limits dirty data.
    ///
    /// # Errors
    /// Errors of [`DirtyLimit::open`], and of reading or lifting the limit.
    pub fn attach(&self, mount: &MountPoint) -> io::Result<()> {
        let limit = DirtyLimit::open(mount)?;
        if limit.can_change() {
            limit.set(None)?;
        }
        let bytes = limit.bytes()?;
        self.0.limit_bytes.store(bytes, Ordering::Relaxed);
        let _ = self.0.limit.set((limit, bytes));
        Ok(())
    }

    /// Returns the limit in force in bytes: an upper bound of the dirty bytes of the mount that takes no system call.
    pub(crate) fn limit(&self) -> u64 {
        self.0.limit_bytes.load(Ordering::Relaxed)
    }

    /// Returns the least known upper bound of the dirty bytes of the mount.
    pub(crate) fn upper_bound(&self) -> u64 {
        self.of_machine().min(self.limit())
    }

    /// Has the kernel stop writers once a quarter of `free` bytes is dirty.
    pub(crate) fn limit_to_share_of(&self, free: u64) {
        let Some((limit, machine)) = self.0.limit.get().filter(|(limit, _)| limit.can_change()) else {
            return;
        };
        let share = (free / FREE_PER_LIMIT).max(MIN_LIMIT_BYTES).min(*machine);
        let last = self.limit();
        // Small differences are not worth a system call.
        if last.abs_diff(share) > share / 8 && limit.set((share < *machine).then_some(share)).is_ok() {
            self.0.limit_bytes.store(share, Ordering::Relaxed);
        }
    }

    fn of_machine(&self) -> u64 {
        let mut text = [0; 4096];
        let length = self.0.memory.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        dirty_of(&text[..length])
    }
}

/// Returns the bytes that `/proc/meminfo` counts as dirty or under write-back.
fn dirty_of(memory: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(memory);
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
        ["Dirty", "Writeback"].contains(&name).then(|| kib.saturating_mul(1024))
    };
    text.lines().filter_map(value).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_memory_is_read() {
        let memory =
            b"MemTotal:       24649344 kB\nDirty:              1024 kB\nWriteback:            16 kB\n\
            WritebackTmp:         7 kB\nHugePages_Total:       0\n";
        assert_eq!(dirty_of(memory), 1040 << 10);
        assert_eq!(dirty_of(b""), 0);
        assert_eq!(dirty_of(b"Dirty: 99999999999999999999 kB\nDirty:\nWriteback: -1 kB\n"), 0);
    }
}
