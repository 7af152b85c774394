//! Bars of a histogram that widen with the value, those of an HDR histogram (Tene,
//! hdrhistogram.org): 2^fineness bars of equal width per power of two.

/// Return the bar of a value, with 2^`fineness` bars per power of two. Below 2^(`fineness` + 1)
/// each value has its own.
#[inline(always)]
pub const fn bar_of(value: u64, fineness: u32) -> usize {
    let shift = 63 - fineness - (value | 1 << fineness).leading_zeros();
    ((shift as usize) << fineness) + (value >> shift) as usize
}

/// Return the highest value in a bar.
pub const fn top_of(bar: usize, fineness: u32) -> u64 {
    let shift = (bar >> fineness).saturating_sub(1);
    let place = (bar - (shift << fineness)) as u64;
    ((place + 1) << shift) - 1
}

/// Return the top of the bar that holds the value of rank `q` of `count`; 0 if there are no values.
pub fn quantile<N: Copy + Into<u64>>(bars: &[N], fineness: u32, count: u64, q: f64) -> u64 {
    let rank = ((count as f64 * q).ceil() as u64).max(1);
    let mut below = 0;
    for (bar, n) in bars.iter().enumerate() {
        below += (*n).into();
        if below >= rank {
            return top_of(bar, fineness);
        }
    }
    0
}
