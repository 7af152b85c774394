//! Memory asked for ahead of its use, so that timed code does not wait for it.

use std::ptr;

use libc::{c_int, c_void, size_t};

/// Brings all of the program's code and constants into this process, for as long as it lives.
///
/// The kernel maps them where they are first touched, some pages at a time: the first job of its kind would meet faults of
/// some microseconds each between its readings, or not, as the linker happens to have put things.
pub fn bring_own_code() {
    // SAFETY: the callback is given valid headers, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(touch), ptr::null_mut()) };
}

/// SAFETY: `object` describes what is loaded.
unsafe extern "C" fn touch(
    object: *mut libc::dl_phdr_info,
    _size: size_t,
    _: *mut c_void,
) -> c_int {
    const PAGE: usize = 4096; // or more: then some are touched twice
    let object = &*object;
    for n in 0..usize::from(object.dlpi_phnum) {
        let header = &*object.dlpi_phdr.add(n);
        let read_only = header.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R;
        if header.p_type == libc::PT_LOAD && read_only {
            let start = object.dlpi_addr as usize + header.p_vaddr as usize;
            let end = start + header.p_memsz as usize;
            for place in (start / PAGE * PAGE..end).step_by(PAGE) {
                // Volatile, because nothing else looks at what was read.
                (place as *const u8).read_volatile();
            }
        }
    }
    0
}

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
