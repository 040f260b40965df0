//! Skipped tests, which are logged and counted.

use std::io::Write as _;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

static SKIPPED: AtomicUsize = AtomicUsize::new(0);
static AT_EXIT: Once = Once::new();

/// Reports whether the test bodies run in a plain directory.
pub fn native() -> bool {
    std::env::var_os("SHUNT_TEST_NATIVE").is_some_and(|v| v == "1")
}

/// Prints `SKIP name: reason`.
///
/// # Panics
/// With `CI=true`, where a test that cannot run is a failure.
pub fn skip(reason: &str) {
    note(reason);
    assert!(!std::env::var("CI").is_ok_and(|v| v == "true"), "cannot run, and CI is set: {reason}");
}

/// Like [`skip`], for a test that makes no sense in a native run: never a failure.
pub fn only_mounted() {
    note("needs a mount");
}

/// Like [`skip`], for a feature that this kernel lacks and the lab's kernel has: a failure only there.
///
/// # Panics
/// In the lab.
pub fn kernel_cannot(reason: &str) {
    note(reason);
    assert!(std::env::var_os("SHUNT_LAB").is_none(), "the lab's kernel can: {reason}");
}

fn note(reason: &str) {
    AT_EXIT.call_once(|| {
        // SAFETY: the handler is a plain function that touches an atomic and writes to stderr.
        unsafe { libc::atexit(total) };
    });
    SKIPPED.fetch_add(1, Ordering::Relaxed);
    let thread = std::thread::current();
    // Straight to stderr: libtest captures only the print macros. In one write, because others write, too.
    let line = format!("\nSKIP {}: {reason}\n", thread.name().unwrap_or("?"));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

extern "C" fn total() {
    let _ = writeln!(std::io::stderr(), "SKIPPED {}", SKIPPED.load(Ordering::Relaxed));
}

/// Skips the test, with the reason shown, unless the condition holds.
#[macro_export]
macro_rules! requirement {
    ($condition:expr, $($reason:tt)*) => {
        if !$condition {
            $crate::skip::skip(&format!($($reason)*));
            return;
        }
    };
}

/// Skips the test if it runs in a plain directory.
#[macro_export]
macro_rules! needs_mount {
    () => {
        if $crate::skip::native() {
            $crate::skip::only_mounted();
            return;
        }
    };
}

/// Reports whether all programs are in `PATH`.
pub fn have(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    programs.iter().all(|name| std::env::split_paths(&path).any(|dir| dir.join(name).exists()))
}

/// Skips the test unless the programs are installed; `tests/setup` installs them.
#[macro_export]
macro_rules! needs_tools {
    ($($name:literal),*) => {
        $crate::requirement!($crate::skip::have(&[$($name),*]), "not installed: one of {:?} (run tests/setup)", [$($name),*]);
    };
}
