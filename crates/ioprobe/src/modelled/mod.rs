//! A modelled disk: an image in memory behind a FUSE file, whose server answers each request after the time that a model of a
//! disk would take.
//!
//! Loop device, scheduler and file system above it are the kernel's own, and see the ratios of a disk that this machine does
//! not have. The models are pure and go by a clock that they are told; the server alone knows what time it is.

mod account;
mod dirty;
mod flat;
mod fuse;
mod geometry;
pub mod keeper;
mod memory;
mod rotating;
mod server;

use crate::error::{Error, Result};
use crate::protocol;

pub use self::account::Account;
use self::flat::Flat;
use self::geometry::{Geometry, Seek};
use self::rotating::Rotating;

const NS: f64 = 1e9;
const US: f64 = 1e3;
const LARGEST: u64 = 1 << 44;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Flush,
    Trim,
}

/// One request; times are nanoseconds since the disk began.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub tag: u64,
    pub kind: Kind,
    pub offset: u64,
    pub length: u64,
    pub arrival: u64,
}

impl Request {
    fn due(&self, at: u64) -> Due {
        Due {
            tag: self.tag,
            at,
            arrival: self.arrival,
        }
    }
}

/// When the answer to a request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub tag: u64,
    pub at: u64,
    pub arrival: u64,
}

/// What every model of a disk does. Its clock only goes on when it is told.
trait Disk {
    fn submit(&mut self, request: Request);

    /// Goes on to `now`, and hands over what is due by then, in order.
    fn advance(&mut self, now: u64, into: &mut Vec<Due>);

    /// When something is next due or has to be decided.
    fn next_at(&self) -> Option<u64>;

    /// Whether blocks can be given back to it.
    fn trims(&self) -> bool;

    fn account(&mut self) -> &mut Account;
}

/// One disk, with the account of what it was asked for.
pub struct Model {
    disk: Box<dyn Disk>,
}

impl Model {
    /// The disk that a request describes. Figures that are no disk's are refused.
    pub fn of(request: &protocol::ModelledImage) -> Result<Self> {
        if request.size == 0 || request.size % 4096 != 0 || request.size > LARGEST {
            return Err(Error::bad(format!(
                "make a modelled disk: size: wanted a multiple of 4096 up to {LARGEST}, found {}",
                request.size
            )));
        }
        match (&request.rotating, &request.flat) {
            (Some(given), None) => rotating_of(given, request.size),
            (None, Some(given)) => flat_of(given),
            _ => Err(Error::bad(
                "make a modelled disk: wanted either rotating or flat",
            )),
        }
    }

    pub fn submit(&mut self, request: Request) {
        let account = self.disk.account();
        match request.kind {
            Kind::Read => {
                account.reads += 1;
                account.read_bytes += request.length;
            }
            Kind::Write => {
                account.writes += 1;
                account.written_bytes += request.length;
            }
            Kind::Flush => account.flushes += 1,
            Kind::Trim => account.trims += 1,
        }
        self.disk.submit(request);
    }

    /// Goes on to `now` and hands over what is due by then, in order.
    pub fn due(&mut self, now: u64, into: &mut Vec<Due>) {
        let first = into.len();
        self.disk.advance(now, into);
        let response = into[first..].iter().map(|due| due.at - due.arrival);
        self.disk.account().response_ns += response.sum::<u64>();
    }

    pub fn next_at(&self) -> Option<u64> {
        self.disk.next_at()
    }

    pub fn trims(&self) -> bool {
        self.disk.trims()
    }

    /// An answer went so much later than it was due.
    pub fn late(&mut self, ns: u64) {
        let account = self.disk.account();
        account.late_ns += ns;
        account.latest_ns = account.latest_ns.max(ns);
    }

    pub fn account(&mut self) -> Account {
        *self.disk.account()
    }

    /// Counts on from there.
    pub fn go_on_with(&mut self, account: Account) {
        *self.disk.account() = account;
    }
}

fn rotating_of(given: &protocol::RotatingDisk, size: u64) -> Result<Model> {
    within("turns_per_minute", given.turns_per_minute, 100.0, 1e6)?;
    within("stroke", given.stroke, 1e-4, 1.0)?;
    let (outer, inner) = (given.outer_bytes_per_s, given.inner_bytes_per_s);
    within("outer_bytes_per_s", outer, 1e4, 1e12)?;
    within("inner_bytes_per_s", inner, 1e4, outer)?;
    within(
        "interface_bytes_per_s",
        given.interface_bytes_per_s,
        1e4,
        1e12,
    )?;
    within("overhead_us", given.overhead_us, 0.0, 1e6)?;
    within("depth", given.depth as f64, 1.0, 1024.0)?;
    let seeks = [given.seek_track_us, given.seek_mean_us, given.seek_full_us];
    for time in seeks {
        within("seek_..._us", time, 0.0, 1e7)?;
    }
    let seek = Seek::through(seeks[0] * US, seeks[1] * US, seeks[2] * US).ok_or_else(|| {
        Error::bad(format!(
            "make a modelled disk: wanted seek times that a curve rises through (track, mean, full stroke), found {seeks:?}"
        ))
    })?;
    let capacity = size as f64 / given.stroke;
    let geometry = Geometry::new(capacity, (outer, inner), given.turns_per_minute, seek);
    let settings = rotating::Settings {
        size,
        overhead: given.overhead_us * US,
        interface: given.interface_bytes_per_s,
        ahead: given.ahead_bytes,
        cache: given.cache_bytes,
        depth: given.depth,
        order: given.order,
    };
    Ok(Model {
        disk: Box::new(Rotating::new(geometry, settings)),
    })
}

fn flat_of(given: &protocol::FlatDisk) -> Result<Model> {
    let times = [
        given.read_us,
        given.write_us,
        given.jump_us,
        given.flush_us,
        given.overhead_us,
    ];
    for time in times {
        within("..._us", time, 0.0, 1e7)?;
    }
    within("read_bytes_per_s", given.read_bytes_per_s, 1e4, 1e12)?;
    within("write_bytes_per_s", given.write_bytes_per_s, 1e4, 1e12)?;
    within("depth", given.depth as f64, 1.0, 1024.0)?;
    Ok(Model {
        disk: Box::new(Flat::new(flat::Settings {
            read: given.read_us * US,
            write: given.write_us * US,
            jump: given.jump_us * US,
            flush: given.flush_us * US,
            overhead: given.overhead_us * US,
            read_rate: given.read_bytes_per_s,
            write_rate: given.write_bytes_per_s,
            depth: given.depth,
        })),
    })
}

fn within(name: &str, found: f64, least: f64, most: f64) -> Result<()> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(Error::bad(format!(
        "make a modelled disk: {name}: wanted {least} to {most}, found {found}"
    )))
}
