//! Loading of the BPF programs, and access to their maps.

use std::collections::BTreeMap;
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

/// The programs without which the kernel checks nothing, by their names in `policy.bpf.c`. The others only save requests.
const REQUIRED: [&str; 7] = [
    "policy_permission",
    "policy_open",
    "policy_getattr",
    "policy_getxattr",
    "policy_listxattr",
    "policy_readlink",
    "policy_follow_link",
];

/// Programs whose result replaces the kernel's own check of capabilities before Linux 6.11.
const UNSAFE_BEFORE_6_11: [&str; 2] = ["policy_setxattr", "policy_removexattr"];

impl Programs {
    pub(crate) fn load() -> Result<Self, LsmError> {
        // `LsmError` reports the error in one line; the messages of libbpf go to the debug log.
        let say = |_, line: String| tracing::debug!("{}", line.trim_end());
        libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Info, say)));
        let elf = PROGRAMS.ok_or(LsmError::Absent)?;
        let mut left_out = LeftOut::new();
        if kernel_version() < (6, 11) {
            left_out.extend(
                UNSAFE_BEFORE_6_11.map(|name| (name.to_owned(), "unsafe before Linux 6.11".to_owned())),
            );
        }
        let object = match open(elf, &left_out) {
            Ok(object) => object,
            Err(_) => {
                left_out = unloadable(elf, left_out)?;
                open(elf, &left_out)?
            }
        };
        let mut links = Vec::new();
        for program in object.progs_mut().filter(|program| program.autoload()) {
            let name = program.name().to_string_lossy().into_owned();
            match program.attach() {
                Ok(link) => links.push(link),
                Err(error) if REQUIRED.contains(&name.as_str()) => return Err(refused(error)),
                Err(error) => drop(left_out.insert(name, refused(error).to_string())),
            }
        }
        for (name, cause) in &left_out {
            tracing::info!("the daemon checks what the BPF program {name} would check: {cause}");
        }
        let programs = Self { _links: links, object };
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

/// Programs that are not loaded, and the cause of each.
type LeftOut = BTreeMap<String, String>;

/// Loads all programs except some.
fn open(elf: &[u8], left_out: &LeftOut) -> Result<Object, LsmError> {
    let object = ObjectBuilder::default().open_memory(elf).and_then(|mut object| {
        for mut program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            program.set_autoload(!left_out.contains_key(&name));
        }
        object.load()
    });
    object.map_err(|error| match error.kind() {
        // Also the verdict of the verifier, whose reason is in its log only.
        libbpf_rs::ErrorKind::PermissionDenied | libbpf_rs::ErrorKind::InvalidInput => {
            LsmError::Refused(format!("{error:#}; -vv shows the verifier's log"))
        }
        _ => refused(error),
    })
}

/// Returns the optional programs that the kernel does not accept, `known` among them. Begins with the required programs and adds one
/// optional program at a time, so that a program which does not load together with the others is left out, too.
///
/// # Errors
/// The kernel refuses the required programs.
fn unloadable(elf: &[u8], known: LeftOut) -> Result<LeftOut, LsmError> {
    let object = ObjectBuilder::default().open_memory(elf).map_err(refused)?;
    let names = object.progs().map(|program| program.name().to_string_lossy().into_owned());
    let optional: Vec<String> = names.filter(|name| !REQUIRED.contains(&name.as_str())).collect();
    let mut left_out: LeftOut = optional.iter().map(|name| (name.clone(), String::new())).collect();
    open(elf, &left_out)?;
    for name in optional.iter().filter(|name| !known.contains_key(*name)) {
        left_out.remove(name);
        if let Err(error) = open(elf, &left_out) {
            left_out.insert(name.clone(), error.to_string());
        }
    }
    left_out.extend(known);
    Ok(left_out)
}

/// Returns the first two numbers of the kernel's release.
fn kernel_version() -> (u32, u32) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-', '+']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
