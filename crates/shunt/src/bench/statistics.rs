//! Order statistics of repeated measurements.

use serde::Serialize;

/// The wanted coverage of an interval.
const CONFIDENCE: f64 = 0.95;

/// A median with a confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub median: f64,
    /// The ends of the interval.
    pub low: f64,
    pub high: f64,
    /// The probability that the interval contains the median of the distribution; less than 0.95 with fewer than six values.
    pub confidence: f64,
}

/// A quantile between 0 and 1 of sorted values, by linear interpolation; zero without values.
pub fn quantile(sorted: &[f64], at: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = at.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (place - low as f64)
}

/// Sorts values.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// The median of values, with the interval between the order statistics k and n + 1 - k for the largest k with the wanted
/// coverage, 1 - 2 P(X < k) for X binomial with n and 1/2. None without values.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let values = sorted(values);
    let n = values.len();
    if n == 0 {
        return None;
    }
    // P(X = 0), then P(X <= i).
    let mut probability = 0.5_f64.powi(i32::try_from(n).ok()?);
    let mut tail = probability;
    let mut k = 1;
    while k < n.div_ceil(2) {
        let next = probability * (n - k + 1) as f64 / k as f64;
        if 1.0 - 2.0 * (tail + next) < CONFIDENCE {
            break;
        }
        probability = next;
        tail += next;
        k += 1;
    }
    let confidence = (1.0 - 2.0 * tail).max(0.0);
    Some(Estimate { median: quantile(&values, 0.5), low: values[k - 1], high: values[n - k], confidence })
}

/// The interquartile range as a share of the median: the noise between rounds.
pub fn spread(values: &[f64]) -> f64 {
    let values = sorted(values);
    let median = quantile(&values, 0.5);
    if median > 0.0 { (quantile(&values, 0.75) - quantile(&values, 0.25)) / median } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let values = sorted(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!((quantile(&values, 0.0), quantile(&values, 0.5), quantile(&values, 1.0)), (1.0, 2.5, 4.0));
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(spread(&[10.0, 10.0, 10.0]), 0.0);
        assert_eq!(spread(&[8.0, 10.0, 12.0]), 0.2);
    }

    /// The table of confidence intervals of a median in textbooks: n = 6 uses ranks 1 and 6, n = 9 ranks 2 and 8, n = 12 ranks 3 and
    /// 10.
    #[test]
    fn intervals_are_those_of_the_binomial_distribution() {
        let of = |n: u32| estimate(&(1..=n).map(f64::from).collect::<Vec<_>>()).unwrap();
        assert_eq!(estimate(&[]), None);
        assert_eq!((of(1).low, of(1).high, of(1).confidence), (1.0, 1.0, 0.0));
        assert_eq!((of(5).low, of(5).high, of(5).confidence), (1.0, 5.0, 0.9375));
        assert_eq!((of(6).low, of(6).high, of(6).confidence), (1.0, 6.0, 0.96875));
        assert_eq!((of(9).low, of(9).high), (2.0, 8.0));
        assert_eq!((of(12).low, of(12).high), (3.0, 10.0));
        assert!(of(100).confidence >= 0.95 && of(100).low == 40.0 && of(100).high == 61.0, "{:?}", of(100));
    }
}
