//! Seed loop of the simulations: starts at `SEED`, or where the file `STATE` says that the last run ended; runs `SEEDS` seeds,
//! or for `TIME` seconds.

use std::time::{Duration, Instant};

/// The loop ends after this many failures.
const MAX_FAILURES: usize = 5;

/// Logs a line of the simulation if `LOG` is set, to examine a single seed.
pub fn log(line: impl FnOnce() -> String) {
    if std::env::var_os("LOG").is_some() {
        eprintln!("{}", line());
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs the seeds, by default `count` of them, and asserts that none failed.
pub fn each(what: &str, count: u64, run: impl Fn(u64) -> Result<(), String> + std::panic::RefUnwindSafe) {
    let state = std::env::var_os("STATE");
    let kept = state.as_ref().and_then(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
    let first = number("SEED").or(kept).unwrap_or(0);
    let until = number("TIME").map(|time| Instant::now() + Duration::from_secs(time));
    let one = number("SEED").is_some() && until.is_none();
    let count = number("SEEDS").unwrap_or(if one { 1 } else { count });
    let (mut seed, mut failed) = (first, Vec::new());
    while failed.len() < MAX_FAILURES && until.map_or(seed < first + count, |until| Instant::now() < until) {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => failed.push(format!("SEED={seed}: {error}")),
            Err(_) => failed.push(format!("SEED={seed}: panicked")),
        }
        seed += 1;
        if let Some(file) = state.as_ref().filter(|_| failed.is_empty()) {
            std::fs::write(file, format!("{seed}\n")).unwrap();
        }
    }
    println!("{} {what}", seed - first);
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
