//! The result of a check.

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// An optional feature is not available or not in use.
    Note,
    /// Something is slower or more limited than it should be, or will fail under load.
    Warning,
    /// A file system cannot be mounted, or a mount does not work.
    Error,
}

/// A file system of Shunt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Product {
    /// `shunt mirror`.
    Mirror,
    /// `shunt ext4`.
    Ext4,
    /// `shunt volume`.
    Volume,
}

impl Product {
    /// The word of the command line.
    pub fn name(self) -> &'static str {
        match self {
            Product::Mirror => "mirror",
            Product::Ext4 => "ext4",
            Product::Volume => "volume",
        }
    }
}

/// All file systems.
pub const ALL: &[Product] = &[Product::Mirror, Product::Ext4, Product::Volume];

/// One finding. As JSON it is a contract: fields may be added, never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check, as `kernel.passthrough`. The part before the dot is the group.
    pub check: &'static str,
    /// The severity.
    pub level: Level,
    /// The observed state, in one line.
    pub message: String,
    /// The affected file systems; none if it is as it should be.
    pub products: Vec<Product>,
    /// The consequence for them.
    pub effect: Option<String>,
    /// The command that fixes it, or what else to do.
    pub fix: Option<String>,
}

impl Finding {
    /// A state that is as it should be.
    pub fn ok(check: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Finding { check, level: Level::Ok, message, products: Vec::new(), effect: None, fix: None }
    }

    /// A state that affects `products` by `effect`.
    pub fn new(
        level: Level,
        check: &'static str,
        message: impl Into<String>,
        products: &[Product],
        effect: impl Into<String>,
    ) -> Self {
        let products = products.to_vec();
        Finding { level, products, effect: Some(effect.into()), ..Finding::ok(check, message) }
    }

    /// Adds the remedy.
    pub fn fix(self, command: impl Into<String>) -> Self {
        Finding { fix: Some(command.into()), ..self }
    }
}
