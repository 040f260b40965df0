//! Checks at the end of a round, when all components work again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shunt_test_support::cmd::within;
use shunt_test_support::{pace, run, run_for};
use shunt_tests::binary;

use crate::volume_soak::cluster::{Cluster, Node, lock};
use crate::volume_soak::tagged_content::FoundContent;
use crate::volume_soak::user::ATTRIBUTE;

/// Maximum time until all nodes agree; a silent server costs half a minute of it.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(120);
/// Time without activity after which the nodes count as idle.
const IDLE_TIME: Duration = Duration::from_millis(1500);

/// The visible tree of a node.
#[derive(Default)]
struct Tree {
    entries: BTreeMap<PathBuf, String>,
    /// Tokens of all contents seen.
    seen: BTreeSet<u64>,
    wrong: Vec<String>,
}

impl Tree {
    fn of(cluster: &Cluster, node: &Node) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.look(cluster, node.at(), Path::new(""))?;
        Ok(tree)
    }

    fn look(&mut self, cluster: &Cluster, at: &Path, below: &Path) -> io::Result<()> {
        for entry in fs::read_dir(at.join(below))? {
            let name = below.join(entry?.file_name());
            let path = at.join(&name);
            let there = fs::symlink_metadata(&path)
                .map_err(|error| io::Error::other(format!("{path:?} is listed: {error}")))?;
            let mut what = format!("{:o} of {}.{:09}", there.mode(), there.mtime(), there.mtime_nsec());
            if there.is_dir() {
                self.look(cluster, at, &name)?;
            } else if there.is_symlink() {
                what += &format!(" to {:?}", fs::read_link(&path)?);
            } else {
                let mut bytes = Vec::new();
                (File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes)))
                    .map_err(|error| io::Error::other(format!("{path:?}: {error}")))?;
                let held = FoundContent::of(&bytes);
                if let Err(wrong) = lock(&cluster.ledger).allows(&held) {
                    self.wrong.push(format!("{path:?} holds {wrong}"));
                }
                self.seen.extend(held.contents().iter().map(|content| content.token));
                let mut hasher = DefaultHasher::new();
                bytes.hash(&mut hasher);
                let mut value = [0; 8];
                let value =
                    rustix::fs::getxattr(&path, ATTRIBUTE, &mut value).map(|len| value[..len].to_vec());
                what += &format!(", {} names, {held:?} {:x}, {value:?}", there.nlink(), hasher.finish());
            }
            self.entries.insert(name, what);
        }
        Ok(())
    }

    /// Returns a path at which two trees differ.
    fn differs(&self, other: &Self) -> Option<String> {
        let all: BTreeSet<&PathBuf> = self.entries.keys().chain(other.entries.keys()).collect();
        let path = all.into_iter().find(|path| self.entries.get(*path) != other.entries.get(*path))?;
        Some(format!("{path:?} is {:?} and {:?}", self.entries.get(path), other.entries.get(path)))
    }
}

fn conflicts(node: &Node) -> u64 {
    let output = run(binary::command(&["volume", "conflicts", "--json"]).arg(node.at())).ok();
    serde_json::from_str::<Vec<serde_json::Value>>(&output).expect("JSON").len() as u64
}

/// Waits until all nodes are connected and idle. Returns whether no change is pending.
fn settle(cluster: &Cluster) -> Result<bool, String> {
    let mut since: Option<(Instant, Vec<[u64; 3]>)> = None;
    let mut now = Vec::new();
    let settled = within(AGREEMENT_TIMEOUT, || {
        now = cluster.nodes.iter().map(Node::status).collect();
        let number = |status: &serde_json::Value, key: &str| status[key].as_u64().unwrap_or_default();
        let all = now.iter().map(|status| ["pending", "sent", "received"].map(|key| number(status, key)));
        let all: Vec<[u64; 3]> = all.collect();
        let ready =
            now.iter().all(|status| status["state"] == "online" && status["objects_unreachable"] == false);
        match &since {
            _ if !ready => since = None,
            Some((when, before)) if *before == all => return when.elapsed() > IDLE_TIME,
            _ => since = Some((Instant::now(), all)),
        }
        std::thread::sleep(Duration::from_millis(100));
        false
    });
    match settled {
        true => Ok(now.iter().all(|status| status["pending"] == 0)),
        false => Err(format!("they do not come to rest: {now:#?}")),
    }
}

/// Returns the number of changes sent and received by each node.
fn moved(cluster: &Cluster) -> Vec<[serde_json::Value; 2]> {
    cluster
        .nodes
        .iter()
        .map(|node| node.status())
        .map(|all| ["sent", "received"].map(|key| all[key].clone()))
        .collect()
}

fn trees(cluster: &Cluster) -> Result<Vec<Tree>, String> {
    let tree = |node: &Node| {
        Tree::of(cluster, node).map_err(|error| format!("{} cannot be read: {error}", node.name))
    };
    cluster.nodes.iter().map(tree).collect()
}

fn nothing_lost(cluster: &Cluster, trees: &[Tree]) -> Result<BTreeSet<u64>, String> {
    let seen: BTreeSet<u64> = trees.iter().flat_map(|tree| tree.seen.iter().copied()).collect();
    let wrong: Vec<&String> = trees.iter().flat_map(|tree| &tree.wrong).collect();
    let (lost, _) = lock(&cluster.ledger).lost(&seen);
    match (wrong.is_empty(), lost.is_empty()) {
        (true, true) => Ok(seen),
        (true, false) => Err(format!("contents {lost:?} were synced and are lost")),
        _ => Err(format!("{wrong:?}")),
    }
}

/// Keeps both sides of each conflict, until there is none and no change is pending.
fn resolve(cluster: &Cluster) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let mut there = false;
        for node in &cluster.nodes {
            let count = conflicts(node);
            if count > 0 {
                there = true;
                cluster.log(format_args!("{}: keeps both of {count}", node.name));
                cluster.counts.conflicts.add(count);
                // Resolving one conflict may end another.
                run(binary::command(&["volume", "resolve", "--keep", "both", "--all"]).arg(node.at()));
            }
        }
        if settle(cluster)? && !there {
            return Ok(());
        }
        if begun.elapsed() > pace::limit(AGREEMENT_TIMEOUT) {
            let states: Vec<_> = cluster.nodes.iter().map(Node::status).collect();
            return Err(format!("conflicts or changes do not end: {states:#?}"));
        }
    }
}

/// Checks the kernel's cached view against the tree after the caches were dropped.
fn believed(cluster: &Cluster, believed: &[Tree]) -> Result<(), String> {
    fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| format!("caches stay: {error}"))?;
    for ((node, before), now) in cluster.nodes.iter().zip(believed).zip(trees(cluster)?) {
        if let Some(what) = before.differs(&now) {
            return Err(format!("the kernel believed of {} what is not so: {what}", node.name));
        }
    }
    Ok(())
}

pub fn judge(cluster: &Cluster, read: bool) -> Result<(), String> {
    cluster.log(format_args!("all is well, and is judged"));
    let begun = Instant::now();
    let all = loop {
        settle(cluster)?;
        let moved = moved(cluster);
        match trees(cluster).and_then(|all| believed(cluster, &all).map(|()| all)) {
            // A change between the two reads was not cached; a listed name may have been removed in between.
            Err(_) if moved != self::moved(cluster) && begun.elapsed() < pace::limit(AGREEMENT_TIMEOUT) => {}
            done => break done?,
        }
    };
    nothing_lost(cluster, &all)?;
    resolve(cluster)?;
    let begun = Instant::now();
    let all = loop {
        let agree = trees(cluster).and_then(|all| {
            let differs = all[1..].iter().find_map(|tree| all[0].differs(tree));
            differs.map_or(Ok(all), Err)
        });
        match agree {
            Ok(all) => break all,
            Err(what) if begun.elapsed() > pace::limit(Duration::from_secs(20)) => {
                return Err(format!("they do not agree: {what}"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    };
    let seen = nothing_lost(cluster, &all)?;
    let mut ledger = lock(&cluster.ledger);
    cluster.counts.doubted.add(ledger.lost(&seen).1 as u64);
    ledger.settle(&seen);
    drop(ledger);
    let mut words = vec!["check", "--json"];
    words.extend(read.then_some("--read"));
    let output = run_for(120, cluster.on_host(&words).arg("team"));
    let checked: serde_json::Value =
        serde_json::from_str(&output.out).map_err(|error| format!("check: {error}: {output:?}"))?;
    if checked["problem_count"] != 0 {
        return Err(format!("the volume is not sound: {checked:#}"));
    }
    Ok(())
}
