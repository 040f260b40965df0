//! Quotas of a volume: sets, prints, reports and checks them.

use std::path::Path;

use shunt_volume::id::VolumeName;
use shunt_volume::quota::{self, Limit, Limits};
use shunt_volume::replica::{Quota, Replica};
use shunt_volume::store::StoreError;
use shunt_volume::volume::Volume;

use crate::args::{LimitSubject, QuotaArgs, Size, UserLimit};
use crate::cmd::volume::defaults::{default_cache, own_name};
use crate::error::{Result, failed};
use crate::report::{QuotaReport, UsageReport};
use crate::text::bytes;

/// Limit of the users in a report; the others are only counted.
const MAX_USERS: usize = 256;
/// Limit of the users in a table for people: first those with a limit, then the largest.
const SHOWN_USERS: usize = 16;

/// Sets the given limits and returns all limits afterwards.
pub fn set(volume: &Volume, args: &QuotaArgs) -> std::result::Result<Limits, StoreError> {
    if args.is_empty() {
        return quota::limits(&*volume.meta);
    }
    let node = own_name().map_err(|error| StoreError::Denied(error.to_string()))?;
    quota::set(&*volume.meta, &node, &|limits| change(limits, args))
}

fn change(limits: &mut Limits, args: &QuotaArgs) {
    if let Some(quota) = args.quota {
        limits.volume.bytes = quota.0.map(|Size(bytes)| bytes);
    }
    if let Some(quota) = args.quota_objects {
        limits.volume.objects = quota.0;
    }
    for own in &args.user_quota {
        of(limits, own, |limit, quota| limit.bytes = quota.map(|Size(bytes)| bytes));
    }
    for own in &args.user_quota_objects {
        of(limits, own, |limit, quota| limit.objects = quota);
    }
}

fn of<T: Copy>(limits: &mut Limits, own: &UserLimit<T>, set: impl Fn(&mut Limit, Option<T>)) {
    match (own.subject, own.limit) {
        (LimitSubject::Each, quota) => set(&mut limits.default_user, quota.and_then(|quota| quota.0)),
        (LimitSubject::User(user), None) => drop(limits.users.remove(&user)),
        (LimitSubject::User(user), Some(quota)) => {
            // A limit that is not given keeps its value.
            let now = limits.of(user);
            set(limits.users.entry(user).or_insert(now), quota.0);
        }
    }
}

/// A line for each limit, for the output of `set`.
pub fn lines(limits: &Limits) -> String {
    let line = |whose: &str, limit: &Limit| {
        let size = limit.bytes.map_or_else(|| "any size".to_owned(), bytes);
        let objects = limit.objects.map_or_else(|| "any number of".to_owned(), |quota| quota.to_string());
        format!("{whose:<13}  {size} in {objects} objects\n")
    };
    let mut lines = line("quota", &limits.volume);
    if limits.default_user != Limit::default() {
        lines += &line("  of each user", &limits.default_user);
    }
    limits.users.iter().for_each(|(user, limit)| lines += &line(&format!("  of user {user}"), limit));
    lines
}

/// The usage of the volume and its users, with their limits.
pub fn report(quota: &Quota) -> QuotaReport {
    let held = |user, used: quota::Usage, limit: Limit| UsageReport {
        user,
        bytes: used.bytes,
        objects: used.objects,
        limit_bytes: limit.bytes,
        limit_objects: limit.objects,
    };
    let mut users = quota.users.clone();
    // Users with a limit come first, then those with the largest usage.
    users.sort_by_key(|(user, used)| (!quota.limits.users.contains_key(user), std::cmp::Reverse(used.bytes)));
    users.truncate(MAX_USERS);
    QuotaReport {
        held: held(None, quota.used, quota.limits.volume),
        users: users.into_iter().map(|(user, used)| held(Some(user), used, quota.limits.of(user))).collect(),
        user_count: quota.users.len() as u64,
    }
}

/// The usage and limits as lines with labels.
pub fn usage(report: &QuotaReport) -> Vec<(&'static str, String)> {
    let line = |held: &UsageReport| {
        let of = |limit: Option<String>| limit.map_or_else(String::new, |limit| format!(" of {limit}"));
        let (size, quota) = (bytes(held.bytes), of(held.limit_bytes.map(bytes)));
        format!(
            "{size}{quota} in {}{} objects",
            held.objects,
            of(held.limit_objects.map(|quota| quota.to_string()))
        )
    };
    let is_limited = |held: &UsageReport| held.limit_bytes.is_some() || held.limit_objects.is_some();
    let mut lines = vec![("usage", line(&report.held))];
    if is_limited(&report.held) || report.users.iter().any(is_limited) {
        for held in report.users.iter().take(SHOWN_USERS) {
            lines.push(("", format!("{} of user {}", line(held), held.user.unwrap_or_default())));
        }
    }
    lines
}

/// The errors in this machine's usage counters; with `repair` they are counted again.
pub fn check(cache: Option<&Path>, name: &VolumeName, repair: bool) -> Result<Vec<String>> {
    let cache = cache.map_or_else(|| default_cache(name), Path::to_owned);
    let failed =
        |error| failed(format_args!("cannot check the usage counters in {}: {error}", cache.display()));
    let mut wrong = Replica::check_usage(&cache, false).map_err(failed)?.unwrap_or_default();
    if repair && !wrong.is_empty() {
        Replica::check_usage(&cache, true).map_err(failed)?;
        wrong = Replica::check_usage(&cache, false).map_err(failed)?.unwrap_or_default();
    }
    Ok(wrong)
}
