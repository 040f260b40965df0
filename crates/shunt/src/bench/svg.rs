//! Plots as inline SVG.

use std::fmt::Write as _;

use super::escape::escape;
use super::results::{CaseResult, Figures, Results};
use super::table::{rate, ratio_text};

const WIDTH: f64 = 860.0;
const LABEL_WIDTH: f64 = 230.0;
const VALUE_WIDTH: f64 = 110.0;
const ROW_HEIGHT: f64 = 22.0;

/// The ratios of all cases on a logarithmic axis, each a point with its interval. Empty without any.
pub fn ratios(results: &Results) -> String {
    let cases: Vec<_> = results.cases.iter().filter_map(|case| Some((case, case.ratio?))).collect();
    let logs = |value: f64| value.max(1e-6).log2();
    let ends = cases.iter().flat_map(|(_, ratio)| [logs(ratio.low), logs(ratio.high)]);
    let (low, high) = ends.fold((-1.0_f64, 1.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let (low, high) = (low.floor(), high.ceil());
    let x = |log: f64| LABEL_WIDTH + (log - low) / (high - low) * (WIDTH - LABEL_WIDTH - VALUE_WIDTH);
    let height = ROW_HEIGHT * (cases.len() as f64 + 1.5);
    let mut out = open(height, "Ratio of the rates, mount divided by the other directory");
    let step = ((high - low) / 8.0).ceil().max(1.0);
    let mut tick = low;
    while tick <= high {
        let (at, end) = (x(tick), height - ROW_HEIGHT);
        let class = if tick == 0.0 { "one" } else { "grid" };
        let label =
            if tick < 0.0 { format!("1/{}", 2_f64.powf(-tick)) } else { format!("{}", 2_f64.powf(tick)) };
        let _ = write!(
            out,
            r#"<line class="{class}" x1="{at:.1}" x2="{at:.1}" y1="0" y2="{end:.1}"/><text class="soft" text-anchor="middle" x="{at:.1}" y="{:.1}">{label}</text>"#,
            end + 15.0
        );
        tick += step;
    }
    for (number, (case, ratio)) in cases.iter().enumerate() {
        let y = ROW_HEIGHT * (number as f64 + 0.5);
        let class = format!("{:?}", case.verdict.expect("a case with a ratio")).to_lowercase();
        let _ = write!(
            out,
            r#"<text x="0" y="{:.1}">{}</text><line class="range {class}" x1="{:.1}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/><circle class="{class}" cx="{:.1}" cy="{y:.1}" r="4.5"/><text class="soft" x="{:.1}" y="{:.1}">{}</text>"#,
            y + 4.0,
            escape(&case.name),
            x(logs(ratio.low)),
            x(logs(ratio.high)),
            x(logs(ratio.median)),
            WIDTH - VALUE_WIDTH + 14.0,
            y + 4.0,
            ratio_text(ratio.median)
        );
    }
    if cases.is_empty() { String::new() } else { out + "</svg>" }
}

/// The rates of both sides of a case as bars, with a dot per round.
pub fn rates(case: &CaseResult) -> String {
    let sides = [("mount", &case.mount), ("against", &case.against)];
    let rounds = sides.iter().filter_map(|(_, side)| side.as_ref()).flat_map(|side| side.rounds.iter());
    let max = rounds.fold(f64::MIN_POSITIVE, |max, value| max.max(*value));
    let mut out = open(2.0 * ROW_HEIGHT, &format!("Rates of {}", case.name));
    for (number, (name, side)) in sides.iter().enumerate() {
        if let Some(side) = side {
            bar(&mut out, name, side, case.unit, max, number as f64 * ROW_HEIGHT);
        }
    }
    out + "</svg>"
}

fn bar(out: &mut String, name: &str, side: &Figures, unit: &str, max: f64, top: f64) {
    let left = 70.0;
    let x = |value: f64| left + value / max * (WIDTH - left - VALUE_WIDTH);
    let middle = top + ROW_HEIGHT / 2.0;
    let _ = write!(
        out,
        r#"<text x="0" y="{:.1}">{name}</text><rect class="{name}" x="{left}" y="{:.1}" width="{:.1}" height="{:.1}"/>"#,
        middle + 4.0,
        top + 3.0,
        x(side.rate.median) - left,
        ROW_HEIGHT - 6.0
    );
    for value in &side.rounds {
        let _ = write!(out, r#"<circle class="round" cx="{:.1}" cy="{middle:.1}" r="2.5"/>"#, x(*value));
    }
    let _ = write!(
        out,
        r#"<text class="soft" x="{:.1}" y="{:.1}">{}</text>"#,
        WIDTH - VALUE_WIDTH + 14.0,
        middle + 4.0,
        rate(unit, side.rate.median)
    );
}

fn open(height: f64, title: &str) -> String {
    let title = escape(title);
    format!(
        r#"<svg viewBox="0 0 {WIDTH} {height:.1}" role="img" aria-label="{title}"><title>{title}</title>"#
    )
}
