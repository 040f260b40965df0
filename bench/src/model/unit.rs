//! Units of measured values.

use serde::Serialize;

/// The unit of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Wall-clock seconds; less is better.
    Seconds,
    /// Mebibytes per second; more is better.
    MebibytesPerSecond,
    /// Files per second; more is better.
    PerSecond,
    /// Requests per million writes; less is better.
    PerMillion,
    /// Bytes of daemon memory per inode; less is better.
    BytesPerInode,
    /// Mebibytes of memory; less is better.
    Mebibytes,
    /// A plain count; less is better.
    Count,
}

impl Unit {
    /// The unit's symbol in tables.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::MebibytesPerSecond => "MiB/s",
            Self::PerSecond => "per second",
            Self::Mebibytes => "MiB",
            Self::PerMillion => "per million",
            Self::BytesPerInode => "bytes/inode",
            Self::Count => "",
        }
    }

    /// Formats a value with its significant digits.
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Seconds => format!("{value:.3}"),
            Self::MebibytesPerSecond | Self::BytesPerInode | Self::Mebibytes if value < 100.0 => {
                format!("{value:.1}")
            }
            _ => format!("{value:.0}"),
        }
    }
}
