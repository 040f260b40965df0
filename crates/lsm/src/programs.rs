//! Loading of the BPF programs, and access to their maps.

use std::io;

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder};
use shunt_policy::Table;
use shunt_policyfs::KernelEnforcer;

use crate::{LsmError, layout};

#[cfg(programs)]
const PROGRAMS: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/policy.bpf.o")));
#[cfg(not(programs))]
const PROGRAMS: Option<&[u8]> = None;

/// Loaded and attached programs. Dropping this value detaches them.
pub(crate) struct Programs {
    object: Object,
    _links: Vec<Link>,
}

fn refused(error: libbpf_rs::Error) -> LsmError {
    LsmError::Refused(error.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
}

impl Programs {
    pub(crate) fn load() -> Result<Self, LsmError> {
        // `LsmError` reports the error in one line; the messages of libbpf go to the debug log.
        let say = |_, line: String| tracing::debug!("{}", line.trim_end());
        libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Info, say)));
        let elf = PROGRAMS.ok_or(LsmError::Absent)?;
        let object = ObjectBuilder::default().open_memory(elf).and_then(libbpf_rs::OpenObject::load);
        let object = object.map_err(|error| match error.kind() {
            // Also the verdict of the verifier, whose reason is in its log only.
            libbpf_rs::ErrorKind::PermissionDenied | libbpf_rs::ErrorKind::InvalidInput => {
                LsmError::Refused(format!("{error:#}; -vv shows the verifier's log"))
            }
            _ => refused(error),
        })?;
        let links = object.progs_mut().map(|program| program.attach()).collect::<Result<Vec<_>, _>>();
        let programs = Self { _links: links.map_err(refused)?, object };
        programs.are_run().then_some(programs).ok_or(LsmError::NotRun)
    }

    /// Sets the device number of the mount that the programs check.
    pub(crate) fn watch(&self, device: (u32, u32)) -> Result<(), LsmError> {
        let settings = self.map(".bss").map_err(|error| LsmError::Refused(error.to_string()))?;
        let device = layout::settings(device);
        settings.update(&0u32.to_ne_bytes(), &device, MapFlags::ANY).map_err(refused)
    }

    fn map(&self, name: &str) -> io::Result<Map<'_>> {
        // The kernel truncates the names of maps that stand for sections.
        let found = self.object.maps().find(|map| map.name().to_string_lossy().ends_with(name));
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Reports whether the kernel runs the programs: the one for `getattr` sets a flag. Attaching succeeds even if none
    /// will ever run.
    fn are_run(&self) -> bool {
        let _ = std::fs::metadata("/");
        let seen = self.map(".bss").ok().and_then(|map| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok());
        seen.flatten().is_some_and(|bytes| bytes.get(4..8) != Some(&[0; 4]))
    }
}

impl KernelEnforcer for Programs {
    fn class(&self, number: u32, table: &Table) -> io::Result<()> {
        let update = self.map("classes")?.update(&number.to_ne_bytes(), &layout::class(table), MapFlags::ANY);
        update.map_err(io::Error::other)
    }

    fn end_class(&self, number: u32) {
        let _ = self.map("classes").map(|map| map.delete(&number.to_ne_bytes()));
    }

    fn inode(&self, node: u64, class: u32) -> io::Result<()> {
        let update = self.map("inodes")?.update(&node.to_ne_bytes(), &class.to_ne_bytes(), MapFlags::ANY);
        update.map_err(io::Error::other)
    }

    fn stale(&self, node: u64) -> io::Result<()> {
        self.inode(node, layout::STALE)
    }

    fn forget(&self, node: u64) {
        let _ = self.map("inodes").map(|map| map.delete(&node.to_ne_bytes()));
    }
}
