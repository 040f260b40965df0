//! A program in the kernel: loaded, attached to a connection, replaced while it runs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use libbpf_rs::{
    AsRawLibbpf, Link, MapCore, MapType, Object, ObjectBuilder, OpenObject, PrintLevel, libbpf_sys,
};

use crate::Memory;

/// A program that could not be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Nobody in the kernel would ask it.
    #[error("the module shunt_fuse_ext is not loaded")]
    NoModule,
    /// The file is no program for this kernel, or this process lacks CAP_SYS_ADMIN or CAP_BPF.
    #[error("the kernel does not take the program: {0}")]
    Load(#[source] libbpf_rs::Error),
    /// Its file holds not exactly one `struct fuse_ext_ops`.
    #[error("the program has {0} tables of operations (struct fuse_ext_ops), and needs one")]
    Operations(usize),
    /// Another program is attached, or the connection is no `/dev/fuse` of a mount.
    #[error("the program cannot be attached: {0}")]
    Attach(#[source] libbpf_rs::Error),
    /// It has no such map.
    #[error("the program has no map `{0}`")]
    NoMap(String),
    /// The map is another than expected.
    #[error("map `{0}` cannot be shared: {1}")]
    Map(String, #[source] io::Error),
}

/// A program in force. It ends with this value; what it told the kernel stays accounted for.
#[derive(Debug)]
pub struct Program {
    /// None where it could not be put back.
    link: Option<Link>,
    object: Object,
}

impl Program {
    /// Loads the program in `elf`, which clang made, and attaches it to the connection of `device`, an open
    /// `/dev/fuse`. `prepare` is given the maps before the first request meets the program.
    ///
    /// # Errors
    /// [`ProgramError`].
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

    /// Puts another program in its place, with no request between the two that meets none.
    ///
    /// # Errors
    /// [`ProgramError`]; the old one stays.
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

    /// Takes it away and puts it back, loaded as it is.
    ///
    /// # Errors
    /// [`ProgramError`]; it is then away.
    pub(crate) fn put_back(&mut self) -> Result<(), ProgramError> {
        drop(self.link.take());
        self.link = Some(operations(&mut self.object)?.attach_struct_ops().map_err(ProgramError::Attach)?);
        Ok(())
    }

    /// Its maps.
    pub fn maps(&self) -> Maps<'_> {
        Maps(&self.object)
    }
}

/// The maps of a program.
#[derive(Debug)]
pub struct Maps<'a>(&'a Object);

impl Maps<'_> {
    /// Whether there is a map of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.maps().any(|map| map.name() == name)
    }

    /// Puts an entry into a map.
    ///
    /// # Errors
    /// Where there is no such map, its sizes are others, or it is full.
    pub fn update(&self, name: &str, key: &[u8], value: &[u8]) -> Result<(), ProgramError> {
        let map = self.0.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| ProgramError::NoMap(name.to_owned()))?;
        map.update(key, value, libbpf_rs::MapFlags::ANY)
            .map_err(|error| ProgramError::Map(name.to_owned(), io::Error::other(error)))
    }

    /// The values of an array, shared. `words` are all its values, in units of 8 bytes.
    ///
    /// # Errors
    /// Where there is no such map, or it is smaller.
    pub fn memory(&self, name: &str, words: usize) -> Result<Memory, ProgramError> {
        let map = self.0.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| ProgramError::NoMap(name.to_owned()))?;
        let has = map.value_size() as usize / 8 * map.max_entries() as usize;
        if has != words {
            let error = io::Error::other(format!("it has {has} words, not {words}"));
            return Err(ProgramError::Map(name.to_owned(), error));
        }
        Memory::of_map(map.as_fd(), words).map_err(|error| ProgramError::Map(name.to_owned(), error))
    }
}

fn load(elf: &[u8], device: BorrowedFd<'_>, old: Option<&Object>) -> Result<Object, ProgramError> {
    if !Path::new("/sys/module/shunt_fuse_ext").exists() {
        return Err(ProgramError::NoModule);
    }
    // The library's own words would go to standard error.
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

/// `fd` is the first member of `struct fuse_ext_ops`.
fn name_connection(object: &mut OpenObject, device: BorrowedFd<'_>) -> Result<(), ProgramError> {
    let count = object.maps().filter(|map| map.map_type() == MapType::StructOps).count();
    if count != 1 {
        return Err(ProgramError::Operations(count));
    }
    let fd = device.as_raw_fd().to_ne_bytes();
    for mut map in object.maps_mut().filter(|map| map.map_type() == MapType::StructOps) {
        if let Some(place) = map.initial_value_mut().and_then(|value| value.get_mut(..fd.len())) {
            place.copy_from_slice(&fd);
        }
    }
    Ok(())
}

/// Arrays that both have stay the same arrays.
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
