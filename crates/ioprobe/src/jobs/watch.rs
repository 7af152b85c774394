//! The kernel's counters around a timed part: of devices, of this process and of the whole machine.

use serde_json::{Map, Value};

use crate::counters::devices::{Activity, Counters};
use crate::counters::{self, Moment};
use crate::error::Result;
use crate::server::{self, Used};
use crate::sys::files::syncfs;
use crate::trace::block;
use crate::watch::Peer;

/// The counters before and after a timed part. The devices' counters can be read once more after a
/// sync of the file system.
pub struct Watch {
    counters: Counters,
    before: Vec<Activity>,
    after: Vec<Activity>,
    moments: (Moment, Moment),
    servers: [Vec<(String, Used)>; 2],
    peer: Option<Peer>,
}

/// Device activity by name.
pub type Devices = Map<String, Value>;

pub struct Reported {
    pub during: Devices,
    pub synced: Option<Devices>,
    pub in_sync: Option<Devices>,
}

impl Watch {
    /// Call this just before the timed part, with counters that were opened as root: not every user
    /// may open them. `peer` is the address of the probe on the file server, if another machine
    /// serves the files.
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

    /// Call this just after the timed part, after its last clock reading and before anything else
    /// touches a disk.
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

    /// Report the activity during the timed part and, with `sync_after`, up to the end of a sync of
    /// that path. If requests are counted, those of the sync are counted too, and `in_sync` is the
    /// device activity during the sync alone: verification of the work may have come in between.
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

    /// Return what each server used meanwhile; None without servers.
    pub fn servers(&self) -> Option<Devices> {
        let [before, after] = &self.servers;
        (!before.is_empty()).then(|| server::between(before, after))
    }

    /// Return what this process and the whole machine did meanwhile: the answer's `around`.
    pub fn around(&self) -> Value {
        counters::between(&self.moments.0, &self.moments.1)
    }
}
