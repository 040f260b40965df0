//! A test that compiles a small C project on a mirror, with a compiler and headers on the mirror too.
//!
//! The user who compiles owns only the object files: the kernel requests the ACL of the files that he reads, and the capabilities
//! of the compiler each time he runs it. This exercises extended attributes.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::common::module_is_here;
use super::mirror_cli::TestMirror;

const SOURCES: usize = 30;
const HEADERS: usize = 12;
const USER: u32 = 1000;

/// Copied into the guest by `lab/extension`: `bin/tcc`, `lib/tcc`, `include`.
const TOOLS: &str = "/lab/tools";

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}

/// Copies the tools, and generates a project in `project`.
fn lay_out(source: &Path) {
    copy(Path::new(TOOLS), source);
    let project = source.join("project");
    fs::create_dir_all(project.join("include")).unwrap();
    for n in 0..HEADERS {
        let text = format!(
            "#ifndef PART{n}_H\n#define PART{n}_H\n#include <stddef.h>\nint part{n}(int value);\n#endif\n"
        );
        fs::write(project.join(format!("include/part{n}.h")), text).unwrap();
    }
    for n in 0..SOURCES {
        let mut text = String::new();
        for name in ["stdio", "stdlib", "string", "errno", "unistd", "sys/stat", "fcntl", "ctype", "time"] {
            writeln!(text, "#include <{name}.h>").unwrap();
        }
        (0..HEADERS).for_each(|n| writeln!(text, "#include \"part{n}.h\"").unwrap());
        writeln!(
            text,
            "int source{n}(int value) {{ return printf(\"%d\\n\", value + part{}(errno)); }}",
            n % HEADERS
        )
        .unwrap();
        fs::write(project.join(format!("source{n}.c")), text).unwrap();
    }
    let makefile = "\
        T = ..\n\
        C = $T/bin/tcc -nostdinc -B$T/lib/tcc -I$T/lib/tcc/include -I$T/include/x86_64-linux-gnu -I$T/include -Iinclude\n\
        O = $(patsubst %.c,build/%.o,$(wildcard *.c))\n\
        build/program.o: $O\n\
        \t@$C -r -o $@ $O\n\
        build/%.o: %.c $(wildcard include/*.h)\n\
        \t@$C -c $< -o $@\n\
        clean:\n\
        \t@rm -f build/*.o\n";
    fs::write(project.join("Makefile"), makefile).unwrap();
    let build = project.join("build");
    fs::create_dir_all(&build).unwrap();
    std::os::unix::fs::chown(&build, Some(USER), Some(USER)).unwrap();
    fs::set_permissions(source, fs::Permissions::from_mode(0o755)).unwrap();
}

fn make(mirror: &TestMirror, target: &str) {
    let mut make = Command::new("make");
    make.arg("-C").arg(mirror.path("project")).arg(target);
    let status = make.uid(USER).gid(USER).stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "make {target}: {status}");
}

/// Returns the number of requests to the daemon for a first compilation, and for a second one.
fn compile(arguments: &[&str]) -> [u64; 2] {
    let mirror = TestMirror::new("/scratch", arguments);
    let up = fs::metadata(mirror.path("..")).unwrap().permissions().mode();
    fs::set_permissions(mirror.path(".."), fs::Permissions::from_mode(up | 0o755)).unwrap();
    lay_out(&mirror.source(""));
    let total = || {
        let stat = mirror.stat();
        let requests = stat["requests"].as_object().unwrap();
        requests.values().map(|operation| operation["count"].as_u64().unwrap()).sum::<u64>()
    };
    let counts = ["build/program.o", "clean"].map(|_| {
        let before = total();
        make(&mirror, "build/program.o");
        let asked = total() - before;
        make(&mirror, "clean");
        asked
    });
    let stat = mirror.stat();
    let requests = stat["requests"].as_object().unwrap();
    let mut requests: Vec<_> =
        requests.iter().map(|(name, operation)| (operation["count"].as_u64().unwrap(), name)).collect();
    requests.sort();
    let requests: Vec<_> = requests.iter().rev().map(|(count, name)| format!("{name} {count}")).collect();
    println!("  {}: {}", arguments.join(" "), requests.join(", "));
    counts
}

#[test]
#[ignore = "minutes: part of lab/extension --long"]
fn ten_times_fewer_requests() {
    if !module_is_here() {
        return;
    }
    println!();
    let alone = compile(&["--cache", "exclusive"]);
    let extended = compile(&["--cache", "exclusive", "--extension", "builtin"]);
    println!("requests to the daemon      first time   again");
    println!("optimised caching alone     {:10} {:7}", alone[0], alone[1]);
    println!("with the extension          {:10} {:7}", extended[0], extended[1]);
    let ratio = |n: usize| alone[n] as f64 / extended[n] as f64;
    println!("times fewer                 {:10.1} {:7.1}", ratio(0), ratio(1));
    assert!(ratio(0) >= 10.0);
}
