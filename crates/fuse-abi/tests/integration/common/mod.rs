//! Operations made from arbitrary input, so that every opcode can be encoded and decoded.

use std::ffi::CStr;

use shunt_fuse_abi::*;

/// Input for any operation. The strings end with a NUL.
#[derive(Debug, Clone)]
pub struct ArbitraryInput {
    pub arg: [u8; 96],
    pub name: Vec<u8>,
    pub newname: Vec<u8>,
    pub string: Vec<u8>,
    pub data: Vec<u8>,
    pub forget: Vec<ForgetOne>,
    pub mappings: Vec<RemovemappingOne>,
}

impl ArbitraryInput {
    pub fn new(
        arg: [u8; 96],
        names: [Vec<u8>; 2],
        string: Vec<u8>,
        data: Vec<u8>,
        numbers: &[(u64, u64)],
    ) -> Self {
        let forget = numbers.iter().map(|&(nodeid, nlookup)| ForgetOne { nodeid, nlookup }).collect();
        let mappings = numbers.iter().map(|&(moffset, len)| RemovemappingOne { moffset, len }).collect();
        let [name, newname] = names;
        Self { arg, name, newname, string, data, forget, mappings }
    }

    fn arg<T: Wire>(&self) -> T {
        T::read_from_prefix(&self.arg).expect("96 bytes suffice").0
    }

    fn number(&self) -> u64 {
        self.arg()
    }

    fn cstr(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.string).expect("ends with a NUL")
    }

    /// Makes the operation for this opcode, with consistent sizes.
    pub fn operation(&self, opcode: Opcode, setxattr_ext: bool) -> Operation<'_> {
        let (name, newname) = (name(&self.name), name(&self.newname));
        let size = self.data.len() as u32;
        match opcode {
            Opcode::Lookup => Operation::Lookup { name },
            Opcode::Forget => Operation::Forget { nlookup: self.number() },
            Opcode::Getattr => Operation::Getattr { arg: self.arg() },
            Opcode::Setattr => Operation::Setattr { arg: self.arg() },
            Opcode::Readlink => Operation::Readlink,
            Opcode::Symlink => Operation::Symlink { name, target: self.cstr() },
            Opcode::Mknod => Operation::Mknod { arg: self.arg(), name },
            Opcode::Mkdir => Operation::Mkdir { arg: self.arg(), name },
            Opcode::Unlink => Operation::Unlink { name },
            Opcode::Rmdir => Operation::Rmdir { name },
            Opcode::Rename => Operation::Rename { newdir: self.number(), flags: 0, name, newname },
            Opcode::Link => Operation::Link { oldnodeid: self.number(), newname },
            Opcode::Open => Operation::Open { arg: self.arg() },
            Opcode::Read => Operation::Read { arg: self.arg() },
            Opcode::Write => Operation::Write { arg: WriteIn { size, ..self.arg() }, data: &self.data },
            Opcode::Statfs => Operation::Statfs,
            Opcode::Release => Operation::Release { arg: self.arg() },
            Opcode::Fsync => Operation::Fsync { arg: self.arg() },
            Opcode::Setxattr => {
                let long = SetxattrIn { size, ..self.arg() };
                let short = SetxattrInCompat { size, flags: long.flags }.into();
                let arg = if setxattr_ext { long } else { short };
                Operation::Setxattr { arg, name: self.cstr(), value: &self.data }
            }
            Opcode::Getxattr => Operation::Getxattr { arg: self.arg(), name: self.cstr() },
            Opcode::Listxattr => Operation::Listxattr { arg: self.arg() },
            Opcode::Removexattr => Operation::Removexattr { name: self.cstr() },
            Opcode::Flush => Operation::Flush { arg: self.arg() },
            Opcode::Init => Operation::Init { arg: self.arg() },
            Opcode::Opendir => Operation::Opendir { arg: self.arg() },
            Opcode::Readdir => Operation::Readdir { arg: self.arg() },
            Opcode::Releasedir => Operation::Releasedir { arg: self.arg() },
            Opcode::Fsyncdir => Operation::Fsyncdir { arg: self.arg() },
            Opcode::Getlk => Operation::Getlk { arg: self.arg() },
            Opcode::Setlk => Operation::Setlk { arg: self.arg() },
            Opcode::Setlkw => Operation::Setlkw { arg: self.arg() },
            Opcode::Access => Operation::Access { arg: self.arg() },
            Opcode::Create => Operation::Create { arg: self.arg(), name },
            Opcode::Interrupt => Operation::Interrupt { unique: self.number() },
            Opcode::Bmap => Operation::Bmap { arg: self.arg() },
            Opcode::Destroy => Operation::Destroy,
            Opcode::Ioctl => {
                Operation::Ioctl { arg: IoctlIn { in_size: size, ..self.arg() }, data: &self.data }
            }
            Opcode::Poll => Operation::Poll { arg: self.arg() },
            Opcode::NotifyReply => {
                Operation::NotifyReply { arg: NotifyRetrieveIn { size, ..self.arg() }, data: &self.data }
            }
            Opcode::BatchForget => Operation::BatchForget { items: Items::new(&self.forget) },
            Opcode::Fallocate => Operation::Fallocate { arg: self.arg() },
            Opcode::Readdirplus => Operation::Readdirplus { arg: self.arg() },
            Opcode::Rename2 => {
                let Rename2In { newdir, flags, .. } = self.arg();
                Operation::Rename2 { newdir, flags, name, newname }
            }
            Opcode::Lseek => Operation::Lseek { arg: self.arg() },
            Opcode::CopyFileRange => Operation::CopyFileRange { arg: self.arg() },
            Opcode::Setupmapping => Operation::Setupmapping { arg: self.arg() },
            Opcode::Removemapping => Operation::Removemapping { items: Items::new(&self.mappings) },
            Opcode::Syncfs => Operation::Syncfs,
            Opcode::Tmpfile => Operation::Tmpfile { arg: self.arg() },
            Opcode::Statx => Operation::Statx { arg: self.arg() },
            Opcode::CopyFileRange64 => Operation::CopyFileRange64 { arg: self.arg() },
        }
    }
}

/// Makes a name from bytes that end with a NUL.
pub fn name(bytes: &[u8]) -> Name<'_> {
    Name::new(CStr::from_bytes_with_nul(bytes).expect("ends with a NUL")).expect("is a name")
}
