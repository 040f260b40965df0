//! Patterns of paths.
//!
//! `/a/*/b` names a path from the root of the mirrored directory. A pattern without a slash, `*.jpg`, speaks of that
//! name at any depth. `**` between slashes is any number of directories, none too; at the end it is the directory and
//! everything below it.

use crate::glob::Glob;
use crate::ids::{Table, Variable};

/// A step of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    /// `**`
    Depth,
    /// A name.
    Name(Glob),
    /// `{uid}` and the like.
    Variable(Variable),
}

/// A pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) segments: Vec<Segment>,
}

/// Steps that a pattern may have: more are no use, and each costs at every lookup.
const MAX_COMPONENTS: usize = 64;

impl Pattern {
    /// Reads a pattern; else says what is wrong with it.
    pub(crate) fn parse(text: &str, ignore_case: bool, tables: &[Table]) -> Result<Self, String> {
        let mut segments = Vec::new();
        let rest = match text.strip_prefix('/') {
            Some(rest) => rest,
            None if text.contains('/') => {
                return Err(format!("the path does not begin with a slash; write \"/{text}\""));
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
                "" => return Err("two slashes, or one at the end; a name is missing between them".into()),
                "." | ".." => {
                    return Err(format!("`{part}` cannot be in a pattern; write the path without it"));
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
            return Err(format!("the path has {} steps; at most {MAX_COMPONENTS} work", segments.len()));
        }
        if segments.iter().filter(|segment| matches!(segment, Segment::Variable(_))).count() > 1 {
            return Err("a path has at most one variable".into());
        }
        Ok(Self { segments })
    }

    /// The names it begins with, up to where it may mean several.
    pub(crate) fn fixed(&self) -> Vec<String> {
        let literal = |segment: &Segment| match segment {
            Segment::Name(glob) => glob.literal(),
            _ => None,
        };
        self.segments.iter().map_while(literal).collect()
    }

    /// The names of the one directory whose whole tree it speaks of.
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
                "there is no variable {{{name}}}; there are {{uid}}, {{gid}}, {{user}}, and the tables of the file: \
                 add [ids.{name}]"
            )),
        },
    }
}
