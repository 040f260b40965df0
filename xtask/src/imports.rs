//! Which module of a crate names which other one: its `use` declarations, and the paths in its code.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Item, UseTree};

use crate::crate_tree::{Module, ModulePath};

type Scope = BTreeMap<ModulePath, BTreeMap<String, Vec<String>>>;

/// For each module of a crate, the modules it names, each with one of the paths that name it.
pub fn edges(modules: &BTreeMap<ModulePath, Module>) -> BTreeMap<ModulePath, BTreeMap<ModulePath, String>> {
    let scope: Scope = modules.iter().map(|(path, module)| (path.clone(), bindings(module))).collect();
    let known: BTreeSet<&ModulePath> = modules.keys().collect();
    let mut all = BTreeMap::new();
    for (path, module) in modules {
        let mut named = BTreeMap::new();
        for used in module.items.iter().flat_map(paths_of) {
            if let Some(target) = resolve(&used, path, &known, &scope, 0)
                && target != *path
            {
                named.entry(target).or_insert_with(|| used.join("::"));
            }
        }
        all.insert(path.clone(), named);
    }
    all
}

/// The names that a module's `use` declarations bring into it, each with the path it stands for.
fn bindings(module: &Module) -> BTreeMap<String, Vec<String>> {
    let mut bound = BTreeMap::new();
    for item in &module.items {
        if let Item::Use(item) = item {
            leaves(&item.tree, &mut Vec::new(), &mut |path, name| {
                bound.insert(name.to_owned(), path.to_vec());
            });
        }
    }
    bound
}

/// Every path that a `use` tree names, with the name that it has here. A glob has the name `*`.
fn leaves(tree: &UseTree, prefix: &mut Vec<String>, each: &mut impl FnMut(&[String], &str)) {
    let at = prefix.len();
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            leaves(&path.tree, prefix, each);
        }
        UseTree::Name(name) if name.ident == "self" => each(prefix, prefix.last().map_or("", String::as_str)),
        UseTree::Name(name) => {
            prefix.push(name.ident.to_string());
            each(prefix, &name.ident.to_string());
        }
        UseTree::Rename(rename) => {
            if rename.ident != "self" {
                prefix.push(rename.ident.to_string());
            }
            each(prefix, &rename.rename.to_string());
        }
        UseTree::Glob(_) => each(prefix, "*"),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, prefix, each)),
    }
    prefix.truncate(at);
}

/// The paths that an item names.
fn paths_of(item: &Item) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    match item {
        Item::Use(item) => leaves(&item.tree, &mut Vec::new(), &mut |path, _| paths.push(path.to_vec())),
        // An item is printed and read again as tokens: what macros are given is then seen like all other code.
        other => token_paths(other.to_token_stream(), &mut paths),
    }
    paths
}

/// Runs of identifiers joined by `::`, at any depth of brackets.
fn token_paths(tokens: TokenStream, paths: &mut Vec<Vec<String>>) {
    let mut run: Vec<String> = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                if colons != 2 {
                    flush(&mut run, paths);
                }
                run.push(ident.to_string());
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' && !run.is_empty() => colons += 1,
            TokenTree::Group(group) => {
                flush(&mut run, paths);
                colons = 0;
                token_paths(group.stream(), paths);
            }
            _ => {
                flush(&mut run, paths);
                colons = 0;
            }
        }
    }
    flush(&mut run, paths);
}

fn flush(run: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    if run.len() > 1 {
        paths.push(std::mem::take(run));
    }
    run.clear();
}

/// The deepest module that a path leads to, through the `use` declarations of the modules on its way.
fn resolve(
    path: &[String],
    from: &ModulePath,
    known: &BTreeSet<&ModulePath>,
    scope: &Scope,
    depth: u32,
) -> Option<ModulePath> {
    // Re-exports of re-exports end long before this; names that stand for themselves would not.
    if depth > 16 {
        return None;
    }
    let mut at = from.clone();
    for (index, segment) in path.iter().enumerate() {
        match segment.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop();
            }
            name => {
                let mut child = at.clone();
                child.push(name.to_owned());
                if known.contains(&child) {
                    at = child;
                    continue;
                }
                let binding = scope.get(&at).and_then(|names| names.get(name));
                if let Some(binding) = binding.filter(|binding| index > 0 || binding.as_slice() != path) {
                    let whole: Vec<String> =
                        binding.iter().cloned().chain(path[index + 1..].iter().cloned()).collect();
                    return resolve(&whole, &at, known, scope, depth + 1).or((index > 0).then_some(at));
                }
                return (index > 0).then_some(at);
            }
        }
    }
    Some(at)
}
