//! Parser for a single rule.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use toml::de::DeTable;

use super::Context;
use super::value::Value;
use crate::content::{Media, Probe};
use crate::error::{PolicyError, position};
use crate::pattern::{Pattern, Segment};
use crate::rule::{Action, CallerSet, Denial, Op, Ops, Redaction, Rule};

const ACTIONS: &str = "allow, hide, deny, read-only, redact, audit, graft";
const KEYS: &str = "name, path, ignore-case, op, uid, gid, group, exe, except, content, action, audit; with \
                    `deny` error, with `redact` parts and bytes";

/// Limits on the offset and the length of a content probe.
const MAX_PROBE_BYTES: u64 = 1 << 20;
const MAX_NAME_BYTES: usize = 256;

/// The keys of a rule that were not consumed yet.
struct Keys<'a> {
    text: &'a str,
    values: BTreeMap<&'a str, Value<'a>>,
}

impl<'a> Keys<'a> {
    fn new(text: &'a str, table: &'a DeTable<'a>) -> Self {
        let value = |(key, value): (&'a toml::Spanned<std::borrow::Cow<'a, str>>, _)| {
            let key = key.get_ref().as_ref();
            (key, Value::new(text, key, value))
        };
        Self { text, values: table.iter().map(value).collect() }
    }

    fn take(&mut self, key: &str) -> Option<Value<'a>> {
        self.values.remove(key)
    }

    fn flag(&mut self, key: &str) -> Result<bool, PolicyError> {
        self.take(key).map_or(Ok(false), |value| value.bool())
    }

    /// Checks that all keys were consumed.
    fn end(self, table: &DeTable<'_>, known: &str) -> Result<(), PolicyError> {
        let Some(key) = self.values.keys().next() else { return Ok(()) };
        let span = table.iter().find(|(name, _)| name.get_ref() == key).map(|(name, _)| name.span());
        Err(PolicyError::at(
            self.text,
            span.unwrap_or_default(),
            format!("unknown key `{key}`; the keys are {known}"),
        ))
    }
}

pub(crate) fn read<'a>(
    context: &Context<'a>,
    index: usize,
    value: &Value<'a>,
    table: &'a DeTable<'a>,
) -> Result<Rule, PolicyError> {
    let mut keys = Keys::new(context.text, table);
    let name = match keys.take("name") {
        Some(name) => name.string()?.to_owned(),
        None => format!("rule {}", index + 1),
    };
    let ignore_case = keys.flag("ignore-case")?;
    let path = keys.take("path").ok_or_else(|| {
        value.error(
            "the rule has no `path`; add one, for example path = \"/photos/**\", or \"/**\" for everything",
        )
    })?;
    let pattern = |value: &Value<'_>| {
        let text = value.string()?;
        Pattern::parse(text, ignore_case, &context.tables)
            .map_err(|wrong| value.error(format!("\"{text}\": {wrong}")))
    };
    let mut patterns = path.each().iter().map(pattern).collect::<Result<Vec<_>, _>>()?;
    if patterns.is_empty() {
        return Err(path.error("`path` is empty: the rule would never match"));
    }
    let ops = keys.take("op").map(|value| ops(&value)).transpose()?;
    let who = who(context, &mut keys)?;
    let except = match keys.take("except") {
        None => CallerSet::default(),
        Some(value) => {
            let table = value.table()?;
            let mut keys = Keys::new(context.text, table);
            let except = self::who(context, &mut keys)?;
            keys.end(table, "uid, gid, group and exe")?;
            except
        }
    };
    let content = keys.take("content").map_or(Ok(Vec::new()), |value| content(context.text, &value))?;
    let word = keys
        .take("action")
        .ok_or_else(|| value.error(format!("the rule has no `action`; add one of {ACTIONS}")))?;
    let mut action = action(&mut keys, &word)?;
    if let Action::Redact(redaction) = &mut action {
        Arc::make_mut(redaction).content.clone_from(&content);
    }
    let audit = keys.flag("audit")? || action == Action::Audit;
    keys.end(table, KEYS)?;
    if ops.is_some() && matches!(action, Action::Hide | Action::Redact(_)) {
        return Err(word.error(format!("`{}` applies to all operations; leave out `op`", action.name())));
    }
    if action == Action::Graft {
        let asks = [("op", ops.is_some()), ("content", !content.is_empty()), ("audit", audit)];
        let asks = asks.into_iter().find_map(|(key, is)| is.then_some(key));
        if let Some(key) =
            asks.or((who != CallerSet::default() || except != CallerSet::default()).then_some("a caller"))
        {
            return Err(word.error(format!(
                "a graft bypasses the policy, so it cannot depend on {key}; leave that out, or use `allow`"
            )));
        }
        for pattern in &mut patterns {
            if pattern.segments.last() != Some(&Segment::Depth) {
                pattern.segments.push(Segment::Depth);
            }
            if pattern.tree().is_none() {
                return Err(path.error(
                    "a graft is one directory; its path consists of plain names below the root, such as \"/data/cache\"",
                ));
            }
        }
    }
    let (line, _) = position(context.text, value.start());
    Ok(Rule { name, line, action, audit, patterns, ops, who, except, content })
}

fn ops(value: &Value<'_>) -> Result<Ops, PolicyError> {
    let mut ops = Ops::default();
    for value in value.each() {
        let name = value.string()?;
        let known = Op::KEYWORDS.iter().find(|(known, _)| *known == name);
        let (_, op) = known.ok_or_else(|| {
            let all = Op::KEYWORDS.map(|(name, _)| name).join(", ");
            value.error(format!("unknown operation `{name}`; use one of {all}"))
        })?;
        ops.add(*op);
    }
    if ops == Ops::default() {
        return Err(value.error("`op` is empty: the rule would never match; leave it out for all operations"));
    }
    Ok(ops)
}

fn who(context: &Context<'_>, keys: &mut Keys<'_>) -> Result<CallerSet, PolicyError> {
    let (users, groups) = (&context.names.users, &context.names.groups);
    let mut ids =
        |key, names, what| keys.take(key).map_or(Ok(Vec::new()), |value: Value<'_>| value.ids(names, what));
    let (uids, gids) = (ids("uid", users, "user")?, ids("gid", groups, "group")?);
    let groups = ids("group", groups, "group")?;
    let program = |value: &Value<'_>| {
        let path = value.string()?;
        if !path.starts_with('/') {
            return Err(
                value.error(format!("`{path}` is not the absolute path of a program; start it with a slash"))
            );
        }
        Ok(PathBuf::from(path))
    };
    let programs = match keys.take("exe") {
        None => Vec::new(),
        Some(value) if value.each().is_empty() => {
            return Err(value.error("`exe` is empty: the rule would match no caller; leave it out"));
        }
        Some(value) => value.each().iter().map(program).collect::<Result<_, _>>()?,
    };
    Ok(CallerSet { uids, gids, groups, programs })
}

fn content<'a>(text: &'a str, value: &Value<'a>) -> Result<Vec<Probe>, PolicyError> {
    let probe = |value: &Value<'a>| {
        if !value.is_table() {
            let name = value.string()?;
            return Media::named(name).map(Probe::Is).ok_or_else(|| {
                let message = format!(
                    "unknown type `{name}`; use one of {}, or {{ offset = 0, bytes = \"ff d8 ff\" }}",
                    Media::names()
                );
                value.error(message)
            });
        }
        let table = value.table()?;
        let mut keys = Keys::new(text, table);
        let offset = keys.take("offset").map_or(Ok(0), |value| value.number(MAX_PROBE_BYTES))?;
        let bytes = keys.take("bytes").ok_or_else(|| value.error("`content` has no `bytes`"))?;
        keys.end(table, "offset and bytes")?;
        Ok(Probe::Has { offset, bytes: hex(&bytes)? })
    };
    let probes = value.each().iter().map(probe).collect::<Result<Vec<_>, _>>()?;
    if probes.is_empty() {
        return Err(value.error("`content` is empty: the rule would never match; leave it out"));
    }
    Ok(probes)
}

fn hex(value: &Value<'_>) -> Result<Vec<u8>, PolicyError> {
    let digits: Vec<char> = value.string()?.chars().filter(|character| !character.is_whitespace()).collect();
    let byte = |pair: &[char]| {
        let (high, low) = (pair.first()?.to_digit(16)?, pair.get(1)?.to_digit(16)?);
        Some((high << 4 | low) as u8)
    };
    match digits.chunks(2).map(byte).collect::<Option<Vec<_>>>() {
        Some(bytes) if (1..=MAX_NAME_BYTES).contains(&bytes.len()) => Ok(bytes),
        _ => Err(value.error(format!(
            "invalid `bytes`; give 1 to {MAX_NAME_BYTES} pairs of hexadecimal digits, such as \"ff d8\""
        ))),
    }
}

fn action(keys: &mut Keys<'_>, word: &Value<'_>) -> Result<Action, PolicyError> {
    Ok(match word.string()? {
        "allow" => Action::Allow,
        "hide" => Action::Hide,
        "deny" => Action::Deny(match keys.take("error") {
            None => Denial::Access,
            Some(error) => match error.string()? {
                "EACCES" => Denial::Access,
                "EPERM" => Denial::NotPermitted,
                other => return Err(error.error(format!("unknown error `{other}`; use EACCES or EPERM"))),
            },
        }),
        "read-only" => Action::ReadOnly,
        "redact" => Action::Redact(Arc::new(redaction(keys)?)),
        "audit" => Action::Audit,
        "graft" => Action::Graft,
        other => return Err(word.error(format!("unknown action `{other}`; use one of {ACTIONS}"))),
    })
}

fn redaction(keys: &mut Keys<'_>) -> Result<Redaction, PolicyError> {
    let mut redaction = Redaction::default();
    if let Some(value) = keys.take("bytes") {
        // A single pair, or a list of pairs.
        let items = value.each();
        let lists = items.first().is_some_and(|first| first.each().len() == 2);
        for pair in if lists { items } else { vec![value] } {
            let ends = pair.each();
            let [start, end] = &ends[..] else {
                return Err(pair.error("invalid `bytes`; give pairs [FIRST, END], the end not included"));
            };
            let (start, end) = (start.number(i64::MAX as u64)?, end.number(i64::MAX as u64)?);
            if start >= end {
                return Err(
                    pair.error("this range of `bytes` is empty; give [FIRST, END], the end not included")
                );
            }
            redaction.bytes.push(start..end);
        }
    }
    match keys.take("parts") {
        None => redaction.location = redaction.bytes.is_empty(),
        Some(parts) => {
            for part in parts.each() {
                match part.string()? {
                    "location" => redaction.location = true,
                    other => return Err(part.error(format!("unknown part `{other}`; use location"))),
                }
            }
        }
    }
    Ok(redaction)
}
