//! Parser for policy files in TOML. All checks happen here, once.

mod grafts;
mod rule;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::compiled::CompiledPolicy;
use crate::error::PolicyError;
use crate::ids::{Names, Table};
use value::Value;

/// Limit on the file size in bytes, far above that of any real policy.
const MAX_FILE_BYTES: usize = 8 << 20;

/// Limit on the number of rules.
const MAX_RULES: usize = 10_000;

/// Context for parsing a value.
pub(crate) struct Context<'a> {
    pub(crate) text: &'a str,
    pub(crate) names: &'a Names,
    pub(crate) tables: Vec<Table>,
}

pub(crate) fn read(text: &str, names: &Names) -> Result<Arc<CompiledPolicy>, PolicyError> {
    if text.len() > MAX_FILE_BYTES {
        return Err(PolicyError::at(
            text,
            0..0,
            format!("the file is larger than {MAX_FILE_BYTES} bytes; split it"),
        ));
    }
    let document = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        PolicyError::at(text, span, format!("invalid TOML: {}", error.message()))
    })?;
    let mut context = Context { text, names, tables: vec![users(names)] };
    let document = document.into_inner();
    let (mut rules, mut says_default) = (None, false);
    for (key, value) in &document {
        match key.get_ref().as_ref() {
            "rule" => rules = Some(value),
            "ids" => context.tables.extend(tables(&context, value)?),
            "default" => {
                let value = Value::new(text, "default", value);
                if value.string()? != "allow" {
                    return Err(value.error(
                        "`default` can only be \"allow\"; for another default add a last rule with path = \"/**\"",
                    ));
                }
                says_default = true;
            }
            other => {
                let message = format!("unknown key `{other}`; a policy has default, [[rule]] and [ids.NAME]");
                return Err(PolicyError::at(text, key.span(), message));
            }
        }
    }
    let Some(rules) = rules else {
        return Ok(Arc::new(CompiledPolicy {
            rules: Vec::new(),
            tables: context.tables,
            has_explicit_default: says_default,
        }));
    };
    let rules = Value::new(text, "rule", rules).tables()?;
    if rules.len() > MAX_RULES {
        return Err(rules[MAX_RULES].0.error(format!("more than {MAX_RULES} rules; combine some of them")));
    }
    let read = |(index, (value, table)): (usize, &(Value<'_>, &DeTable<'_>))| {
        rule::read(&context, index, value, table)
    };
    let rules = rules.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    let policy =
        Arc::new(CompiledPolicy { rules, tables: context.tables, has_explicit_default: says_default });
    grafts::check(&policy)?;
    Ok(policy)
}

fn users(names: &Names) -> Table {
    let entry = |(name, uid): (&String, &u32)| (name.clone().into_bytes(), vec![(*uid, *uid)]);
    Table { name: "user".to_owned(), entries: names.users.iter().map(entry).collect() }
}

fn tables(context: &Context<'_>, value: &Spanned<DeValue<'_>>) -> Result<Vec<Table>, PolicyError> {
    let mut tables = Vec::new();
    for (key, value) in Value::new(context.text, "ids", value).table()? {
        let name = key.get_ref().to_string();
        let error = |message: String| PolicyError::at(context.text, key.span(), message);
        if ["uid", "gid", "user"].contains(&name.as_str()) {
            return Err(error(format!("{{{name}}} is predefined; choose another name")));
        }
        if name.is_empty() || name.contains(['{', '}', '/']) {
            return Err(error(format!("`{name}` is not a valid variable name; use letters")));
        }
        let mut entries = BTreeMap::new();
        for (name, value) in Value::new(context.text, &name, value).table()? {
            let value = Value::new(context.text, name.get_ref(), value);
            entries.insert(name.get_ref().as_bytes().to_vec(), value.ids(&context.names.users, "user")?);
        }
        tables.push(Table { name, entries });
    }
    if tables.len() > 1000 {
        return Err(PolicyError::at(
            context.text,
            value.span(),
            "more than 1000 tables of ids; combine some of them",
        ));
    }
    Ok(tables)
}
