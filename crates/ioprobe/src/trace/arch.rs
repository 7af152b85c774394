//! What depends on the processor: numbers of system calls, and where the kernel keeps a call's number
//! and arguments.

use libc::c_int;

use super::bpf::types::Types;
use crate::error::Result;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the probe knows the system calls of x86-64 and arm64 only: add yours in trace/arch.rs and trace/names.rs");

/// AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64 (include/uapi/linux/audit.h)
pub const AUDIT: u32 = if cfg!(target_arch = "x86_64") {
    0xc000_003e
} else {
    0xc000_00b7
};
/// How the calls of 32-bit programs are marked.
pub const COMPAT_NAME: &str = if cfg!(target_arch = "x86_64") {
    "i386"
} else {
    "arm"
};
/// Where pt_regs has the number of a call, also of one that seccomp has rejected.
pub const CALL_NUMBER: &str = if cfg!(target_arch = "x86_64") {
    "orig_ax"
} else {
    "syscallno"
};
/// In the word at `task_status`: the call came through the 32-bit table. TS_COMPAT in thread_info.status
/// (arch/x86/include/asm/thread_info.h), or TIF_32BIT in thread_info.flags (arch/arm64/include/asm/thread_info.h).
pub const IS_COMPAT: i32 = if cfg!(target_arch = "x86_64") {
    2
} else {
    1 << 22
};

/// Return the offset of the word with `IS_COMPAT` in task_struct.
pub fn task_status(types: &Types) -> Result<i16> {
    let member = if cfg!(target_arch = "x86_64") {
        "status"
    } else {
        "flags"
    };
    Ok(types.offset("task_struct", "thread_info")? + types.offset("thread_info", member)?)
}

/// Return the offsets of a call's six arguments in pt_regs. All keep their values until the call has returned.
pub fn arguments(types: &Types) -> Result<[i16; 6]> {
    let register = |name| types.offset("pt_regs", name);
    #[cfg(target_arch = "x86_64")]
    return Ok([
        register("di")?,
        register("si")?,
        register("dx")?,
        register("r10")?,
        register("r8")?,
        register("r9")?,
    ]);
    // The result replaces the first register; the kernel keeps what was in it.
    #[cfg(target_arch = "aarch64")]
    {
        let first = register("regs")?;
        let at = |number: i16| first + 8 * number;
        Ok([register("orig_x0")?, at(1), at(2), at(3), at(4), at(5)])
    }
}

/// Calls that libc does not name on arm64 (include/uapi/asm-generic/unistd.h), or nowhere
/// (arch/x86/entry/syscalls/syscall_64.tbl).
#[cfg(target_arch = "x86_64")]
mod unnamed {
    use libc::c_long;
    pub const SENDFILE: c_long = libc::SYS_sendfile;
    pub const FADVISE64: c_long = libc::SYS_fadvise64;
    pub const IO_PGETEVENTS: c_long = 333;
}
#[cfg(target_arch = "aarch64")]
mod unnamed {
    use libc::c_long;
    pub const SENDFILE: c_long = 71;
    pub const FADVISE64: c_long = 223;
    pub const IO_PGETEVENTS: c_long = 292;
}
pub use unnamed::{FADVISE64, IO_PGETEVENTS, SENDFILE};

/// Flags of open(2) that have other bits on arm64 (arch/arm64/include/uapi/asm/fcntl.h), with those of x86-64.
/// Traces have the bits of x86-64, so that they can be replayed on either.
const OPEN_FLAGS: [(c_int, u32); 4] = [
    (libc::O_DIRECT, 0o40_000),
    (O_LARGEFILE, 0o100_000),
    (libc::O_DIRECTORY, 0o200_000),
    (libc::O_NOFOLLOW, 0o400_000),
];
/// As the kernel has it: libc says 0 where all files may be large.
const O_LARGEFILE: c_int = if cfg!(target_arch = "x86_64") {
    0o100_000
} else {
    0o400_000
};

/// Return the flags of an open as a trace has them.
pub fn flags_of_trace(native: u32) -> u32 {
    let own = OPEN_FLAGS.iter().map(|(bit, _)| *bit as u32).sum::<u32>();
    let found = OPEN_FLAGS
        .iter()
        .filter(|(bit, _)| native & *bit as u32 != 0);
    native & !own | found.map(|(_, bit)| bit).sum::<u32>()
}

/// Return the flags of an open in a trace as this processor's kernel takes them.
pub fn native_flags(traced: u32) -> u32 {
    let own = OPEN_FLAGS.iter().map(|(_, bit)| bit).sum::<u32>();
    let found = OPEN_FLAGS.iter().filter(|(_, bit)| traced & bit != 0);
    traced & !own | found.map(|(bit, _)| *bit as u32).sum::<u32>()
}

/// Calls that newer architectures lack. There they have numbers that no call has.
pub mod older {
    use libc::c_long;

    macro_rules! older {
        ($($name:ident $number:ident),* $(,)?) => {
            #[cfg(not(target_arch = "x86_64"))]
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Lacking { $($name),* }
            $(
                #[cfg(target_arch = "x86_64")]
                pub const $name: c_long = libc::$number;
                #[cfg(not(target_arch = "x86_64"))]
                pub const $name: c_long = -1 - Lacking::$name as c_long;
            )*
        };
    }

    older! {
        OPEN SYS_open,
        STAT SYS_stat,
        LSTAT SYS_lstat,
        ACCESS SYS_access,
        DUP2 SYS_dup2,
        GETDENTS SYS_getdents,
        RENAME SYS_rename,
        MKDIR SYS_mkdir,
        RMDIR SYS_rmdir,
        CREAT SYS_creat,
        LINK SYS_link,
        UNLINK SYS_unlink,
        SYMLINK SYS_symlink,
        READLINK SYS_readlink,
        CHMOD SYS_chmod,
        CHOWN SYS_chown,
        LCHOWN SYS_lchown,
        UTIME SYS_utime,
        MKNOD SYS_mknod,
        UTIMES SYS_utimes,
        FUTIMESAT SYS_futimesat,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_the_flags_of_x86() {
        let opened = libc::O_RDWR | libc::O_CREAT | libc::O_DIRECT | libc::O_NOFOLLOW;
        assert_eq!(flags_of_trace(opened as u32), 0o440_102);
        assert_eq!(flags_of_trace(libc::O_DIRECTORY as u32), 0o200_000);
        assert_eq!(native_flags(0o440_102), opened as u32);
        for bit in 0..32 {
            assert_eq!(native_flags(flags_of_trace(1 << bit)), 1 << bit);
        }
    }

    #[test]
    fn no_call_has_the_number_of_one_that_is_lacking() {
        let read = libc::SYS_read;
        let known = [older::OPEN, older::CREAT, older::FUTIMESAT];
        match cfg!(target_arch = "x86_64") {
            true => assert_eq!(known, [2, 85, 261]),
            false => assert!(known.iter().all(|number| *number < 0 && *number != read)),
        }
    }
}
