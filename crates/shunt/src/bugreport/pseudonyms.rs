//! Numbered replacements of names. A name has the same replacement in the whole report, so that a reader can follow it; the numbers
//! say nothing about the names.

use std::collections::HashMap;

/// The replacements given so far.
#[derive(Debug, Default)]
pub struct Pseudonyms {
    given: HashMap<String, usize>,
}

impl Pseudonyms {
    /// The replacement of a name.
    pub fn of(&mut self, name: &str) -> String {
        let next = self.given.len() + 1;
        let number = *self.given.entry(name.to_owned()).or_insert(next);
        format!("name-{number}")
    }
}
