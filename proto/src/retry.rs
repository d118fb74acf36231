//! When to try again: exponential backoff with full jitter. Pure: randomness comes in as a number.

/// Milliseconds to wait before try number `failures + 1`: a value in `0..=min(max_ms, base_ms * 2^(failures-1))`
/// picked by `random`, uniform when `random` is.
pub fn full_jitter_ms(base_ms: u64, max_ms: u64, failures: u32, random: u64) -> u64 {
    let doublings = failures.saturating_sub(1).min(40);
    let ceiling = base_ms.saturating_mul(1 << doublings).min(max_ms);
    ceiling.checked_add(1).map_or(random, |values| random % values)
}

/// `backoff_ms`, doubled for each read-back that already mismatched after the first (checklist F4).
pub fn doubled_ms(backoff_ms: u64, mismatches: u32) -> u64 {
    backoff_ms.saturating_mul(1 << mismatches.saturating_sub(1).min(40))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn backoff_doubles() {
        assert_eq!([1, 2, 3].map(|n| doubled_ms(2000, n)), [2000, 4000, 8000]);
    }

    proptest! {
        #[test]
        fn jitter_stays_below_its_ceiling(base in 0..100_000_u64, max in 0..1_000_000_u64, n in 1..100_u32, r: u64) {
            prop_assert!(full_jitter_ms(base, max, n, r) <= max);
            prop_assert!(full_jitter_ms(base, max, 1, r) <= base);
        }
    }
}
