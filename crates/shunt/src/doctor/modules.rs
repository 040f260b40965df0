//! The optional kernel modules and BPF.

use std::fs;
use std::path::Path;

use super::Product::{Ext4, Mirror, Volume};
use super::{Finding, Level};

pub fn check() -> Vec<Finding> {
    let extmap = module(
        "modules.extmap",
        "shunt_extmap",
        "shunt-extmap",
        &[Ext4],
        "file data of images goes through the daemon; with the module the kernel reads and writes the device itself",
    );
    let fuse_ext = module(
        "modules.fuse_ext",
        "shunt_fuse_ext",
        "shunt-fuse-ext",
        &[Mirror, Volume],
        "--extension has no effect: the daemon answers all requests",
    );
    vec![extmap, fuse_ext, lsm()]
}

fn module(
    check: &'static str,
    name: &str,
    package: &str,
    products: &[super::Product],
    effect: &str,
) -> Finding {
    if Path::new("/sys/module").join(name).exists() {
        return Finding::ok(check, format!("the module {name} is loaded"));
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let installed = fs::read_to_string(format!("/lib/modules/{release}/modules.dep"))
        .is_ok_and(|table| table.lines().any(|line| line.contains(&format!("/{name}.ko"))));
    let (state, fix) = match installed {
        true => ("installed, but not loaded", format!("modprobe {name}")),
        false => (
            "not installed (it is optional)",
            format!("dkms install {package}/{} && modprobe {name}", env!("CARGO_PKG_VERSION")),
        ),
    };
    Finding::new(Level::Note, check, format!("the module {name} is {state}"), products, effect).fix(fix)
}

fn lsm() -> Finding {
    let check = "modules.bpf_lsm";
    let effect = "the rules of policies are enforced by the daemon, which costs requests";
    let note = |message: String| Finding::new(Level::Note, check, message, &[Mirror], effect);
    if cfg!(not(feature = "lsm")) {
        return note("this build does not check policies in the kernel".to_owned())
            .fix("build it with --features lsm");
    }
    match fs::read_to_string("/sys/kernel/security/lsm") {
        Ok(list) if list.trim().split(',').any(|name| name == "bpf") => {
            Finding::ok(check, "the kernel runs BPF programs at security hooks")
        }
        Ok(list) => note(format!("BPF is not among the security modules ({})", list.trim()))
            .fix("add `bpf` to the kernel parameter lsm= (with CONFIG_BPF_LSM=y)"),
        Err(error) => note(format!("/sys/kernel/security/lsm cannot be read ({error})"))
            .fix("mount -t securityfs securityfs /sys/kernel/security"),
    }
}
