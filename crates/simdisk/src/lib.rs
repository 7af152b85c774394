//! A simulated disk: an image in memory behind a FUSE file. Its server answers each request after
//! the time that the model of a disk would take.
//!
//! Loop device, scheduler and file system above it are the kernel's own, and see the timing of a
//! disk that this machine does not have. The models are pure and use the time passed to them; only
//! the server reads a clock.

mod control;
mod dirty;
mod flash;
mod flat;
mod fuse;
mod geometry;
mod log;
mod rotating;
mod server;

use std::fmt::{self, Display, Formatter};

use rustix::io::Errno;
use serde::{Deserialize, Serialize, Serializer};

pub use self::control::{mount, Disk};
use self::flash::Flash as Pages;
use self::flat::Flat;
use self::geometry::{Geometry, Seek};
use self::rotating::Rotating;
pub use self::server::run;

pub type Result<T> = std::result::Result<T, Error>;

/// Why a disk could not be started, or failed.
#[derive(Debug)]
pub enum Error {
    /// The description is invalid.
    Description(String),
    /// A system call failed.
    Os { doing: String, errno: i32 },
    /// The other side violated the protocol.
    Protocol(String),
}

impl std::error::Error for Error {}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Error::Os { doing, errno } => {
                write!(f, "{doing}: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Error::Description(text) | Error::Protocol(text) => f.write_str(text),
        }
    }
}

impl Error {
    fn os(doing: impl Into<String>) -> impl FnOnce(Errno) -> Self {
        let doing = doing.into();
        move |errno| Error::Os {
            doing,
            errno: errno.raw_os_error(),
        }
    }
}

/// The disk to simulate: its size, and the parameters of one of the models.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    pub size: u64,
    pub rotating: Option<Turning>,
    pub flat: Option<Flash>,
    pub instant: Option<Instant>,
    /// Path of the new file to log writes and flushes to.
    pub log: Option<String>,
    /// Path of the socket by which programs put marks into the log.
    pub marks: Option<String>,
    /// Path of an image of the same size, which the disk shows and does not change.
    pub over: Option<String>,
}

/// A disk without delay.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instant {}

/// A rotating disk. docs/labs.md explains the parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turning {
    pub turns_per_minute: f64,
    pub seek_track_us: f64,
    pub seek_mean_us: f64,
    pub seek_full_us: f64,
    pub outer_bytes_per_s: f64,
    pub inner_bytes_per_s: f64,
    pub interface_bytes_per_s: f64,
    pub overhead_us: f64,
    pub ahead_bytes: u64,
    pub cache_bytes: u64,
    pub depth: usize,
    pub order: QueueOrder,
    pub stroke: f64,
}

/// A disk without moving parts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    pub read_us: f64,
    pub write_us: f64,
    pub jump_us: f64,
    pub flush_us: f64,
    pub overhead_us: f64,
    pub read_bytes_per_s: f64,
    pub write_bytes_per_s: f64,
    pub depth: usize,
    #[serde(default)]
    pub collects: Option<Collecting>,
}

/// How a solid-state disk collects garbage.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collecting {
    pub block_bytes: u64,
    pub spare: f64,
    pub page_move_us: f64,
    pub erase_us: f64,
}

/// The order in which a simulated disk serves waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueOrder {
    Arrival,
    Elevator,
    Nearest,
}

const NS: f64 = 1e9;
const US: f64 = 1e3;
const LARGEST: u64 = 1 << 44;

impl Description {
    /// Check that the description is valid.
    pub fn check(&self) -> Result<()> {
        Model::of(self).map(drop)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Flush,
    Trim,
}

/// One request; times are nanoseconds since the start of the disk.
#[derive(Clone, Copy, Debug)]
struct Request {
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
struct Due {
    pub tag: u64,
    pub at: u64,
    pub arrival: u64,
}

/// The interface of all disk models. Their clock advances only when they are called.
trait Mechanism {
    fn submit(&mut self, request: Request);

    /// Advance to `now`, and append the answers due by then, in order.
    fn advance(&mut self, now: u64, into: &mut Vec<Due>);

    /// Return when something is next due or has to be decided.
    fn next_at(&self) -> Option<u64>;

    /// Return whether the disk supports trim.
    fn trims(&self) -> bool;

    /// Take note of a request that is answered without delay.
    fn note(&mut self, _kind: Kind, _offset: u64, _length: u64) {}

    /// Take or put the state of the flash, which a reset does not change.
    fn take_flash(&mut self) -> Option<Pages> {
        None
    }

    fn put_flash(&mut self, _flash: Option<Pages>) {}

    fn account(&mut self) -> &mut Account;
}

/// One disk, with statistics of its requests.
struct Model {
    disk: Box<dyn Mechanism>,
}

impl Model {
    /// Create the disk that is described. Parameters that are out of range are refused.
    fn of(request: &Description) -> Result<Self> {
        if request.size == 0 || request.size % 4096 != 0 || request.size > LARGEST {
            return Err(Error::Description(format!(
                "make a simulated disk: size: expected a multiple of 4096 up to {LARGEST}, found {}",
                request.size
            )));
        }
        if request.marks.is_some() && request.log.is_none() {
            return Err(Error::Description(
                "make a simulated disk: marks: expected a log to put them into".to_string(),
            ));
        }
        match (&request.rotating, &request.flat, &request.instant) {
            (Some(drive), None, None) => rotating_of(drive, request.size),
            (None, Some(flash), None) => flat_of(flash, request.size),
            (None, None, Some(Instant {})) => Ok(instant()),
            _ => Err(Error::Description(
                "make a simulated disk: expected exactly one of rotating, flat and instant"
                    .to_string(),
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

    /// Advance to `now`, and append the answers due by then, in order.
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

    /// Record that an answer was sent this much later than it was due.
    pub fn late(&mut self, ns: u64) {
        let account = self.disk.account();
        account.late_ns += ns;
        account.latest_ns = account.latest_ns.max(ns);
    }

    pub fn account(&mut self) -> Account {
        *self.disk.account()
    }

    /// Take note of a request that is answered without delay.
    pub fn note(&mut self, kind: Kind, offset: u64, length: u64) {
        self.disk.note(kind, offset, length);
    }

    /// Continue with the statistics and the flash of a disk that is reset.
    pub fn go_on_from(&mut self, other: &mut Model) {
        *self.disk.account() = *other.disk.account();
        self.disk.put_flash(other.disk.take_flash());
    }
}

fn rotating_of(drive: &Turning, size: u64) -> Result<Model> {
    within("turns_per_minute", drive.turns_per_minute, 100.0, 1e6)?;
    within("stroke", drive.stroke, 1e-4, 1.0)?;
    let (outer, inner) = (drive.outer_bytes_per_s, drive.inner_bytes_per_s);
    within("outer_bytes_per_s", outer, 1e4, 1e12)?;
    within("inner_bytes_per_s", inner, 1e4, outer)?;
    within(
        "interface_bytes_per_s",
        drive.interface_bytes_per_s,
        1e4,
        1e12,
    )?;
    within("overhead_us", drive.overhead_us, 0.0, 1e6)?;
    within("depth", drive.depth as f64, 1.0, 1024.0)?;
    let seeks = [drive.seek_track_us, drive.seek_mean_us, drive.seek_full_us];
    for time in seeks {
        within("seek_..._us", time, 0.0, 1e7)?;
    }
    let seek = Seek::through(seeks[0] * US, seeks[1] * US, seeks[2] * US).ok_or_else(|| {
        Error::Description(format!(
            "make a simulated disk: expected seek times that increase from track to mean to full stroke, found {seeks:?}"
        ))
    })?;
    let capacity = size as f64 / drive.stroke;
    let geometry = Geometry::new(capacity, (outer, inner), drive.turns_per_minute, seek);
    let settings = rotating::Settings {
        size,
        overhead: drive.overhead_us * US,
        interface: drive.interface_bytes_per_s,
        ahead: drive.ahead_bytes,
        cache: drive.cache_bytes,
        depth: drive.depth,
        order: drive.order,
    };
    Ok(Model {
        disk: Box::new(Rotating::new(geometry, settings)),
    })
}

fn flat_of(flash: &Flash, size: u64) -> Result<Model> {
    let times = [
        flash.read_us,
        flash.write_us,
        flash.jump_us,
        flash.flush_us,
        flash.overhead_us,
    ];
    for time in times {
        within("..._us", time, 0.0, 1e7)?;
    }
    within("read_bytes_per_s", flash.read_bytes_per_s, 1e4, 1e12)?;
    within("write_bytes_per_s", flash.write_bytes_per_s, 1e4, 1e12)?;
    within("depth", flash.depth as f64, 1.0, 1024.0)?;
    let mut times = (0.0, 0.0);
    let mut pages = None;
    if let Some(found) = &flash.collects {
        within("block_bytes", found.block_bytes as f64, 4096.0, size as f64)?;
        within("spare", found.spare, 0.0, 10.0)?;
        within("page_move_us", found.page_move_us, 0.0, 1e7)?;
        within("erase_us", found.erase_us, 0.0, 1e7)?;
        times = (found.page_move_us * US, found.erase_us * US);
        pages = Some(Pages::new(size, found.block_bytes, found.spare));
    }
    let settings = flat::Settings {
        read: flash.read_us * US,
        write: flash.write_us * US,
        jump: flash.jump_us * US,
        flush: flash.flush_us * US,
        overhead: flash.overhead_us * US,
        read_rate: flash.read_bytes_per_s,
        write_rate: flash.write_bytes_per_s,
        depth: flash.depth,
        page_move: times.0,
        erase: times.1,
    };
    Ok(Model {
        disk: Box::new(Flat::new(settings, pages)),
    })
}

/// Requests are still answered in a queue's order: a flush only after the writes before it.
fn instant() -> Model {
    Model {
        disk: Box::new(Flat::new(
            flat::Settings {
                read: 0.0,
                write: 0.0,
                jump: 0.0,
                flush: 0.0,
                overhead: 0.0,
                read_rate: f64::INFINITY,
                write_rate: f64::INFINITY,
                depth: 1024,
                page_move: 0.0,
                erase: 0.0,
            },
            None,
        )),
    }
}

fn within(name: &str, found: f64, least: f64, most: f64) -> Result<()> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(Error::Description(format!(
        "make a simulated disk: {name}: expected {least} to {most}, found {found}"
    )))
}

/// The statistics of a simulated disk: its requests, where its time went, and how late its answers
/// were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Account {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    flushes: u64,
    trims: u64,
    /// Reads served from the disk's memory.
    read_hits: u64,
    /// Number of operations of the arm or of the flash.
    operations: u64,
    /// How many of these moved the arm.
    seeks: u64,
    /// Garbage collection: live pages of 4 KiB moved, and blocks erased.
    moved_pages: u64,
    erased_blocks: u64,
    #[serde(serialize_with = "whole")]
    seek_ns: f64,
    #[serde(serialize_with = "whole")]
    rotation_ns: f64,
    #[serde(serialize_with = "whole")]
    transfer_ns: f64,
    /// Latencies of a disk that does not rotate.
    #[serde(serialize_with = "whole")]
    latency_ns: f64,
    /// Sum of the times from each request's arrival until its answer was due.
    response_ns: u64,
    /// How late answers were sent: sum and maximum.
    late_ns: u64,
    latest_ns: u64,
}

/// Serialize nanoseconds without their fraction.
fn whole<S: Serializer>(ns: &f64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_u64(*ns as u64)
}
