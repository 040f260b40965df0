//! Compiles the BPF programs if the feature is enabled and clang is available. Everything else works without them.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(programs)");
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/policy");
    println!("cargo::rerun-if-changed={}", kernel.display());
    println!("cargo::rerun-if-env-changed=SHUNT_REQUIRE_BPF");
    if std::env::var_os("CARGO_FEATURE_BPF").is_none() {
        return;
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("policy.bpf.o");
    let machine = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let compiled = Command::new(std::env::var_os("CLANG").unwrap_or_else(|| "clang".into()))
        .args(["-target", "bpf", "-ffreestanding", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"])
        .arg(format!("-I/usr/include/{machine}-linux-gnu"))
        .arg("-c")
        .arg(kernel.join("policy.bpf.c"))
        .arg("-o")
        .arg(&out)
        .status();
    match compiled {
        Ok(status) if status.success() => println!("cargo::rustc-cfg=programs"),
        // Set for packages, which must not silently lack the programs.
        _ if std::env::var_os("SHUNT_REQUIRE_BPF").is_some() => {
            panic!(
                "cannot compile the BPF programs with clang, which SHUNT_REQUIRE_BPF demands; install clang"
            )
        }
        _ => println!(
            "cargo::warning=cannot compile the BPF programs with clang: the kernel will check no rules; install clang"
        ),
    }
}
