//! BPF programs: loading, attaching to a connection, replacing while they run. Their arrays are shared with the daemon by `mmap`,
//! and a replacing program continues with the same arrays.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use libbpf_rs::{MapCore, MapType, Object, ObjectBuilder, OpenObject, PrintLevel, libbpf_sys};

use crate::Memory;

/// An error of loading or attaching a program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The kernel module that calls programs is not loaded.
    #[error("the module shunt_fuse_ext is not loaded")]
    NoModule,
    /// The file is not a program for this kernel, or this process lacks CAP_SYS_ADMIN or CAP_BPF.
    #[error("the kernel refuses the program: {0}")]
    Load(#[source] libbpf_rs::Error),
    /// The file does not contain exactly one `struct fuse_ext_ops`.
    #[error("the program has {0} operation tables (struct fuse_ext_ops) instead of one")]
    Operations(usize),
    /// The operation table is not in the section `.struct_ops.link`, so that nothing would keep the program attached.
    #[error("the program's operations are not in the section .struct_ops.link")]
    NoLink,
    /// Another program is attached, or the connection is not a `/dev/fuse` of a mount.
    #[error("cannot attach the program: {0}")]
    Attach(#[source] libbpf_rs::Error),
    /// The program has no such map.
    #[error("the program has no map `{0}`")]
    NoMap(String),
    /// The map cannot be shared: its size or type differs.
    #[error("cannot share map `{0}`: {1}")]
    Map(String, #[source] io::Error),
}

/// The BPF link of a program: keeps it attached, in this process and in others that hold a copy of the descriptor. Dropping it
/// detaches the program for all of them.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

impl Link {
    /// Takes the link that an earlier daemon left.
    pub(crate) fn inherited(link: OwnedFd) -> Self {
        Self(link)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: a system call on a descriptor that is open during the call.
        let result = unsafe { libbpf_sys::bpf_link_detach(self.0.as_raw_fd()) };
        if result != 0 {
            tracing::debug!("cannot detach a program: {}", io::Error::from_raw_os_error(-result));
        }
    }
}

/// An attached program. Dropping it detaches the program; the lookups that it counted remain valid.
#[derive(Debug)]
pub struct Program {
    /// `None` after a failed attempt to attach it again.
    link: Option<Link>,
    object: Object,
}

/// The inheritance of a program from the one before it.
#[derive(Debug, Default)]
pub(crate) struct Inheritance<'a> {
    /// The program may still be attached; the next one replaces it without a gap.
    pub(crate) link: Option<Link>,
    /// Arrays by name: the next program uses them instead of its own.
    pub(crate) arrays: Vec<(&'a str, BorrowedFd<'a>)>,
}

impl Program {
    /// Loads the program in `elf`, an object file made by clang, and attaches it to the connection of `device`, an open
    /// `/dev/fuse`. `prepare` is called with the maps before the first request reaches the program.
    ///
    /// # Errors
    /// Any [`ProgramError`].
    pub fn attach<T>(
        elf: &[u8],
        device: BorrowedFd<'_>,
        prepare: impl FnOnce(&Maps<'_>) -> Result<T, ProgramError>,
    ) -> Result<(Self, T), ProgramError> {
        Self::attach_after(Inheritance::default(), elf, device, prepare)
    }

    /// Attaches a program as [`attach`](Self::attach) does, in the place of an earlier one.
    ///
    /// # Errors
    /// Any [`ProgramError`]. No program is attached then, not even the earlier one.
    pub(crate) fn attach_after<T>(
        inheritance: Inheritance<'_>,
        elf: &[u8],
        device: BorrowedFd<'_>,
        prepare: impl FnOnce(&Maps<'_>) -> Result<T, ProgramError>,
    ) -> Result<(Self, T), ProgramError> {
        let mut object = load(elf, device, &inheritance.arrays)?;
        let prepared = prepare(&Maps(&object))?;
        let earlier = inheritance.link;
        let link = match attach(&mut object, earlier.as_ref()) {
            Ok(new) => new.or(earlier),
            Err(error) if earlier.is_none() => return Err(error),
            // The link cannot be updated: its program may be of another version of the module's interface.
            Err(error) => {
                tracing::debug!("detaching the earlier program, because it cannot be replaced: {error}");
                drop(earlier);
                attach(&mut object, None)?
            }
        };
        Ok((Self { link, object }, prepared))
    }

    /// Replaces the program by another one atomically: every request reaches one of the two.
    ///
    /// # Errors
    /// Any [`ProgramError`]; the old program stays attached.
    pub fn replace(&mut self, elf: &[u8], device: BorrowedFd<'_>) -> Result<(), ProgramError> {
        let maps = self.object.maps().filter(|map| map.map_type() == MapType::Array);
        let maps: Vec<_> = maps.map(|map| (map.name().to_owned(), map)).collect();
        let arrays: Vec<_> =
            maps.iter().filter_map(|(name, map)| Some((name.to_str()?, map.as_fd()))).collect();
        let mut object = load(elf, device, &arrays)?;
        if let Some(new) = attach(&mut object, self.link.as_ref())? {
            self.link = Some(new);
        }
        self.object = object;
        Ok(())
    }

    /// Detaches the program and attaches it again, without reloading it.
    ///
    /// # Errors
    /// Any [`ProgramError`]; the program is then detached.
    pub(crate) fn put_back(&mut self) -> Result<(), ProgramError> {
        drop(self.link.take());
        self.link = attach(&mut self.object, None)?;
        Ok(())
    }

    /// Returns the link, for another process that is to replace the program.
    pub(crate) fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// Returns the maps of the program.
    pub fn maps(&self) -> Maps<'_> {
        Maps(&self.object)
    }
}

/// The maps of a program.
#[derive(Debug)]
pub struct Maps<'a>(&'a Object);

impl Maps<'_> {
    /// Reports whether there is a map of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.maps().any(|map| map.name() == name)
    }

    /// Returns the map of this name.
    pub(crate) fn descriptor(&self, name: &str) -> Option<OwnedFd> {
        let map = self.0.maps().find(|map| map.name() == name)?;
        map.as_fd().try_clone_to_owned().ok()
    }

    /// Inserts an entry into a map.
    ///
    /// # Errors
    /// There is no such map, its sizes differ, or it is full.
    pub fn update(&self, name: &str, key: &[u8], value: &[u8]) -> Result<(), ProgramError> {
        let map = self.0.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| ProgramError::NoMap(name.to_owned()))?;
        map.update(key, value, libbpf_rs::MapFlags::ANY)
            .map_err(|error| ProgramError::Map(name.to_owned(), io::Error::other(error)))
    }

    /// Maps the values of an array. `words` is their total size in units of 8 bytes.
    ///
    /// # Errors
    /// There is no such map, or its size differs.
    pub fn memory(&self, name: &str, words: usize) -> Result<Memory, ProgramError> {
        let map = self.0.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| ProgramError::NoMap(name.to_owned()))?;
        let has = map.value_size() as usize / 8 * map.max_entries() as usize;
        if has != words {
            let error = io::Error::other(format!("its size is {has} words instead of {words}"));
            return Err(ProgramError::Map(name.to_owned(), error));
        }
        Memory::of_map(map.as_fd(), words).map_err(|error| ProgramError::Map(name.to_owned(), error))
    }
}

fn load(
    elf: &[u8],
    device: BorrowedFd<'_>,
    arrays: &[(&str, BorrowedFd<'_>)],
) -> Result<Object, ProgramError> {
    if !Path::new("/sys/module/shunt_fuse_ext").exists() {
        return Err(ProgramError::NoModule);
    }
    // By default the messages of libbpf go to standard error.
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, words| {
        tracing::debug!("libbpf: {}", words.trim_end())
    })));
    let mut object = ObjectBuilder::default().open_memory(elf).map_err(ProgramError::Load)?;
    name_connection(&mut object, device)?;
    for mut map in object.maps_mut().filter(|map| map.map_type() == MapType::Array) {
        if let Some((_, earlier)) = arrays.iter().find(|(name, _)| map.name() == *name) {
            map.reuse_fd(*earlier).map_err(ProgramError::Load)?;
        }
    }
    object.load().map_err(ProgramError::Load)
}

/// Stores the descriptor of the connection in `fd`, the first member of `struct fuse_ext_ops`.
fn name_connection(object: &mut OpenObject, device: BorrowedFd<'_>) -> Result<(), ProgramError> {
    let count = object.maps().filter(|map| map.map_type() == MapType::StructOps).count();
    if count != 1 {
        return Err(ProgramError::Operations(count));
    }
    let fd = device.as_raw_fd().to_ne_bytes();
    for mut map in object.maps_mut().filter(|map| map.map_type() == MapType::StructOps) {
        if let Some(bytes) = map.initial_value_mut().and_then(|value| value.get_mut(..fd.len())) {
            bytes.copy_from_slice(&fd);
        }
    }
    Ok(())
}

/// Flag of operation tables that are attached by a link.
const BPF_F_LINK: u32 = 1 << 13;

/// Attaches a loaded program, and returns the link; `None` if it took the place of the program of `earlier`, whose link
/// is now its own.
fn attach(object: &mut Object, earlier: Option<&Link>) -> Result<Option<Link>, ProgramError> {
    let map = object.maps_mut().find(|map| map.map_type() == MapType::StructOps);
    let mut map = map.ok_or(ProgramError::Operations(0))?;
    if map.info().map_err(ProgramError::Load)?.info.map_flags & BPF_F_LINK == 0 {
        return Err(ProgramError::NoLink);
    }
    // With another program attached this fails, but it has then prepared the map for the update.
    let refused = match map.attach_struct_ops() {
        Ok(link) => {
            let link = link.as_fd().try_clone_to_owned();
            let link = link.map_err(|error| ProgramError::Attach(error.into()))?;
            return Ok(Some(Link(link)));
        }
        Err(refused) => refused,
    };
    let Some(earlier) = earlier else { return Err(ProgramError::Attach(refused)) };
    let (link, map) = (earlier.0.as_raw_fd(), map.as_fd().as_raw_fd());
    // SAFETY: a system call on descriptors that are open during the call; options are optional.
    match unsafe { libbpf_sys::bpf_link_update(link, map, std::ptr::null()) } {
        0 => Ok(None),
        errno => Err(ProgramError::Attach(libbpf_rs::Error::from_raw_os_error(-errno))),
    }
}
