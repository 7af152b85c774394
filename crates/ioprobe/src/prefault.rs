//! Prefetching of memory, so that timed code does not wait for it.

use std::ptr;

use libc::{c_int, c_void, size_t};

/// Fault in all of the program's code and constants, for as long as the process lives.
///
/// The kernel maps them on first access, some pages at a time. Depending on how the linker arranged
/// things, the first job of its kind would otherwise have page faults of some microseconds each
/// while it is timed.
pub fn bring_own_code() {
    // SAFETY: the callback gets valid headers and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(touch), ptr::null_mut()) };
}

/// SAFETY: `object` describes a loaded object.
unsafe extern "C" fn touch(
    object: *mut libc::dl_phdr_info,
    _size: size_t,
    _: *mut c_void,
) -> c_int {
    const PAGE: usize = 4096; // or more: then some pages are touched twice
    let object = &*object;
    for n in 0..usize::from(object.dlpi_phnum) {
        let header = &*object.dlpi_phdr.add(n);
        let read_only = header.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R;
        if header.p_type == libc::PT_LOAD && read_only {
            let start = object.dlpi_addr as usize + header.p_vaddr as usize;
            let end = start + header.p_memsz as usize;
            for place in (start / PAGE * PAGE..end).step_by(PAGE) {
                // Volatile, because nothing else uses the value.
                (place as *const u8).read_volatile();
            }
        }
    }
    0
}

/// Prefetch this address into the CPU cache without waiting. Any address is allowed.
#[inline(always)]
pub fn ask_for<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it has no effect that the program could observe, and cannot fault.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
