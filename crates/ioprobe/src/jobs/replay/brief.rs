//! Durations in four bytes: 27 bits and an exponent.
//!
//! Rounded down by less than one part in 2^26, so that an operation never seems to have ended later
//! than it did.

const BITS: u32 = 27;

/// A duration in nanoseconds or ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brief(u32);

impl Brief {
    #[inline(always)]
    pub fn of(value: u64) -> Self {
        let value = value.min((1 << 58) - 1);
        let shift = (64 - value.leading_zeros()).saturating_sub(BITS);
        Brief((((value >> shift) as u32) << 5) | shift)
    }

    #[inline(always)]
    pub fn value(self) -> u64 {
        u64::from(self.0 >> 5) << (self.0 & 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_are_exact_and_large_ones_rounded_down_by_little() {
        for value in [0, 1, 1000, (1 << 27) - 1] {
            assert_eq!(Brief::of(value).value(), value);
        }
        for shift in 27..58 {
            for value in [(1_u64 << shift) + 12_345, (2_u64 << shift) - 1] {
                let found = Brief::of(value).value();
                let off = value.checked_sub(found);
                assert!(
                    off.is_some_and(|off| off <= value >> 26) || value >= 1 << 58,
                    "{value} {found}"
                );
            }
        }
        assert!(Brief::of(u64::MAX).value() > 1 << 57);
    }
}
