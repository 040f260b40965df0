//! `shunt doctor`: prints what is wrong on this machine, what it means, and how to fix it.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde::Serialize;

use super::print;
use crate::cli::DoctorArgs;
use crate::doctor::{self, Finding, Level};
use crate::error::{Code, Result, failed};
use crate::text::printable;

/// The report as JSON, a contract: fields may be added, never changed.
#[derive(Debug, Serialize)]
pub struct DoctorReport {
    version: &'static str,
    errors: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

impl DoctorReport {
    /// Runs all checks.
    pub fn new() -> Self {
        Self::of(doctor::examine())
    }

    fn of(findings: Vec<Finding>) -> Self {
        let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
        let (errors, warnings) = (count(Level::Error), count(Level::Warning));
        DoctorReport { version: env!("CARGO_PKG_VERSION"), errors, warnings, findings }
    }
}

pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let report = DoctorReport::new();
    if args.json {
        print(format!("{}\n", serde_json::to_string_pretty(&report).map_err(failed)?))?;
    } else {
        print(render(&report, args.quiet))?;
    }
    let bad = report.errors > 0 || args.strict && report.warnings > 0;
    Ok(if bad { ExitCode::from(Code::Failed as u8) } else { ExitCode::SUCCESS })
}

/// The findings for people, grouped.
fn render(report: &DoctorReport, quiet: bool) -> String {
    let mut out = String::new();
    let mut group = "";
    for finding in &report.findings {
        if quiet && finding.level < Level::Warning {
            continue;
        }
        let own = finding.check.split('.').next().unwrap_or_default();
        if own != group {
            let _ = writeln!(out, "{}{own}", if group.is_empty() { "" } else { "\n" });
            group = own;
        }
        let word = match finding.level {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "WARNING",
            Level::Error => "ERROR",
        };
        let _ = writeln!(out, "  {word:<8} {}", printable(&finding.message));
        if let Some(effect) = &finding.effect {
            let products: Vec<_> = finding.products.iter().map(|product| product.name()).collect();
            let _ = writeln!(out, "           {}: {}", products.join(", "), printable(effect));
        }
        if let Some(fix) = &finding.fix {
            let _ = writeln!(out, "           fix: {}", printable(fix));
        }
    }
    let separator = if out.is_empty() { "" } else { "\n" };
    let _ = writeln!(out, "{separator}{} errors, {} warnings", report.errors, report.warnings);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Product;

    #[test]
    fn a_page() {
        let bad =
            Finding::new(Level::Error, "mounts.dead", "/m\n: dead", &[Product::Ext4], "it fails").fix("rm x");
        let report = DoctorReport::of(vec![Finding::ok("kernel.version", "Linux 6.18"), bad]);
        let page = render(&report, false);
        assert!(
            page.starts_with("kernel\n  ok       Linux 6.18\n\nmounts\n  ERROR    /m\\n: dead\n"),
            "{page}"
        );
        assert!(page.ends_with("ext4: it fails\n           fix: rm x\n\n1 errors, 0 warnings\n"), "{page}");
        assert!(render(&report, true).starts_with("mounts\n"));
    }
}
