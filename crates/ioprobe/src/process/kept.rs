//! Children of the probe that are meant to stay, by process id: whoever sweeps up after a command passes them over.

use std::cell::RefCell;

use libc::pid_t;

thread_local! {
    static KEPT: RefCell<Vec<pid_t>> = const { RefCell::new(Vec::new()) };
}

/// From here on this child stays.
pub fn keep(pid: pid_t) {
    KEPT.with(|kept| kept.borrow_mut().push(pid));
}

/// It may be swept away again.
pub fn release(pid: pid_t) {
    KEPT.with(|kept| kept.borrow_mut().retain(|other| *other != pid));
}

/// Those that stay.
pub fn kept() -> Vec<pid_t> {
    KEPT.with(|kept| kept.borrow().clone())
}
