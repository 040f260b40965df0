//! The HTML report: one self-contained page with tables and plots.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{Line, Results, non_empty, verdict_text};
use crate::model::{Row, Series};

const STYLE: &str = "
:root{--ink:#1c2430;--soft:#667085;--line:#e4e7ec;--paper:#fff;--bar:#98a2b3;--ours:#1570ef;--native:#475467;
--good:#067647;--bad:#b42318}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--soft:#98a2b3;--line:#344054;--paper:#101828;
--bar:#667085;--ours:#53b1fd;--native:#d0d5dd;--good:#47cd89;--bad:#f97066}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:62rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.7rem;margin-bottom:.2rem}h2{margin:2.5rem 0 .5rem;border-bottom:1px solid var(--line)}
h3{margin:1.5rem 0 .3rem;font-size:1rem}p,td,th{color:inherit}.soft{color:var(--soft)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.86rem}
th{font-weight:500;color:var(--soft)}th,td{text-align:right;padding:.15rem .5rem;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}svg{display:block;width:100%;height:auto;margin:.3rem 0}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .value{fill:var(--soft)}
.mark{font-weight:600}.PASS{color:var(--good)}.FAIL{color:var(--bad)}ul{padding-left:1.2rem;margin:.4rem 0}
.error{color:var(--bad)}";

/// Writes the page.
///
/// # Errors
/// When the file cannot be written.
pub fn write(results: &Results, to: &Path) -> Result<()> {
    fs::write(to, page(results)).with_context(|| format!("write {}", to.display()))
}

fn page(results: &Results) -> String {
    let mut page = String::from("<!doctype html><html lang=en><meta charset=utf-8>");
    page += "<meta name=viewport content=\"width=device-width\"><title>Shunt: measurements</title>";
    let trips = &results.round_trips;
    let ring = trips.ring.as_ref().map_or("not available".into(), |ring| ring.to_string());
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "<style>{STYLE}</style><h1>Shunt: measurements</h1><p class=soft>{} &middot; Linux {}</p>\
         <p>In each round the peers ran in turn; values are medians. Empty round trip in this run: \
         {}; over io_uring: {ring}. The floor of a series is its number of requests times the shortest of these on its \
         transport.</p><p><b>{}</b></p>",
        escape(&results.processor),
        escape(&results.kernel),
        trips.dev,
        results.verdict(),
    );
    if results.quick {
        page += "<p class=error>Quick run: it tests the harness, and its figures are not valid.</p>";
    }
    for failure in &results.failures {
        let _ = write!(page, "<p class=error>Failed: {}</p>", escape(failure));
    }
    let mut workload = "";
    for row in &results.rows {
        if row.workload != workload {
            workload = &row.workload;
            let _ = write!(page, "<h2>{}</h2>", escape(workload));
        }
        section(&mut page, row);
    }
    page
}

fn section(page: &mut String, row: &Row) {
    let _ = write!(page, "<h3>{}</h3>", escape(&row.case));
    plot(page, row);
    *page += "<table><tr><th>peer<th>median<th>min..max<th>&times; native<th>requests<th>floor";
    for series in non_empty(row) {
        let line = Line::of(row, series);
        let _ = write!(
            page,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
            line.peer, line.value, line.range, line.ratio, line.requests, line.floor
        );
        if let Some(error) = &series.error {
            let _ = write!(page, "<tr><td colspan=6 class=error>{}", escape(error));
        }
    }
    *page += "</table><ul>";
    for note in &row.notes {
        let _ = write!(page, "<li class=soft>{}", escape(note));
    }
    for threshold in &row.thresholds {
        let mark = verdict_text(threshold.pass);
        let _ = write!(
            page,
            "<li>{}: {} <span class=\"mark {mark}\">{mark}</span>",
            escape(&threshold.text),
            threshold.measured()
        );
    }
    *page += "</ul>";
}

/// A bar per peer, with a thin line from its smallest to its largest value.
fn plot(page: &mut String, row: &Row) {
    const LABEL_WIDTH: f64 = 150.0;
    const PLOT_WIDTH: f64 = 640.0;
    const LINE_HEIGHT: usize = 24;
    let drawn: Vec<&Series> = row.series.iter().filter(|series| !series.values.is_empty()).collect();
    let largest = drawn.iter().filter_map(|series| series.range()).map(|range| range.1).fold(0.0, f64::max);
    if largest <= 0.0 {
        return;
    }
    let _ = write!(page, "<svg viewBox=\"0 0 900 {}\" role=img>", drawn.len() * LINE_HEIGHT);
    for (at, series) in drawn.iter().enumerate() {
        let (Some(median), Some((min, max))) = (series.median(), series.range()) else { continue };
        let x = |value: f64| LABEL_WIDTH + value.max(0.0) / largest * PLOT_WIDTH;
        let top = at * LINE_HEIGHT + 4;
        let colour = match series.peer.as_str() {
            "native" | "kernel" => "native",
            name if name.starts_with("shunt") => "ours",
            _ => "bar",
        };
        let _ = write!(
            page,
            "<text x=142 y={text} text-anchor=end>{peer}</text>\
             <rect x={LABEL_WIDTH} y={top} width=\"{width:.1}\" height=16 rx=2 fill=\"var(--{colour})\"/>\
             <path d=\"M{from:.1} {middle}H{to:.1}\" stroke=\"var(--ink)\" stroke-width=1.5 />\
             <text class=value x=\"{label:.1}\" y={text}>{value}</text>",
            text = top + 13,
            peer = escape(&series.peer),
            width = x(median) - LABEL_WIDTH,
            from = x(min),
            middle = top + 8,
            to = x(max),
            label = x(max) + 8.0,
            value = Line::of(row, series).value,
        );
    }
    *page += "</svg>";
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
