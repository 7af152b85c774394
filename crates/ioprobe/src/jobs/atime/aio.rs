//! One read by the kernel's older asynchronous interface: <linux/aio_abi.h>, which the C library has no door to.

use std::os::unix::io::RawFd;
use std::ptr;

use super::perform::done;

const PREAD: u16 = 0;

#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    /// key and flags, whose order is that of the machine's bytes; both are 0
    key_and_flags: u64,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    result2: i64,
}

pub fn read(fd: RawFd, buffer: *mut libc::c_void, bytes: usize, offset: i64) -> Result<(), i32> {
    let mut context: libc::c_ulong = 0;
    let mut request = Request {
        opcode: PREAD,
        file: fd as u32,
        buffer: buffer as u64,
        bytes: bytes as u64,
        offset,
        ..Request::default()
    };
    let mut event = Event::default();
    // SAFETY: the structures are as the kernel knows them, and live until the read is done; no limit of time.
    unsafe {
        done(libc::syscall(
            libc::SYS_io_setup,
            1,
            &mut context as *mut libc::c_ulong,
        ))?;
        let requests = [&mut request as *mut Request];
        let outcome = done(libc::syscall(
            libc::SYS_io_submit,
            context,
            1,
            requests.as_ptr(),
        ))
        .and_then(|()| {
            let into = &mut event as *mut Event;
            let forever = ptr::null::<libc::timespec>();
            done(libc::syscall(
                libc::SYS_io_getevents,
                context,
                1,
                1,
                into,
                forever,
            ))
        });
        libc::syscall(libc::SYS_io_destroy, context);
        outcome?;
    }
    match event.result {
        n if n < 0 => Err(-n as i32),
        _ => Ok(()),
    }
}
