//! The calls on folders and on symbolic links, whose own access time is looked at.

use super::object::{Object, PAGE};
use super::perform::done;
use crate::protocol::AtimeCall::*;
use crate::sys::try_open;

impl Object {
    pub(super) fn perform_on_name(&mut self, round: usize) -> Result<(), i32> {
        let mut room = [0_u8; PAGE];
        let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
        let (name, inside) = (self.name.as_ptr(), self.beside.as_ptr());
        // SAFETY: every pointer is to what is ours and as large as is said; every name ends with NUL.
        unsafe {
            match self.call {
                Getdents => {
                    done(libc::lseek(self.fd(), 0, libc::SEEK_SET))?;
                    let into = room.as_mut_ptr();
                    done(libc::syscall(libc::SYS_getdents64, self.fd(), into, PAGE))
                }
                OpenFolder => self.opened(libc::O_RDONLY | libc::O_DIRECTORY),
                StatInside => done(libc::stat(inside, status.as_mut_ptr()).into()),
                OpenInside => try_open(&self.beside, libc::O_RDONLY, 0).map(drop),
                CreateInside => {
                    let new = self.within(round);
                    try_open(&new, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o600).map(drop)
                }
                RenameInside => {
                    let new = self.within(round);
                    done(libc::rename(inside, new.as_ptr()).into())?;
                    self.beside = new;
                    Ok(())
                }
                Readlink => done(libc::readlink(name, room.as_mut_ptr().cast(), PAGE) as _),
                Lstat => done(libc::lstat(name, status.as_mut_ptr()).into()),
                StatThrough => done(libc::stat(name, status.as_mut_ptr()).into()),
                OpenThrough => self.opened(libc::O_RDONLY),
                _ => Err(libc::ENOSYS),
            }
        }
    }

    /// A name in the folder that is not there yet.
    fn within(&self, round: usize) -> std::ffi::CString {
        let path = format!("{}/new.{round}", self.path);
        crate::sys::c_text(&path).expect("a path without NUL has none with a name after it")
    }
}
