//! What <linux/io_uring.h> says: numbers of calls and flags, and how what is shared with the kernel lies in memory.

use libc::c_uint;

pub const SUBMIT_ALL: u32 = 1 << 7;
pub const COOP_TASKRUN: u32 = 1 << 8;
pub const SINGLE_ISSUER: u32 = 1 << 12;
pub const DEFER_TASKRUN: u32 = 1 << 13;
pub const NO_SQARRAY: u32 = 1 << 16;
pub const OFFSET_SQ_RING: i64 = 0;
pub const OFFSET_CQ_RING: i64 = 0x800_0000;
pub const OFFSET_SQES: i64 = 0x1000_0000;
pub const ENTER_GETEVENTS: c_uint = 1;
pub const ENTER_REGISTERED_RING: c_uint = 1 << 4;
pub const REGISTER_BUFFERS: c_uint = 0;
pub const UNREGISTER_BUFFERS: c_uint = 1;
pub const REGISTER_FILES: c_uint = 2;
pub const UNREGISTER_FILES: c_uint = 3;
pub const REGISTER_RING_FDS: c_uint = 20;
pub const UNREGISTER_RING_FDS: c_uint = 21;

pub const READ_FIXED: u8 = 4;
pub const WRITE_FIXED: u8 = 5;
pub const READ: u8 = 22;
pub const WRITE: u8 = 23;
pub const FIXED_FILE: u8 = 1;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct SqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub flags: u32,
    pub dropped: u32,
    pub array: u32,
    pub reserved: u32,
    pub user_address: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub overflow: u32,
    pub cqes: u32,
    pub flags: u32,
    pub reserved: u32,
    pub user_address: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Parameters {
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub flags: u32,
    pub sq_thread_cpu: u32,
    pub sq_thread_idle: u32,
    pub features: u32,
    pub wq_fd: u32,
    pub reserved: [u32; 3],
    pub sq: SqOffsets,
    pub cq: CqOffsets,
}

/// A submission.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Sqe {
    pub opcode: u8,
    pub flags: u8,
    pub priority: u16,
    pub file: i32,
    pub offset: u64,
    pub address: u64,
    pub length: u32,
    pub rw_flags: u32,
    pub user_data: u64,
    pub buffer: u16,
    pub personality: u16,
    pub splice_file: i32,
    pub reserved: [u64; 2],
}

/// A completion.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Cqe {
    pub user_data: u64,
    pub result: i32,
    pub flags: u32,
}

#[repr(C)]
pub struct ResourceUpdate {
    pub offset: u32,
    pub reserved: u32,
    pub data: u64,
}
