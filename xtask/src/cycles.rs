//! Modules that import each other.
//!
//! In each crate, and below it in each module, the children are the nodes of a graph; a child that names anything inside
//! another one has an edge to it. Strongly connected components of more than one node are cycles: none of those modules
//! can be read, tested or moved without all the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use crate::crate_tree::{self, ModulePath};
use crate::imports;

/// The root files of the crates that are looked at.
const CRATES: [(&str, &str); 17] = [
    ("fuse-abi", "crates/fuse-abi/src/lib.rs"),
    ("fuse", "crates/fuse/src/lib.rs"),
    ("fuse-mock", "crates/fuse-mock/src/lib.rs"),
    ("fuse-ext", "crates/fuse-ext/src/lib.rs"),
    ("ext4", "crates/ext4/src/lib.rs"),
    ("ext4fs", "crates/ext4fs/src/lib.rs"),
    ("extmap", "crates/extmap/src/lib.rs"),
    ("mirror", "crates/mirror/src/lib.rs"),
    ("policy", "crates/policy/src/lib.rs"),
    ("policyfs", "crates/policyfs/src/lib.rs"),
    ("sharded", "crates/sharded/src/lib.rs"),
    ("volume", "crates/volume/src/lib.rs"),
    ("volumefs", "crates/volumefs/src/lib.rs"),
    ("shunt", "crates/shunt/src/main.rs"),
    ("bench", "bench/src/main.rs"),
    ("test-support", "crates/test-support/src/lib.rs"),
    ("xtask", "xtask/src/main.rs"),
];

/// Cycles that stay, each with its reason: the module whose children they are, and the children.
const ACCEPTED: [(&str, &[&str], &str); 2] = [
    (
        "fuse::transport",
        &["message", "payload", "virtio"],
        "a guest's message keeps the descriptor chain that contains its data, and the virtio device creates such messages",
    ),
    (
        "fuse::transport::uring",
        &["entry", "queue"],
        "a queue owns its entries, and an entry commits itself through its queue",
    ),
];

type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// Prints the cycles of all crates, with `all` every edge, too. True if there is no cycle.
///
/// # Errors
///
/// When a crate cannot be read or parsed.
pub fn check(root: &Path, all: bool) -> Result<bool> {
    let mut passed = true;
    for (name, file) in CRATES {
        let modules = crate_tree::parse(&root.join(file))?;
        let named = imports::edges(&modules);
        let parents: BTreeSet<ModulePath> = modules
            .keys()
            .filter(|path| !path.is_empty())
            .map(|path| path[..path.len() - 1].to_vec())
            .collect();
        for parent in parents {
            let edges = among_children(&parent, &named);
            let module =
                std::iter::once(name).chain(parent.iter().map(String::as_str)).collect::<Vec<_>>().join("::");
            for cycle in components(&edges)
                .iter()
                .filter(|component| component.len() > 1 && !is_accepted(&module, component))
            {
                passed = false;
                println!(
                    "{module}: {} import each other",
                    cycle.iter().cloned().collect::<Vec<_>>().join(", ")
                );
                print_edges(&edges, |from, to| cycle.contains(from) && cycle.contains(to));
            }
            if all {
                println!("{module}:");
                print_edges(&edges, |_, _| true);
            }
        }
    }
    Ok(passed)
}

fn is_accepted(module: &str, cycle: &BTreeSet<String>) -> bool {
    ACCEPTED.iter().any(|(parent, children, _)| {
        *parent == module && children.iter().copied().eq(cycle.iter().map(String::as_str))
    })
}

fn print_edges(edges: &Edges, is_included: impl Fn(&String, &String) -> bool) {
    for (from, targets) in edges {
        for (to, example) in targets.iter().filter(|(to, _)| is_included(from, to)) {
            println!("    {from} -> {to}    {example}");
        }
    }
}

/// The edges between the children of one module: all that lies below a child counts as the child.
fn among_children(parent: &ModulePath, named: &BTreeMap<ModulePath, BTreeMap<ModulePath, String>>) -> Edges {
    let child_of = |path: &ModulePath| {
        (path.len() > parent.len() && path.starts_with(parent)).then(|| path[parent.len()].clone())
    };
    let mut edges = Edges::new();
    for (from, targets) in named {
        let Some(from_child) = child_of(from) else { continue };
        let out = edges.entry(from_child.clone()).or_default();
        for (to, example) in targets {
            if let Some(to_child) = child_of(to).filter(|to_child| *to_child != from_child) {
                out.entry(to_child).or_insert_with(|| format!("{} ({example})", from.join("::")));
            }
        }
    }
    edges
}

/// The strongly connected components of a graph, by two depth-first searches (Kosaraju).
fn components(edges: &Edges) -> Vec<BTreeSet<String>> {
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for node in edges.keys() {
        visit(node, &|node| edges[node].keys().cloned().collect(), &mut seen, &mut |node| order.push(node));
    }
    let reversed = |node: &String| {
        edges.iter().filter(|(_, to)| to.contains_key(node)).map(|(from, _)| from.clone()).collect()
    };
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for node in order.iter().rev() {
        let mut component = BTreeSet::new();
        visit(node, &reversed, &mut seen, &mut |node| {
            component.insert(node);
        });
        found.push(component);
    }
    found
}

/// Depth-first search from `node`; `each` is called in post-order.
fn visit(
    node: &String,
    next: &dyn Fn(&String) -> Vec<String>,
    seen: &mut BTreeSet<String>,
    each: &mut dyn FnMut(String),
) {
    if seen.insert(node.clone()) {
        for to in next(node) {
            visit(&to, next, seen, each);
        }
        each(node.clone());
    }
}
