//! Compiles the builtin BPF program, where the target can load it and clang is installed. Without it everything else works.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(builtin)");
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/fuse_ext");
    println!("cargo::rerun-if-changed={}", kernel.join("bpf").display());
    println!("cargo::rerun-if-changed={}", kernel.join("include").display());
    println!("cargo::rerun-if-env-changed=SHUNT_REQUIRE_BPF");
    if std::env::var_os("CARGO_FEATURE_BPF").is_none() {
        return;
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("builtin.bpf.o");
    let machine = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let compiled = Command::new(std::env::var_os("CLANG").unwrap_or_else(|| "clang".into()))
        .args(["-target", "bpf", "-ffreestanding", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"])
        .arg("-I")
        .arg(kernel.join("include"))
        .arg("-I")
        .arg(kernel.join("bpf"))
        .arg(format!("-I/usr/include/{machine}-linux-gnu"))
        .arg("-c")
        .arg(kernel.join("bpf/builtin.bpf.c"))
        .arg("-o")
        .arg(&out)
        .status();
    match compiled {
        Ok(status) if status.success() => println!("cargo::rustc-cfg=builtin"),
        // Set for packages, which must not silently lack the programs.
        _ if std::env::var_os("SHUNT_REQUIRE_BPF").is_some() => {
            panic!(
                "cannot compile the BPF programs with clang, which SHUNT_REQUIRE_BPF demands; install clang"
            )
        }
        _ => println!("cargo::warning=no builtin extension: clang cannot compile it"),
    }
}
