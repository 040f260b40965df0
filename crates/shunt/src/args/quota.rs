//! The quota options of a volume.

use std::str::FromStr;

use clap::Args;

use super::size::Size;

/// A limit, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionalLimit<T>(pub Option<T>);

impl<T: FromStr<Err: std::fmt::Display>> FromStr for OptionalLimit<T> {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "none" => Ok(Self(None)),
            word => {
                word.parse().map(Some).map(Self).map_err(|error| format!("{error}; use `none` for no limit"))
            }
        }
    }
}

/// The user that a limit applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSubject {
    /// Each user without a limit of their own.
    Each,
    /// This user.
    User(u32),
}

/// A limit for a user; `None`: the user has no limit of their own and falls back to that of `each`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserLimit<T> {
    pub subject: LimitSubject,
    pub limit: Option<OptionalLimit<T>>,
}

impl<T: FromStr<Err: std::fmt::Display>> FromStr for UserLimit<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (whose, limit) = text.split_once(':').ok_or("expected UID:LIMIT")?;
        let whose = match whose {
            "each" => LimitSubject::Each,
            user => LimitSubject::User(
                user.parse().map_err(|_| format!("`{user}` is neither a numeric user id nor `each`"))?,
            ),
        };
        match limit {
            "each" if whose != LimitSubject::Each => Ok(Self { subject: whose, limit: None }),
            limit => Ok(Self { subject: whose, limit: Some(limit.parse()?) }),
        }
    }
}

#[derive(Args, Clone, Debug, Default)]
pub struct QuotaArgs {
    /// Limit of the total size of the files of the volume: 500M, 20G, or `none`. A write above it fails with EDQUOT
    #[arg(long, value_name = "SIZE")]
    pub quota: Option<OptionalLimit<Size>>,

    /// Limit of the number of files, directories and other objects of the volume, or `none`
    #[arg(long, value_name = "COUNT")]
    pub quota_objects: Option<OptionalLimit<u64>>,

    /// Limit as --quota for the files of a user, by the user's id in the volume: 1000:5G, 1000:none; `each:2G` for all users but 0
    /// that have no limit of their own, and 1000:each to return to that limit. May be repeated
    #[arg(long, value_name = "UID:SIZE")]
    pub user_quota: Vec<UserLimit<Size>>,

    /// Limit as --quota-objects for a user. May be repeated
    #[arg(long, value_name = "UID:COUNT")]
    pub user_quota_objects: Vec<UserLimit<u64>>,
}

impl QuotaArgs {
    /// Reports whether no limit is given.
    pub fn is_empty(&self) -> bool {
        self.quota.is_none()
            && self.quota_objects.is_none()
            && self.user_quota.is_empty()
            && self.user_quota_objects.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_users_are_read() {
        let read = |text: &str| text.parse::<UserLimit<Size>>().ok();
        let user = |user, limit| Some(UserLimit { subject: LimitSubject::User(user), limit });
        assert_eq!(read("1000:1K"), user(1000, Some(OptionalLimit(Some(Size(1024))))));
        assert_eq!(read("0:none"), user(0, Some(OptionalLimit(None))));
        assert_eq!(read("7:each"), user(7, None));
        assert_eq!(
            read("each:none"),
            Some(UserLimit { subject: LimitSubject::Each, limit: Some(OptionalLimit(None)) })
        );
        for wrong in ["", "1G", "ada:1G", "-1:1G", "each:each", "1000:", "4294967296:1"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
