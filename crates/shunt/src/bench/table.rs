//! The results as a table for people.

use std::fmt::Write as _;

use super::results::{CaseResult, Figures, Results, Verdict};
use crate::text::{Align, Table, bytes, micros, printable};

/// Renders the table with its heading and notes.
pub fn render(results: &Results) -> String {
    let mut out = format!(
        "mount    {} ({})\nagainst  {} ({})\nLinux {}, {} processors; {} rounds in {:.1} s\n\n",
        printable(&results.mount.path),
        results.mount.fstype,
        printable(&results.against.path),
        results.against.fstype,
        results.kernel,
        results.processors,
        results.rounds,
        results.seconds,
    );
    let mut table = Table::new(&[
        ("CASE", Align::Left),
        ("MOUNT", Align::Right),
        ("AGAINST", Align::Right),
        ("RATIO", Align::Right),
        ("INTERVAL", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("", Align::Left),
    ]);
    for case in &results.cases {
        table.row(row(case));
    }
    out.push_str(&table.render());
    let confidence = results.cases.iter().filter_map(|case| case.ratio).map(|ratio| ratio.confidence);
    let percent = (confidence.fold(1.0, f64::min) * 100.0).floor();
    let _ = writeln!(
        out,
        "\nRates are medians of the rounds; the ratio is mount / against, with its {percent} % confidence interval. P50 and P99 are \
         latencies in the mount."
    );
    out
}

fn row(case: &CaseResult) -> Vec<String> {
    let shown = |side: &Option<Figures>| {
        side.as_ref().map_or_else(|| "-".to_owned(), |side| rate(case.unit, side.rate.median))
    };
    let latency =
        |at: fn(&Figures) -> f64| case.mount.as_ref().map_or_else(String::new, |side| micros(at(side)));
    let mut remark = match case.verdict {
        Some(Verdict::Faster) => "faster".to_owned(),
        Some(Verdict::Slower) => "slower".to_owned(),
        Some(Verdict::Same) => "same".to_owned(),
        Some(Verdict::Unclear) => "unclear".to_owned(),
        None => String::new(),
    };
    if case.noisy {
        remark.push_str(", noisy");
    }
    if let Some(reason) = &case.skipped {
        remark = format!("left out: {reason}");
    }
    let ratio = case.ratio.map_or_else(String::new, |ratio| ratio_text(ratio.median));
    let interval = case
        .ratio
        .map_or_else(String::new, |ratio| format!("{} to {}", ratio_text(ratio.low), ratio_text(ratio.high)));
    vec![
        case.name.clone(),
        shown(&case.mount),
        shown(&case.against),
        ratio,
        interval,
        latency(|side| side.latency_us.p50),
        latency(|side| side.latency_us.p99),
        remark,
    ]
}

/// A rate in a suitable unit.
pub fn rate(unit: &str, value: f64) -> String {
    match unit {
        "bytes/s" => format!("{}/s", bytes(value as u64)),
        _ if value >= 1e6 => format!("{:.2} M/s", value / 1e6),
        _ if value >= 1e3 => format!("{:.1} k/s", value / 1e3),
        _ => format!("{value:.0} /s"),
    }
}

/// A ratio with at least two significant digits.
pub fn ratio_text(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 0.1 => format!("{ratio:.2}"),
        ratio if ratio >= 0.01 => format!("{ratio:.3}"),
        ratio => format!("{ratio:.4}"),
    }
}
