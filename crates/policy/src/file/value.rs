//! TOML values with their position, and conversions that report errors there.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::PolicyError;
use crate::ids::IdRange;

/// A value and its key.
pub(crate) struct Value<'a> {
    text: &'a str,
    key: &'a str,
    value: &'a DeValue<'a>,
    span: Range<usize>,
}

impl<'a> Value<'a> {
    pub(crate) fn new(text: &'a str, key: &'a str, value: &'a Spanned<DeValue<'a>>) -> Self {
        Self { text, key, value: value.get_ref(), span: value.span() }
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> PolicyError {
        PolicyError::at(self.text, self.span.clone(), message)
    }

    fn type_error(&self, what: &str) -> PolicyError {
        self.error(format!("`{}` is {}, not {what}", self.key, kind(self.value)))
    }

    /// Returns the byte offset of the value in the file.
    pub(crate) fn start(&self) -> usize {
        self.span.start
    }

    pub(crate) fn table(&self) -> Result<&'a DeTable<'a>, PolicyError> {
        match self.value {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.type_error(&format!("a table; write [{}]", self.key))),
        }
    }

    /// Converts an array of tables.
    pub(crate) fn tables(&self) -> Result<Vec<(Value<'a>, &'a DeTable<'a>)>, PolicyError> {
        let DeValue::Array(array) = self.value else {
            return Err(self.type_error(&format!("a list of tables; write [[{}]]", self.key)));
        };
        let each = |item| {
            let value = Value::new(self.text, self.key, item);
            let table = value.table()?;
            Ok((value, table))
        };
        array.iter().map(each).collect()
    }

    /// Returns the values of a list, or a single value as a list of one.
    pub(crate) fn each(&self) -> Vec<Value<'a>> {
        match self.value {
            DeValue::Array(array) => array.iter().map(|item| Value::new(self.text, self.key, item)).collect(),
            value => vec![Value { text: self.text, key: self.key, value, span: self.span.clone() }],
        }
    }

    pub(crate) fn is_table(&self) -> bool {
        matches!(self.value, DeValue::Table(_))
    }

    pub(crate) fn string(&self) -> Result<&'a str, PolicyError> {
        match self.value {
            DeValue::String(text) => Ok(text),
            _ => Err(self.type_error("a string in quotes")),
        }
    }

    pub(crate) fn bool(&self) -> Result<bool, PolicyError> {
        match self.value {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.type_error("true or false")),
        }
    }

    pub(crate) fn number(&self, largest: u64) -> Result<u64, PolicyError> {
        let DeValue::Integer(integer) = self.value else { return Err(self.type_error("a number")) };
        let digits = integer.as_str().replace('_', "");
        match u64::from_str_radix(digits.trim_start_matches('+'), integer.radix()) {
            Ok(number) if number <= largest => Ok(number),
            _ => Err(self.error(format!("`{}` is out of range; use 0 to {largest}", self.key))),
        }
    }

    /// Parses users or groups: numbers, names, `"FROM-TO"`, or a list of these.
    pub(crate) fn ids(&self, names: &BTreeMap<String, u32>, what: &str) -> Result<Vec<IdRange>, PolicyError> {
        let each = self.each();
        if each.is_empty() {
            return Err(
                self.error(format!("`{}` is empty: the rule would match no caller; leave it out", self.key))
            );
        }
        each.iter().map(|value| value.id(names, what)).collect()
    }

    fn id(&self, names: &BTreeMap<String, u32>, what: &str) -> Result<IdRange, PolicyError> {
        // The largest number is not a valid id.
        const LAST: u32 = u32::MAX - 1;
        let DeValue::String(text) = self.value else {
            return match self.value {
                DeValue::Integer(_) => self.number(LAST.into()).map(|id| (id as u32, id as u32)),
                _ => Err(self.type_error("a number, a name, \"FROM-TO\", or a list of these")),
            };
        };
        if let Some(id) = names.get(text.as_ref()) {
            return Ok((*id, *id));
        }
        let range = text
            .split_once('-')
            .and_then(|(from, to)| Some((from.trim().parse().ok()?, to.trim().parse().ok()?)));
        match range {
            Some((from, to)) if from <= to && to <= LAST => Ok((from, to)),
            Some(_) => {
                Err(self
                    .error(format!("the range `{text}` is empty or too large; write the lower end first")))
            }
            None => Err(self.error(format!("unknown {what} `{text}`; check the name, or give the number"))),
        }
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a floating-point number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
