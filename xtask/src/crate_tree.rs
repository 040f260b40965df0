//! The modules of one crate, parsed: a tree of syntax trees, without what is compiled for tests only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::{Attribute, Item};

/// The path of a module below the crate's root: empty for the root itself.
pub type ModulePath = Vec<String>;

pub struct Module {
    pub items: Vec<Item>,
}

/// All modules of the crate whose root file is `root`.
///
/// # Errors
///
/// When a file of the crate cannot be read or parsed.
pub fn parse(root: &Path) -> Result<BTreeMap<ModulePath, Module>> {
    let mut modules = BTreeMap::new();
    let directory = root.parent().context("the crate's root file has no parent directory")?;
    file(root, directory, Vec::new(), &mut modules)?;
    Ok(modules)
}

fn file(
    path: &Path,
    below: &Path,
    module: ModulePath,
    modules: &mut BTreeMap<ModulePath, Module>,
) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let parsed = syn::parse_file(&text).with_context(|| format!("parsing {}", path.display()))?;
    items(parsed.items, path, below, module, modules)
}

/// Collects the items of one module, and recurses into its children, whose files are below the directory `below`.
fn items(
    items_of: Vec<Item>,
    path: &Path,
    below: &Path,
    module: ModulePath,
    modules: &mut BTreeMap<ModulePath, Module>,
) -> Result<()> {
    let mut own = Vec::new();
    for item in items_of {
        if attributes(&item).iter().any(is_test_only) {
            continue;
        }
        let Item::Mod(child) = item else {
            own.push(item);
            continue;
        };
        let name = child.ident.to_string();
        let child_path: ModulePath = module.iter().cloned().chain([name.clone()]).collect();
        match child.content {
            Some((_, inner)) => items(inner, path, &below.join(&name), child_path, modules)?,
            None => {
                let (file_path, directory) = location(path, below, &name, &child.attrs);
                file(&file_path, &directory, child_path, modules)?;
            }
        }
    }
    modules.insert(module, Module { items: own });
    Ok(())
}

/// The file of a child module, and the directory in which the children of that one lie.
fn location(parent: &Path, below: &Path, name: &str, attrs: &[Attribute]) -> (PathBuf, PathBuf) {
    if let Some(given) = attrs.iter().find_map(path_attribute) {
        let file = parent.parent().unwrap_or(below).join(given);
        let directory = file.parent().unwrap_or(below).to_path_buf();
        return (file, directory);
    }
    let directory = below.join(name);
    let nested = directory.join("mod.rs");
    (if nested.exists() { nested } else { below.join(format!("{name}.rs")) }, directory)
}

/// The file named by `#[path = "..."]`.
fn path_attribute(attr: &Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attr.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else { return None };
    pair.path.is_ident("path").then(|| text.value())
}

/// Is this `#[cfg(test)]`, or `#[cfg(all(test, ...))]`?
fn is_test_only(attr: &Attribute) -> bool {
    let syn::Meta::List(list) = &attr.meta else { return false };
    let condition = list.tokens.to_string();
    list.path.is_ident("cfg")
        && (condition == "test" || condition.starts_with("all (test") || condition.starts_with("all(test"))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
