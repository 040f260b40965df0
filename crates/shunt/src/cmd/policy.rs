//! `shunt policy`: checks and explains policies.

pub mod file;
pub mod origin;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use shunt_policy::{Content, KnownCaller, Op, Policy};

use self::file::PolicyFile;
use self::origin::Origin;
use crate::cli::{ExplainArgs, PolicyCommand};
use crate::error::{Code, Failure, Result, failed};

pub fn run(command: &PolicyCommand) -> Result<()> {
    match command {
        PolicyCommand::Check { file } => {
            let policy = read(file)?;
            super::print(format!("{}: {} rules\n", file.display(), policy.rules().len()))
        }
        PolicyCommand::Explain(args) => explain(args),
    }
}

/// The content of a file, or empty.
struct Bytes(Vec<u8>);

impl Content for Bytes {
    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        self.0.as_slice().read(offset, length)
    }
}

fn explain(args: &ExplainArgs) -> Result<()> {
    let policy = read(&args.file)?;
    let op = Op::named(&args.op).ok_or_else(|| {
        let names: Vec<&str> = Op::KEYWORDS.iter().map(|(name, _)| *name).collect();
        let message =
            format!("unknown operation {}; the operations are lookup, {}", args.op, names.join(", "));
        Failure::new(Code::Usage, message)
    })?;
    let content = match &args.content {
        None => Vec::new(),
        Some(path) => {
            fs::read(path).map_err(|error| failed(format_args!("cannot read {}: {error}", path.display())))?
        }
    };
    let caller =
        KnownCaller::new(args.uid, args.gid.unwrap_or(args.uid)).with_groups(Some(args.group.clone()));
    let caller = match &args.exe {
        None => caller,
        Some(program) => caller.with_program(program),
    };
    let explanation = policy.explain(args.path.as_os_str().as_bytes(), op, &caller, &Bytes(content));
    super::print(format!("{}\n", explanation.show(&policy)))
}

/// Reads a policy. Its file may belong to any user.
fn read(path: &Path) -> Result<Policy> {
    let origin = PolicyFile::open(path).and_then(|file| file.read());
    origin.map_err(failed).and_then(|text| Origin::new(path, Path::new("/"), text).complete_policy())
}
