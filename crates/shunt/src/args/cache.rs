//! The option `--cache`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How long the kernel may cache names and attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum CacheArg {
    /// `coherent` where the kernel reports the changes of a whole file system, else `timeout=1`.
    #[default]
    Auto,
    /// Others may change the source: the kernel reports their changes, which become visible within 100 ms.
    Coherent,
    /// Only this mount changes the source: cached names and attributes never expire.
    Exclusive,
    /// Others may change the source: their changes become visible after this time at the latest.
    Timeout(Duration),
    /// The kernel caches nothing and asks every time.
    None,
}

impl FromStr for CacheArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid_value = || {
            format!(
                "`{text}` is not `auto`, `coherent`, `exclusive`, `none` or `timeout=SECONDS` with up to 31536000 \
                 seconds"
            )
        };
        match text {
            "auto" => Ok(CacheArg::Auto),
            "coherent" => Ok(CacheArg::Coherent),
            "exclusive" => Ok(CacheArg::Exclusive),
            "none" => Ok(CacheArg::None),
            _ => {
                let seconds: f64 =
                    text.strip_prefix("timeout=").and_then(|s| s.parse().ok()).ok_or_else(invalid_value)?;
                match seconds {
                    0.0 => Ok(CacheArg::None),
                    s if s > 0.0 && s <= 31_536_000.0 => Ok(CacheArg::Timeout(Duration::from_secs_f64(s))),
                    _ => Err(invalid_value()),
                }
            }
        }
    }
}

impl fmt::Display for CacheArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheArg::Auto => f.write_str("auto"),
            CacheArg::Coherent => f.write_str("coherent"),
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
    fn displayed_value_parses_again() {
        let time = CacheArg::Timeout(Duration::from_millis(1500));
        for cache in [CacheArg::Coherent, CacheArg::Exclusive, CacheArg::None, time, CacheArg::default()] {
            assert_eq!(cache.to_string().parse(), Ok(cache));
        }
    }
}
