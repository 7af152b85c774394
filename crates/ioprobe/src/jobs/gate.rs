//! The barrier at which the threads of a job wait until all are ready.

use std::sync::{Condvar, Mutex};

#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    /// None until decided; then whether the threads may run.
    open: Option<bool>,
}

impl Gate {
    /// Wait until the gate opens. Returns whether to run.
    pub fn pass(&self) -> bool {
        let mut state = self.state.lock().expect("nobody panics in it");
        state.waiting += 1;
        self.changed.notify_all();
        loop {
            match state.open {
                Some(open) => return open,
                None => state = self.changed.wait(state).expect("nobody panics in it"),
            }
        }
    }

    /// Wait until this many threads wait at the gate.
    pub fn wait_for(&self, count: usize) {
        let mut state = self.state.lock().expect("nobody panics in it");
        while state.waiting < count {
            state = self.changed.wait(state).expect("nobody panics in it");
        }
    }

    pub fn open(&self, open: bool) {
        self.state.lock().expect("nobody panics in it").open = Some(open);
        self.changed.notify_all();
    }
}
