//! Path patterns.
//!
//! `/a/*/b` names a path from the root of the mirrored directory. A pattern without a slash, such as `*.jpg`, matches
//! that name at any depth. `**` between slashes matches any number of directories, including none; at the end it
//! matches the directory and everything below it.

use crate::glob::Glob;
use crate::ids::{Table, Variable};

/// A segment of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    /// `**`
    Depth,
    /// A glob for one name.
    Name(Glob),
    /// A variable such as `{uid}`.
    Variable(Variable),
}

/// A compiled path pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) segments: Vec<Segment>,
}

/// Limit on the segments of a pattern: each costs time at every lookup.
const MAX_COMPONENTS: usize = 64;

impl Pattern {
    /// Parses a pattern; the error describes what is wrong with it.
    pub(crate) fn parse(text: &str, ignore_case: bool, tables: &[Table]) -> Result<Self, String> {
        let mut segments = Vec::new();
        let rest = match text.strip_prefix('/') {
            Some(rest) => rest,
            None if text.contains('/') => {
                return Err(format!("the path does not start with a slash; write \"/{text}\""));
            }
            None if text.is_empty() => return Err("the path is empty; write \"/**\" for everything".into()),
            None => {
                segments.push(Segment::Depth);
                text
            }
        };
        for part in rest.split('/') {
            segments.push(match part {
                "" if rest.is_empty() => break,
                "" => return Err("empty path component; remove the double or trailing slash".into()),
                "." | ".." => {
                    return Err(format!("`{part}` is not allowed in a pattern; write the path without it"));
                }
                "**" if segments.last() == Some(&Segment::Depth) => continue,
                "**" => Segment::Depth,
                part => match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
                    Some(name) => Segment::Variable(variable(name, tables)?),
                    None => Segment::Name(Glob::parse(part, ignore_case)?),
                },
            });
        }
        if segments.len() > MAX_COMPONENTS {
            return Err(format!(
                "the path has {} components, more than {MAX_COMPONENTS}; shorten it",
                segments.len()
            ));
        }
        if segments.iter().filter(|segment| matches!(segment, Segment::Variable(_))).count() > 1 {
            return Err("more than one variable in the path; use at most one".into());
        }
        Ok(Self { segments })
    }

    /// Returns the literal names at its beginning.
    pub(crate) fn fixed(&self) -> Vec<String> {
        let literal = |segment: &Segment| match segment {
            Segment::Name(glob) => glob.literal(),
            _ => None,
        };
        self.segments.iter().map_while(literal).collect()
    }

    /// Returns the names of the directory, if the pattern matches exactly one directory tree.
    pub(crate) fn tree(&self) -> Option<Vec<String>> {
        let names = self.fixed();
        let whole = self.segments.len() == names.len() + 1 && self.segments.last() == Some(&Segment::Depth);
        (whole && !names.is_empty()).then_some(names)
    }
}

fn variable(name: &str, tables: &[Table]) -> Result<Variable, String> {
    match name {
        "uid" => Ok(Variable::Uid),
        "gid" => Ok(Variable::Gid),
        name => match tables.iter().position(|table| table.name == name) {
            Some(index) => Ok(Variable::Table(index as u16)),
            None => Err(format!(
                "unknown variable {{{name}}}; use {{uid}}, {{gid}}, {{user}} or a table of the file: add [ids.{name}]"
            )),
        },
    }
}
