//! `shunt volume check` and `shunt volume gc`: verify and repair a volume, and delete its unreferenced chunks.

use std::path::Path;
use std::time::Duration;

use shunt_volume::id::{NodeName, VolumeName};
use shunt_volume::maintenance::{
    Checked, Collected, Depth, GRACE_PERIOD, LogRetention, Problem, collect, fsck as look, repair as mend,
};
use shunt_volume::open;
use shunt_volume::volume::Volume;

use super::quota;
use crate::args::{VolumeCheckArgs, VolumeGcArgs};
use crate::cmd::print;
use crate::cmd::volume::defaults::meta;
use crate::cmd::volume::key;
use crate::error::{Result, failed, usage};
use crate::progress::Progress;

/// Limit of the problems that are printed; all are counted.
const MAX_SHOWN_PROBLEMS: usize = 100;

pub fn check(args: &VolumeCheckArgs) -> Result<()> {
    let volume = open(args.meta.as_deref(), &args.name, args.key_file.as_deref())?;
    let depth = if args.read { Depth::Contents } else { Depth::Locations };
    let progress = Progress::new();
    let looked = |volume| {
        let so_far = |what: &str, count| progress.update(format_args!("checking: {count} {what}"));
        look(volume, depth, &so_far).map_err(|error| operation_failed("check", &args.name, error))
    };
    let mut checked = looked(&volume)?;
    let mut repaired = None;
    let miscounted = quota::check(args.cache.as_deref(), &args.name, args.repair)?;
    // A check returns a limited number of problems and counts the others, so repairs are repeated.
    while args.repair && checked.count > 0 {
        let node: NodeName = "repair".parse().map_err(usage)?;
        let so_far = |what: &str, count| progress.update(format_args!("repairing: {count} {what}"));
        let done = mend(&volume, &node, &checked, &so_far)
            .map_err(|error| operation_failed("repair", &args.name, error))?;
        let done = done.counts + done.chunks + done.relinked;
        repaired = Some(repaired.unwrap_or_default() + done);
        checked = looked(&volume)?;
        if done == 0 {
            break;
        }
    }
    drop(progress);
    for line in miscounted {
        checked.count += 1;
        checked.problems.push(Problem::QuotaUsage(line));
    }
    if args.json {
        print(format!("{}\n", json(&checked, repaired)))?;
    } else {
        print(text(&checked, repaired))?;
    }
    match checked.count {
        0 => Ok(()),
        1 => Err(failed(format_args!("volume {} has 1 problem", args.name))),
        count => Err(failed(format_args!("volume {} has {count} problems", args.name))),
    }
}

fn text(checked: &Checked, repaired: Option<u64>) -> String {
    let mut text = String::new();
    for problem in checked.problems.iter().take(MAX_SHOWN_PROBLEMS) {
        text += &format!("{problem}\n");
    }
    if let Some(repaired) = repaired {
        text += &format!("repaired  {repaired}\n");
    }
    text += &format!(
        "objects   {}\nnames     {}\nchunks    {} in {} bytes\nproblems  {}\n",
        checked.objects, checked.names, checked.chunks, checked.bytes, checked.count,
    );
    if checked.at.is_none() {
        text += "The volume was changed during the check: reported problems may be changes in progress. Run the check again.\n";
    }
    text
}

fn json(checked: &Checked, repaired: Option<u64>) -> serde_json::Value {
    serde_json::json!({
        "objects": checked.objects,
        "names": checked.names,
        "pieces": checked.chunks,
        "bytes": checked.bytes,
        "problem_count": checked.count,
        "problems": checked.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "repaired": repaired,
        "held_still": checked.at.is_some(),
    })
}

pub fn gc(args: &VolumeGcArgs) -> Result<()> {
    let volume = open(args.meta.as_deref(), &args.name, args.key_file.as_deref())?;
    let history = args.history_days.map(|days| LogRetention {
        age: Duration::from_secs(days.saturating_mul(24 * 3600)),
        count: args.history_commits,
    });
    let progress = Progress::new();
    let done = collect(&volume, GRACE_PERIOD, history, &|what, count| {
        progress.update(format_args!("{count} {what}"))
    })
    .map_err(|error| operation_failed("collect the garbage of", &args.name, error))?;
    drop(progress);
    let Collected {
        versions_deleted,
        live,
        marked,
        dropped,
        packs,
        bytes,
        rewritten,
        bytes_to_free,
        saved_after,
        unused_bytes,
        log_truncated_to,
    } = done;
    print(format!(
        "forgotten  {versions_deleted} past versions and names\nin use     {live} chunks\nmarked     {marked} unreferenced chunks, to be deleted after {}\n\
         deleted    {dropped} chunks, {packs} packs of {bytes} bytes\n\
         compacted  {rewritten} mostly unused packs, which frees {bytes_to_free} bytes after {}\n\
         retained   {unused_bytes} bytes of deleted chunks, in packs with others\nlog        from commit {} on\n",
        days(GRACE_PERIOD),
        days(saved_after),
        log_truncated_to.0 + 1,
    ))
}

fn days(time: Duration) -> String {
    match time.as_secs() / 3600 {
        hours if hours > 24 && hours % 24 == 0 => format!("{} days", hours / 24),
        hours => format!("{hours} hours"),
    }
}

fn open(given: Option<&str>, name: &VolumeName, key_file: Option<&Path>) -> Result<Volume> {
    let secret = key::find(key_file, name)?;
    open::open(&meta(given, name)?, name, secret.as_ref())
        .map_err(|error| operation_failed("open", name, error))
}

pub fn operation_failed(
    operation: &str,
    name: &VolumeName,
    error: impl std::fmt::Display,
) -> crate::error::Failure {
    failed(format_args!("cannot {operation} volume {name}: {error}"))
}
