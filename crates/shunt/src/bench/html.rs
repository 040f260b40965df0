//! The results as one HTML page, which is well-formed XML, too. It has no script and refers to nothing: its content security policy
//! forbids both.

use std::fmt::Write as _;

use super::escape::escape;
use super::results::{CaseResult, Figures, Results};
use super::svg;
use super::table::{rate, ratio_text};
use crate::text::{bytes, micros};

const STYLE: &str = "
:root{--ink:#1a202c;--soft:#5b6472;--line:#d9dee6;--paper:#fff;--mount:#1f6feb;--against:#8c959f;--good:#1a7f37;--bad:#cf222e}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa4b0;--line:#30363d;--paper:#0d1117;--mount:#58a6ff;--against:#6e7681;
--good:#3fb950;--bad:#f85149}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.5rem;border-bottom:1px solid var(--line)}h3{font-size:1rem;margin-bottom:.2rem}
.soft{color:var(--soft)}.warn{color:var(--bad)}div.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.87rem}
th,td{text-align:right;padding:.2rem .5rem;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}
svg{display:block;width:100%;height:auto;margin:.4rem 0}svg text{fill:var(--ink);font:12px system-ui,sans-serif}
svg text.soft{fill:var(--soft)}line.grid{stroke:var(--line)}line.one{stroke:var(--soft);stroke-width:1.5}
line.range{stroke-width:3;stroke-linecap:round}.slower{fill:var(--bad);stroke:var(--bad)}.faster{fill:var(--good);stroke:var(--good)}
.same,.unclear{fill:var(--soft);stroke:var(--soft)}rect.mount{fill:var(--mount)}rect.against{fill:var(--against)}
circle.round{fill:var(--paper);stroke:var(--ink);stroke-width:1}";

const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The page.
pub fn page(results: &Results) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta http-equiv=\"Content-Security-Policy\" \
         content=\"{POLICY}\"/><meta name=\"viewport\" content=\"width=device-width\"/><title>shunt bench: {}</title>\
         <style>{STYLE}</style></head><body>",
        escape(&results.mount.path)
    );
    introduction(&mut page, results);
    let _ = write!(page, "<h2>Ratios</h2>{}", svg::ratios(results));
    page.push_str("<h2>All figures</h2><div class=\"wide\"><table><thead><tr>");
    for heading in
        ["Case", "Mount", "Against", "Ratio", "Interval", "Mount p50", "p90", "p99", "Against p50", "p99", ""]
    {
        let _ = write!(page, "<th>{heading}</th>");
    }
    page.push_str("</tr></thead><tbody>");
    for case in &results.cases {
        row(&mut page, case);
    }
    page.push_str(
        "</tbody></table></div><h2>Rounds</h2><p class=\"soft\">Bars are medians; each dot is a round.</p>",
    );
    for case in results.cases.iter().filter(|case| case.mount.is_some()) {
        let _ = write!(page, "<h3>{}</h3>{}", escape(&case.name), svg::rates(case));
    }
    page.push_str("</body></html>\n");
    page
}

fn introduction(page: &mut String, results: &Results) {
    let side = |facts: &super::sides::SideFacts| {
        format!("<code>{}</code> ({})", escape(&facts.path), escape(&facts.fstype))
    };
    let _ = write!(
        page,
        "<h1>{} compared with {}</h1><p class=\"soft\">shunt {}, Linux {}, {} processors; file of {}, {} small files; {} rounds in \
         {:.1} s. In each round both directories ran every case in turn. A ratio above 1 means that the mount is faster; its \
         interval contains the true median with the confidence given.</p>",
        side(&results.mount),
        side(&results.against),
        results.version,
        escape(&results.kernel),
        results.processors,
        bytes(results.size),
        results.files,
        results.rounds,
        results.seconds,
    );
    if !results.noisy.is_empty() {
        let _ = write!(
            page,
            "<p class=\"warn\">Rounds differ by more than 25 %: {}. Close other programs, or measure longer with --time.</p>",
            escape(&results.noisy.join(", "))
        );
    }
}

fn row(page: &mut String, case: &CaseResult) {
    let shown = |side: &Option<Figures>| {
        side.as_ref().map_or_else(|| "-".to_owned(), |side| rate(case.unit, side.rate.median))
    };
    let latency = |side: &Option<Figures>, at: fn(&Figures) -> f64| {
        side.as_ref().map_or_else(String::new, |side| micros(at(side)))
    };
    let ratio = case.ratio.map_or_else(String::new, |ratio| ratio_text(ratio.median));
    let interval = case.ratio.map_or_else(String::new, |ratio| {
        format!(
            "{} to {} ({:.0} %)",
            ratio_text(ratio.low),
            ratio_text(ratio.high),
            (ratio.confidence * 100.0).floor()
        )
    });
    let remark = match (&case.skipped, case.noisy) {
        (Some(reason), _) => format!("left out: {reason}"),
        (None, true) => "noisy".to_owned(),
        (None, false) => String::new(),
    };
    let cells = [
        case.name.clone(),
        shown(&case.mount),
        shown(&case.against),
        ratio,
        interval,
        latency(&case.mount, |side| side.latency_us.p50),
        latency(&case.mount, |side| side.latency_us.p90),
        latency(&case.mount, |side| side.latency_us.p99),
        latency(&case.against, |side| side.latency_us.p50),
        latency(&case.against, |side| side.latency_us.p99),
        remark,
    ];
    page.push_str("<tr>");
    for cell in cells {
        let _ = write!(page, "<td>{}</td>", escape(&cell));
    }
    page.push_str("</tr>");
}
