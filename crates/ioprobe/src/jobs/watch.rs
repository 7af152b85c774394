//! What the kernel counted around a timed part: of devices, of this process and of the whole machine.

use serde_json::{Map, Value};

use crate::counters::devices::{Activity, Counters};
use crate::counters::{self, Moment};
use crate::error::Result;
use crate::server::{self, Used};
use crate::sys::files::syncfs;
use crate::trace::block;
use crate::watch::Peer;

/// The kernel's counters around a timed part, and the devices' once more after its file system was written back.
pub struct Watch {
    counters: Counters,
    before: Vec<Activity>,
    after: Vec<Activity>,
    moments: (Moment, Moment),
    servers: [Vec<(String, Used)>; 2],
    peer: Option<Peer>,
}

/// What devices did, by name.
pub type Devices = Map<String, Value>;

pub struct Reported {
    pub during: Devices,
    pub synced: Option<Devices>,
    pub in_sync: Option<Devices>,
}

impl Watch {
    /// To be called just before the timed part, with counters that were opened as root: not every user may.
    /// `peer` is where the machine listens that serves the files, if another one does.
    pub fn begin(counters: Counters, peer: Option<&str>) -> Result<Self> {
        let (mut before, after) = (counters.room(), counters.room());
        let peer = peer.map(Peer::begin).transpose()?;
        let servers = [server::used(), Vec::new()];
        block::counting(true);
        counters.read(&mut before)?;
        let moment = counters::before();
        Ok(Watch {
            counters,
            before,
            after,
            moments: (moment, moment),
            servers,
            peer,
        })
    }

    /// To be called just after the timed part, when its last clock was read and before anything else touches a disk.
    pub fn end(&mut self) -> Result<()> {
        self.moments.1 = counters::after();
        let counted = self.counters.read(&mut self.after);
        block::counting(false);
        self.servers[1] = server::used();
        if let Some(peer) = &mut self.peer {
            peer.end()?;
        }
        counted
    }

    /// What happened during the timed part; and up to the end of a sync of `path`. Where requests are counted, those of the sync
    /// are too, and `in_sync` is what devices did in it: checks of the work may lie between the two.
    pub fn report(&self, sync_after: Option<&str>) -> Result<Reported> {
        let during = self.counters.between(&self.before, &self.after);
        let (mut synced, mut in_sync) = (None, None);
        if let Some(path) = sync_after {
            let (mut begun, mut written) = (self.counters.room(), self.counters.room());
            let counting = block::counting(true);
            if counting {
                self.counters.read(&mut begun)?;
            }
            syncfs(path)?;
            self.counters.read(&mut written)?;
            block::counting(false);
            synced = Some(self.counters.between(&self.before, &written));
            in_sync = counting.then(|| self.counters.between(&begun, &written));
        }
        Ok(Reported {
            during,
            synced,
            in_sync,
        })
    }

    /// What each server used meanwhile; None where there is none.
    pub fn servers(&self) -> Option<Devices> {
        let [before, after] = &self.servers;
        (!before.is_empty()).then(|| server::between(before, after))
    }

    /// What this process and the whole machine did meanwhile: the answer's `around`.
    pub fn around(&self) -> Value {
        counters::between(&self.moments.0, &self.moments.1)
    }
}
