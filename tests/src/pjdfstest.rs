//! pjdfstest, a test suite for POSIX semantics. `tests/setup` installs it.

use std::fs;
use std::path::Path;
use std::process::Command;

use shunt_test_support::cmd::run_for;

/// Minimum number of passed cases of a complete run: with fewer, it did not really run.
pub const ALL_CASES: u32 = 380;

/// A run of pjdfstest.
#[derive(Debug)]
pub struct Pjdfstest<'a> {
    /// Path of the program.
    pub tool: &'a Path,
    /// Directory for its configuration.
    pub aside: &'a Path,
    /// A directory of another file system, for the cases about EXDEV.
    pub elsewhere: &'a str,
    /// Cases that are known to fail.
    pub expected_failures: &'a [String],
    /// Allows the suite to remount the file system read-only.
    pub remount: bool,
}

impl Pjdfstest<'_> {
    /// Runs the cases that match, or all without a pattern. Returns how many passed.
    ///
    /// # Panics
    /// If a case fails, or they take more than three minutes.
    #[track_caller]
    pub fn run(&self, at: &Path, patterns: &[&str]) -> u32 {
        let config = format!(
            "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
             stat_st_birthtime = {{}}\n\
             [settings]\nnaptime = 0.02\nallow_remount = {}\nexpected_failures = {:?}\n\
             [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n",
            self.remount, self.expected_failures
        );
        let file = self.aside.join("pjdfstest.toml");
        fs::write(&file, config).expect("a directory for the configuration");
        let mut command = Command::new(self.tool);
        command.arg("-c").arg(file).arg("-p").arg(at).args(["-s", self.elsewhere, "--"]).args(patterns);
        let ran = run_for(180, &mut command);
        let lines: Vec<_> = ran.out.lines().collect();
        let summary = lines.iter().rev().find(|l| l.contains("passed")).copied().unwrap_or("no summary");
        // A failed case is followed by an indented line with the reason.
        let bad: Vec<_> =
            lines.windows(2).filter(|w| w[1].starts_with('\t') && !w[0].ends_with("skipped")).collect();
        assert!(ran.success() && summary.contains("Summary: 0 failed"), "{summary}\n{bad:#?}\n{}", ran.err);
        println!("{summary}");
        summary.split(", ").find_map(|p| p.strip_suffix(" passed")?.parse().ok()).unwrap_or(0)
    }
}
