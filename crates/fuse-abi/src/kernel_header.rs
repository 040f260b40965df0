//! Compares everything that this crate declares with a header of the kernel: a C compiler checks the numbers, and each name in the
//! header must be known here. `lab/abi` runs it with the header of the newest kernel of the lab.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use bitflags::Flags;

use crate::layout::STRUCTS;
use crate::{
    AttrFlags, ExpireFlags, FsyncFlags, GetattrFlags, InitFlags, IoctlFlags, LkFlags, NotifyCode, Opcode,
    OpenFlags, OpenOutFlags, PollFlags, ReadFlags, ReleaseFlags, SetattrValid, SetupmappingFlags,
    SetxattrFlags, WriteFlags, consts,
};

/// Names of the header that this crate leaves out.
const LEFT_OUT: &[&str] = &[
    "_LINUX_FUSE_H",
    // CUSE.
    "CUSE_UNRESTRICTED_IOCTL",
    "CUSE_INIT",
    "CUSE_INIT_INFO_MAX",
    "cuse_init_in",
    "cuse_init_out",
    // Numbers that are no message: the values that C needs, and the byte-swapped ones of old kernels.
    "CUSE_INIT_BSWAP_RESERVED",
    "FUSE_INIT_BSWAP_RESERVED",
    "FUSE_IO_URING_CMD_INVALID",
    // Sizes, which are the offsets of fields.
    "FUSE_COMPAT_ENTRY_OUT_SIZE",
    "FUSE_COMPAT_ATTR_OUT_SIZE",
    "FUSE_COMPAT_MKNOD_IN_SIZE",
    "FUSE_COMPAT_WRITE_IN_SIZE",
    "FUSE_COMPAT_STATFS_SIZE",
    "FUSE_NAME_OFFSET",
    "FUSE_NAME_OFFSET_DIRENTPLUS",
    "FUSE_REC_ALIGN",
    "FUSE_DIRENT_ALIGN",
    "FUSE_DIRENT_SIZE",
    "FUSE_DIRENTPLUS_SIZE",
    "FUSE_DEV_IOC_MAGIC",
    // A number of items that depends on the size of a page.
    "FUSE_REMOVEMAPPING_MAX_ENTRY",
    // Old names.
    "FUSE_DIRECT_IO_RELAX",
    "FUSE_WRITE_KILL_PRIV",
];

/// The checked C expressions with their values, and the names in the header that they cover.
#[derive(Default)]
struct Expected {
    values: Vec<(String, u64)>,
    names: BTreeSet<String>,
}

impl Expected {
    fn constant(&mut self, name: &str, value: impl Into<u64>) {
        self.names.insert(name.to_owned());
        self.values.push((name.to_owned(), value.into()));
    }

    /// The flags of a type; `name` makes the kernel's name of one.
    fn flags<F: Flags>(&mut self, name: impl Fn(&str) -> String)
    where
        F::Bits: Into<u64>,
    {
        for flag in F::FLAGS {
            self.constant(&name(flag.name()), flag.value().bits());
        }
    }

    fn structure(&mut self, name: &str, size: usize, fields: &[(&str, usize)]) {
        let kernel_name = match name {
            "StatxTimestamp" => "fuse_sx_time".to_owned(),
            // The forms with and without the pool have one name.
            "UringBufpoolReq" => "fuse_uring_cmd_req".to_owned(),
            _ => format!("fuse{}", snake_case(name)),
        };
        match name {
            // Not in the header: the first part of the structure.
            "SetxattrInCompat" => return self.constant("FUSE_COMPAT_SETXATTR_IN_SIZE", size as u64),
            "UringCmdReq" => {
                self.values.push((format!("offsetof(struct {kernel_name}, bufpool)"), size as u64))
            }
            _ => self.values.push((format!("sizeof(struct {kernel_name})"), size as u64)),
        }
        for (field, offset) in fields {
            let field = field.trim_start_matches("r#");
            let field = match (name, field) {
                ("UringBufpoolReq", "cmd") => continue,
                ("UringBufpoolReq", _) => format!("bufpool.{field}"),
                _ => field.to_owned(),
            };
            self.values.push((format!("offsetof(struct {kernel_name}, {field})"), *offset as u64));
        }
        self.names.insert(kernel_name);
    }

    fn all() -> Self {
        let mut all = Self::default();
        for (name, size, fields) in STRUCTS {
            all.structure(name, *size, fields);
        }
        all.flags::<AttrFlags>(|name| format!("FUSE_ATTR_{name}"));
        all.flags::<ExpireFlags>(|name| format!("FUSE_{name}"));
        all.flags::<FsyncFlags>(|name| format!("FUSE_FSYNC_{name}"));
        all.flags::<GetattrFlags>(|name| format!("FUSE_GETATTR_{name}"));
        all.flags::<InitFlags>(|name| format!("FUSE_{name}"));
        all.flags::<IoctlFlags>(|name| match name {
            "IS_32BIT" => "FUSE_IOCTL_32BIT".to_owned(),
            _ => format!("FUSE_IOCTL_{name}"),
        });
        all.flags::<LkFlags>(|name| format!("FUSE_LK_{name}"));
        all.flags::<OpenFlags>(|name| format!("FUSE_OPEN_{name}"));
        all.flags::<OpenOutFlags>(|name| format!("FOPEN_{name}"));
        all.flags::<PollFlags>(|name| format!("FUSE_POLL_{name}"));
        all.flags::<ReadFlags>(|name| format!("FUSE_READ_{name}"));
        all.flags::<ReleaseFlags>(|name| format!("FUSE_RELEASE_{name}"));
        all.flags::<SetattrValid>(|name| format!("FATTR_{name}"));
        all.flags::<SetupmappingFlags>(|name| format!("FUSE_SETUPMAPPING_FLAG_{name}"));
        all.flags::<SetxattrFlags>(|name| format!("FUSE_SETXATTR_{name}"));
        all.flags::<WriteFlags>(|name| format!("FUSE_WRITE_{name}"));
        for opcode in Opcode::ALL {
            all.constant(&format!("FUSE_{}", opcode.name().to_uppercase()), *opcode as u32);
        }
        for code in NotifyCode::ALL {
            let name = match code {
                NotifyCode::Resend => "_RESEND".to_owned(),
                _ => snake_case(&format!("{code:?}")).to_uppercase(),
            };
            all.constant(&format!("FUSE_NOTIFY{name}"), code.as_raw() as u64);
        }
        for (name, value) in [
            ("FUSE_KERNEL_VERSION", u64::from(consts::KERNEL_VERSION)),
            ("FUSE_KERNEL_MINOR_VERSION", consts::KERNEL_MINOR_VERSION.into()),
            ("FUSE_ROOT_ID", consts::ROOT_ID),
            ("FUSE_INVALID_UIDGID", consts::INVALID_UIDGID.into()),
            ("FUSE_UNIQUE_RESEND", consts::UNIQUE_RESEND),
            ("FUSE_MIN_READ_BUFFER", consts::MIN_READ_BUFFER as u64),
            ("FUSE_IOCTL_MAX_IOV", consts::IOCTL_MAX_IOV as u64),
            ("FUSE_COMPAT_INIT_OUT_SIZE", consts::COMPAT_INIT_OUT_SIZE as u64),
            ("FUSE_COMPAT_22_INIT_OUT_SIZE", consts::COMPAT_22_INIT_OUT_SIZE as u64),
            ("FUSE_MAX_NR_SECCTX", consts::MAX_NR_SECCTX.into()),
            ("FUSE_EXT_GROUPS", consts::EXT_GROUPS.into()),
            ("FUSE_URING_IN_OUT_HEADER_SZ", consts::URING_IN_OUT_HEADER_SZ as u64),
            ("FUSE_URING_OP_IN_OUT_SZ", consts::URING_OP_IN_OUT_SZ as u64),
            ("FUSE_IO_URING_CMD_REGISTER", consts::IO_URING_CMD_REGISTER.into()),
            ("FUSE_IO_URING_CMD_COMMIT_AND_FETCH", consts::IO_URING_CMD_COMMIT_AND_FETCH.into()),
            ("FUSE_IO_URING_CMD_ADD_QUEUE", consts::IO_URING_CMD_ADD_QUEUE.into()),
            ("FUSE_IO_URING_CMD_ADD_BUFPOOL", consts::IO_URING_CMD_ADD_BUFPOOL.into()),
            ("FUSE_URING_ZERO_COPY", consts::URING_ZERO_COPY),
            ("FUSE_URING_ENT_ZERO_COPY", consts::URING_ENT_ZERO_COPY),
            ("FUSE_DEV_IOC_CLONE", consts::DEV_IOC_CLONE.into()),
            ("FUSE_DEV_IOC_BACKING_OPEN", consts::DEV_IOC_BACKING_OPEN.into()),
            ("FUSE_DEV_IOC_BACKING_CLOSE", consts::DEV_IOC_BACKING_CLOSE.into()),
            ("FUSE_DEV_IOC_SYNC_INIT", consts::DEV_IOC_SYNC_INIT.into()),
        ] {
            all.constant(name, value);
        }
        all
    }
}

/// `InHeader` becomes `_in_header`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// The names of structures, enumerators and macros in a header.
fn names(header: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut within_enum = false;
    for line in header.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["#define", name, _, ..] => {
                names.insert(name.split('(').next().unwrap_or_default().to_owned());
            }
            ["struct", name, "{"] if !line.starts_with(char::is_whitespace) => {
                names.insert(name.to_owned());
            }
            ["enum", _, "{"] => within_enum = true,
            ["};"] => within_enum = false,
            [name, "=", ..] if within_enum => {
                names.insert(name.to_owned());
            }
            _ => {}
        }
    }
    names
}

#[test]
#[ignore = "needs a header of the described version: lab/abi"]
fn declarations_match_the_kernel_header() {
    let path = std::env::var("SHUNT_FUSE_HEADER").expect("SHUNT_FUSE_HEADER names linux/fuse.h");
    let expected = Expected::all();
    let header = std::fs::read_to_string(&path).unwrap();
    let unknown: Vec<String> = names(&header)
        .into_iter()
        .filter(|name| !expected.names.contains(name) && !LEFT_OUT.contains(&&name[..]))
        .collect();
    assert_eq!(unknown, [""; 0], "in the header, but not in this crate");

    let mut program = format!("#include <stddef.h>\n#include <sys/ioctl.h>\n#include \"{path}\"\n");
    for (expression, value) in &expected.values {
        // The highest bit of an int is a sign, which a cast to a wider type copies.
        let cast = if *value == 1 << 31 { "unsigned int" } else { "unsigned long long" };
        writeln!(
            program,
            "_Static_assert(({cast})({expression}) == {value}ULL, \"{expression} is not {value}\");"
        )
        .unwrap();
    }
    let dir = std::env::temp_dir().join(format!("shunt-fuse-header-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let source = dir.join("layout.c");
    std::fs::write(&source, program).unwrap();
    let compiled = Command::new("cc").arg("-fsyntax-only").arg(&source).output();
    std::fs::remove_dir_all(&dir).unwrap();
    let compiled = compiled.expect("running cc");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}
