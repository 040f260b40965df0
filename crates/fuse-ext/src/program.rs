//! BPF programs: loading, attaching to a connection, replacing while they run. Their arrays are shared with the daemon by `mmap`,
//! and a replacing program continues with the same arrays.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use libbpf_rs::{
    AsRawLibbpf, Link, MapCore, MapType, Object, ObjectBuilder, OpenObject, PrintLevel, libbpf_sys,
};

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

/// An attached program. Dropping it detaches the program; the lookups that it counted remain valid.
#[derive(Debug)]
pub struct Program {
    /// `None` after a failed attempt to attach it again.
    link: Option<Link>,
    object: Object,
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
        let mut object = load(elf, device, None)?;
        let prepared = prepare(&Maps(&object))?;
        let link = operations(&mut object)?.attach_struct_ops().map_err(ProgramError::Attach)?;
        Ok((Self { link: Some(link), object }, prepared))
    }

    /// Replaces the program by another one atomically: every request reaches one of the two.
    ///
    /// # Errors
    /// Any [`ProgramError`]; the old program stays attached.
    pub fn replace(&mut self, elf: &[u8], device: BorrowedFd<'_>) -> Result<(), ProgramError> {
        let Some(link) = &self.link else {
            return Err(ProgramError::Attach(libbpf_rs::Error::from_raw_os_error(
                rustix::io::Errno::NOTCONN.raw_os_error(),
            )));
        };
        let mut object = load(elf, device, Some(&self.object))?;
        let new = operations(&mut object)?;
        // SAFETY: both are libbpf's own, alive, and reached by this thread alone for the time of the call.
        let updated = unsafe {
            libbpf_sys::bpf_link__update_map(
                link.as_libbpf_object().as_ptr(),
                new.as_libbpf_object().as_ptr(),
            )
        };
        if updated != 0 {
            return Err(ProgramError::Attach(libbpf_rs::Error::from_raw_os_error(-updated)));
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
        self.link = Some(operations(&mut self.object)?.attach_struct_ops().map_err(ProgramError::Attach)?);
        Ok(())
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

fn load(elf: &[u8], device: BorrowedFd<'_>, old: Option<&Object>) -> Result<Object, ProgramError> {
    if !Path::new("/sys/module/shunt_fuse_ext").exists() {
        return Err(ProgramError::NoModule);
    }
    // By default the messages of libbpf go to standard error.
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, words| {
        tracing::debug!("libbpf: {}", words.trim_end())
    })));
    let mut object = ObjectBuilder::default().open_memory(elf).map_err(ProgramError::Load)?;
    name_connection(&mut object, device)?;
    if let Some(old) = old {
        share_maps(&mut object, old)?;
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

/// Reuses the arrays that both programs have.
fn share_maps(object: &mut OpenObject, old: &Object) -> Result<(), ProgramError> {
    for mut map in object.maps_mut().filter(|map| map.map_type() == MapType::Array) {
        if let Some(old) = old.maps().find(|old| old.name() == map.name()) {
            map.reuse_fd(old.as_fd()).map_err(ProgramError::Load)?;
        }
    }
    Ok(())
}

fn operations(object: &mut Object) -> Result<libbpf_rs::MapMut<'_>, ProgramError> {
    object.maps_mut().find(|map| map.map_type() == MapType::StructOps).ok_or(ProgramError::Operations(0))
}
