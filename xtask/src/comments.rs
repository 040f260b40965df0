//! Comments and identifiers that the project's style forbids (`CONTRIBUTING.md`).
//!
//! A comment paragraph names its subject: it does not open with a headless relative clause ("What was read ..."), nor with a
//! reference to a neighbour ("The same, for files"). Identifiers are the field's terms: names that could stand for anything
//! are listed here, and not used.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use syn::Ident;
use syn::visit::Visit;

/// The first words of a comment that names no subject.
const HEADLESS: [&str; 12] = [
    "What",
    "Who",
    "Where",
    "Whether",
    "Whose",
    "Whom",
    "The same",
    "As for",
    "As above",
    "Those of",
    "That of",
    "The other",
];

/// Names of types and constants without a meaning.
const VAGUE: [&str; 12] =
    ["Held", "Known", "Kept", "Place", "Told", "Seen", "Keeper", "What", "MOST", "LONGEST", "MOMENT", "FEW"];

/// Prints every violation in the Rust sources that git knows. True if there is none.
///
/// # Errors
/// When the sources cannot be listed, read or parsed.
pub fn check(root: &Path) -> Result<bool> {
    let mut found = 0;
    for file in sources(root)? {
        let path = root.join(&file);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let mut report = |line: usize, what: &str| {
            println!("{}:{line}: {what}", file.display());
            found += 1;
        };
        headless(&text, &mut report);
        let parsed = syn::parse_file(&text).with_context(|| format!("parsing {}", path.display()))?;
        Names(&mut report).visit_file(&parsed);
    }
    Ok(found == 0)
}

fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "*.rs"])
        .output()
        .context("running git")?;
    if !listed.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr).trim());
    }
    let names = String::from_utf8(listed.stdout).context("a file name is not UTF-8")?;
    let exists = |path: &PathBuf| root.join(path).exists();
    Ok(names.split_terminator('\0').map(PathBuf::from).filter(exists).collect())
}

/// Looks at the first line of each comment paragraph.
fn headless(text: &str, report: &mut impl FnMut(usize, &str)) {
    let mut before = None;
    for (index, line) in text.lines().enumerate() {
        let comment = comment(line);
        if let Some((kind, words)) = comment {
            let begins = before.is_none_or(|(last, text): (&str, &str)| last != kind || text.is_empty());
            let first = HEADLESS.iter().find(|first| {
                words
                    .strip_prefix(**first)
                    .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
            });
            if let Some(first) = first.filter(|_| begins && !words.ends_with('?')) {
                report(index + 1, &format!("the comment starts with {first:?}; name its subject"));
            }
        }
        before = comment;
    }
}

/// The kind of a comment line, and its text.
fn comment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let kind = ["///", "//!", "//"].into_iter().find(|kind| line.starts_with(kind))?;
    Some((kind, line[kind.len()..].trim()))
}

struct Names<'a, R>(&'a mut R);

impl<R: FnMut(usize, &str)> Names<'_, R> {
    fn look(&mut self, ident: &Ident) {
        let name = ident.to_string();
        if VAGUE.contains(&name.as_str()) || name.starts_with("MOST_") || name.starts_with("LONGEST_") {
            (self.0)(
                ident.span().start().line,
                &format!("the name {name} is too general; use the field's term"),
            );
        }
    }
}

impl<'ast, R: FnMut(usize, &str)> Visit<'ast> for Names<'_, R> {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.look(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.look(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.look(&item.ident);
        syn::visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.look(&item.ident);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.look(&item.ident);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.look(&item.ident);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.look(&item.ident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headless_openings_are_found_and_questions_are_not() {
        let text = "/// What was read.\nfn a() {}\n/// Reads.\n/// What follows is fine.\n///\n/// Who reads it.\nfn b() {}\n\
                    // Is it here? What else?\n/// Whatever is left.\n//! The same, for files.\n";
        let mut lines = Vec::new();
        headless(text, &mut |line, _| lines.push(line));
        assert_eq!(lines, [1, 6, 10]);
    }

    #[test]
    fn vague_names_are_found_wherever_they_are_defined() {
        let parsed = syn::parse_file(
            "struct Held; fn f() { const MOST_FILES: u32 = 1; } impl X { const FEW: u8 = 1; } struct Holder;",
        );
        let mut names = Vec::new();
        Names(&mut |_: usize, what: &str| names.push(what.split(' ').nth(2).unwrap_or_default().to_owned()))
            .visit_file(&parsed.unwrap());
        assert_eq!(names, ["Held", "MOST_FILES", "FEW"]);
    }
}
