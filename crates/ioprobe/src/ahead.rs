//! Memory asked for ahead of its use, so that timed code does not wait for it.

/// Has the processor fetch what lies there, and goes on at once. Where it points does not matter.
#[inline(always)]
pub fn ask_for<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it reads nothing that the program could see, and cannot fault.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
