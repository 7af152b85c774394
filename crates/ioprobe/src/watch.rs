//! What the machine and its devices did while another machine worked: counters between two requests.
//!
//! For a server whose client is measured: the work is another probe's, and what it costs here is told by this one.

use serde_json::{json, Map, Value};

use crate::around::{self, Moment};
use crate::devices::{Activity, Counters};
use crate::error::Result;
use crate::wire::WatchStart;

pub struct Watch {
    counters: Counters,
    devices: Vec<Activity>,
    before: Moment,
}

impl Watch {
    /// From now on.
    pub fn start(request: &WatchStart) -> Result<Self> {
        let counters = Counters::open(&request.devices)?;
        let mut devices = counters.room();
        counters.read(&mut devices)?;
        Ok(Watch {
            counters,
            devices,
            before: around::before(),
        })
    }

    /// Until now: as a job's answer has it.
    pub fn stop(self) -> Result<Value> {
        let now = around::after();
        let mut devices = self.counters.room();
        self.counters.read(&mut devices)?;
        let found: Map<String, Value> = self.counters.between(&self.devices, &devices);
        Ok(json!({"devices": found, "around": around::between(&self.before, &now)}))
    }
}
