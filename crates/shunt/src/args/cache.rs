//! `--cache`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How long the kernel may believe what it was told about names and attributes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheArg {
    /// Only this mount changes the source: nothing expires.
    Exclusive,
    /// Others may change the source: they are seen after this long at the latest.
    Timeout(Duration),
    /// Ask every time.
    None,
}

impl Default for CacheArg {
    /// Safe when others change the source too, and the time that file systems on a network take by habit.
    fn default() -> Self {
        CacheArg::Timeout(Duration::from_secs(1))
    }
}

impl FromStr for CacheArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || {
            format!("`{text}` is not `exclusive`, `none` or `timeout=SECONDS` with up to 31536000 seconds")
        };
        match text {
            "exclusive" => Ok(CacheArg::Exclusive),
            "none" => Ok(CacheArg::None),
            _ => {
                let seconds: f64 =
                    text.strip_prefix("timeout=").and_then(|s| s.parse().ok()).ok_or_else(wanted)?;
                match seconds {
                    0.0 => Ok(CacheArg::None),
                    s if s > 0.0 && s <= 31_536_000.0 => Ok(CacheArg::Timeout(Duration::from_secs_f64(s))),
                    _ => Err(wanted()),
                }
            }
        }
    }
}

impl fmt::Display for CacheArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheArg::Exclusive => f.write_str("exclusive"),
            CacheArg::Timeout(time) => write!(f, "timeout={}", time.as_secs_f64()),
            CacheArg::None => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form() {
        assert_eq!("exclusive".parse(), Ok(CacheArg::Exclusive));
        assert_eq!("none".parse(), Ok(CacheArg::None));
        assert_eq!("timeout=0".parse(), Ok(CacheArg::None));
        assert_eq!("timeout=2.5".parse(), Ok(CacheArg::Timeout(Duration::from_millis(2500))));
        for wrong in [
            "",
            "timeout",
            "timeout=",
            "timeout=x",
            "timeout=-1",
            "timeout=nan",
            "timeout=inf",
            "timeout=1e300",
        ] {
            assert!(wrong.parse::<CacheArg>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_can_be_given() {
        for cache in [CacheArg::Exclusive, CacheArg::None, CacheArg::default()] {
            assert_eq!(cache.to_string().parse(), Ok(cache));
        }
    }
}
