//! Renamed fields of JSON reports. A report is written with both names and equal values, for scripts and older versions that read
//! the former name. A report from an older version has the former name only: reading it sets the current one.

/// A report with renamed fields. It derives serde's traits with `remote = "Self"`; [`serde_with_former_names`] adds the former names.
pub trait Renamed {
    /// Copies each renamed field to the other name if that is unset.
    fn set_both_names(&mut self);
}

/// Gives a field equal values under its two names.
pub fn set_both<T: Clone + Default + PartialEq>(current: &mut T, former: &mut T) {
    if *current == T::default() { current.clone_from(former) } else { former.clone_from(current) }
}

/// Gives a field equal values under its two names, where some values were renamed too: `(current, former)`.
pub fn set_both_words(current: &mut String, former: &mut String, words: &[(&str, &str)]) {
    if current.is_empty() {
        let word = words.iter().find(|word| word.1 == former.as_str());
        word.map_or(former.as_str(), |word| word.0).clone_into(current);
    } else {
        let word = words.iter().find(|word| word.0 == current.as_str());
        word.map_or(current.as_str(), |word| word.1).clone_into(former);
    }
}

/// Implements serde's traits for a [`Renamed`] report.
macro_rules! serde_with_former_names {
    ($($report:ident),+) => {$(
        impl serde::Serialize for $report {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut report = self.clone();
                $crate::report::renamed::Renamed::set_both_names(&mut report);
                // The function derived with `remote = "Self"`.
                Self::serialize(&report, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $report {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let mut report = Self::deserialize(deserializer)?;
                $crate::report::renamed::Renamed::set_both_names(&mut report);
                Ok(report)
            }
        }
    )+};
}
pub(crate) use serde_with_former_names;
