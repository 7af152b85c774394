//! One session: what the probe holds between requests, and which verb is done where.

use std::collections::BTreeMap;

use serde_json::{json, Value};

use crate::account::block::Requests;
use crate::around;
use crate::clock::{monotonic_ns, realtime_ns, Clock};
use crate::error::{Error, Result};
use crate::fileset::{self, Registry};
use crate::isolate::{privileged, require_privilege, Lifeline, Origin};
use crate::job;
use crate::job::stream::LabDevice;
use crate::job::stretch::Stretch;
use crate::process::left;
use crate::process::start::{Inherited, Starter};
use crate::sampler::Sampler;
use crate::syscall::{check, open_files, stat_of};
use crate::target::device::{content, Device};
use crate::target::loop_device::{self, Backing, LoopDevice, Window};
use crate::target::{files, image, loop_table, mount, remove, run};
use crate::wire::{self, fields, job_fields, Fields};

pub const PROTOCOL: u32 = 1;

pub struct Session {
    clock: Clock,
    stretch: Stretch,
    isolated: bool,
    lifeline: Lifeline,
    origin: Origin,
    starter: Starter,
    sets: Registry,
    images: BTreeMap<u64, Backing>,
    next_image: u64,
    loops: BTreeMap<String, LoopDevice>,
    devices: BTreeMap<String, Device>,
    sampler: Option<Sampler>,
}

impl Session {
    pub fn new(isolated: bool, lifeline: Lifeline, origin: Origin) -> Result<Self> {
        let clock = Clock::chosen()?;
        Ok(Session {
            clock,
            stretch: Stretch::new(clock),
            isolated,
            lifeline,
            origin,
            starter: Starter::new(Inherited {
                open_files: open_files()?,
                // The modes of our own files are what was asked for; programs get the usual mask back.
                // SAFETY: no pointers are involved.
                umask: unsafe { libc::umask(0) },
            }),
            sets: Registry::default(),
            images: BTreeMap::new(),
            next_image: 1,
            loops: BTreeMap::new(),
            devices: BTreeMap::new(),
            sampler: None,
        })
    }

    /// Does what is asked. `account_requests` on any job has the requests of its devices counted meanwhile.
    pub fn perform(&mut self, verb: &str, mut given: Fields) -> Result<Value> {
        let asked = given.remove("account_requests");
        if !matches!(asked, Some(Value::Bool(true))) {
            return match asked {
                None | Some(Value::Null | Value::Bool(false)) => self.carry_out(verb, given),
                Some(other) => Err(Error::bad(format!(
                    "request {verb}: account_requests: wanted true or false, found {other}"
                ))),
            };
        }
        let devices = wire::devices_of_job(verb, &given)?;
        let requests = Requests::begin(&devices)?;
        let mut answer = self.carry_out(verb, given)?;
        let (found, lost) = requests.finish()?;
        answer["requests"] = found;
        answer["requests_lost"] = json!(lost);
        Ok(answer)
    }

    fn carry_out(&mut self, verb: &str, given: Fields) -> Result<Value> {
        let sets = &mut self.sets;
        match verb {
            "hello" => fields::<wire::Nothing>(verb, given).and_then(|_| self.hello()),
            "time" => fields::<wire::Nothing>(verb, given)
                .map(|_| json!({"monotonic_ns": monotonic_ns(), "realtime_ns": realtime_ns()})),

            "read" => files::read(fields(verb, given)?),
            "write" => files::write(fields(verb, given)?),
            "stat" => files::describe(fields(verb, given)?),
            "statfs" => files::file_system(fields(verb, given)?),
            "list" => files::list(fields(verb, given)?),
            "readlink" => files::read_link(fields(verb, given)?),
            "mkdir" => files::make(fields(verb, given)?),
            "remove" => remove::remove(fields(verb, given)?),
            "syncfs" => files::sync_file_system(fields(verb, given)?),
            "sync" => fields::<wire::Nothing>(verb, given).map(|_| files::sync()),
            "drop_caches" => files::drop_caches(fields(verb, given)?),
            "mount" => mount::mount(fields(verb, given)?),
            "unmount" => mount::unmount(fields(verb, given)?),
            "set_times" => files::set_times(fields(verb, given)?),
            "end_session" => left::end_session(fields(verb, given)?, self.isolated),
            "image" => self.make_image(fields(verb, given)?),
            "image_free" => self.free_image(fields(verb, given)?),
            "loop_attach" => self.attach(fields(verb, given)?),
            "loop_free" => {
                fields::<wire::Nothing>(verb, given).and_then(|_| loop_table::describe_free())
            }
            "loop_status" => loop_device::describe(&fields(verb, given)?),
            "loop_remove" => loop_table::remove(&fields(verb, given)?),
            "loop_detach" => self.detach(fields(verb, given)?),
            "evict_device" => self.evict(fields(verb, given)?),
            "device_claim" => self.claim(&fields(verb, given)?),
            "device_users" => {
                let request: wire::OfDevice = fields(verb, given)?;
                Ok(claimed(&mut self.devices, &request.device)?.users(&self.origin.proc))
            }
            "device_check" => {
                let request: wire::DeviceCheck = fields(verb, given)?;
                content::look(claimed(&mut self.devices, &request.device)?, &request)
            }
            "device_scan" => {
                let request: wire::DeviceRange = fields(verb, given)?;
                content::scan(claimed(&mut self.devices, &request.device)?, &request)
            }
            "device_zero" => {
                let request: wire::DeviceRange = fields(verb, given)?;
                content::zero(claimed(&mut self.devices, &request.device)?, &request)
            }
            "device_mark" => {
                let request: wire::DeviceMark = fields(verb, given)?;
                content::mark(claimed(&mut self.devices, &request.device)?, &request)
            }
            "device_marked" => {
                let request: wire::DeviceMarked = fields(verb, given)?;
                content::marked(claimed(&mut self.devices, &request.device)?, &request)
            }
            "device_window" => self.window(&fields(verb, given)?),
            "device_release" => {
                let request: wire::OfDevice = fields(verb, given)?;
                claimed(&mut self.devices, &request.device)?.release();
                Ok(json!({}))
            }
            "device_reclaim" => {
                let request: wire::OfDevice = fields(verb, given)?;
                let device = claimed(&mut self.devices, &request.device)?;
                device.reclaim(&self.origin.proc).map(|()| json!({}))
            }
            "device_close" => {
                let request: wire::OfDevice = fields(verb, given)?;
                claimed(&mut self.devices, &request.device)?;
                self.devices.remove(&request.device);
                Ok(json!({}))
            }
            "run" => run::run(fields(verb, given)?, &mut self.starter, self.isolated),

            "fileset" => fileset::create::make(fields(verb, given)?, sets),
            "fileset_verify" => fileset::verify::verify(fields(verb, given)?, sets),
            "set_mode" => fileset::modes::set(fields(verb, given)?, sets),
            "get_mode" => fileset::modes::get(fields(verb, given)?, sets),
            "set_atime_state" => fileset::times::set_state(fields(verb, given)?, sets),
            "get_atime_state" => fileset::times::get_state(fields(verb, given)?, sets),
            "atimes" => fileset::times::atimes(fields(verb, given)?, sets),
            "link" => fileset::links::link(fields(verb, given)?, sets),
            "get_link" => fileset::links::get(fields(verb, given)?, sets),
            "unlink" => fileset::links::unlink(fields(verb, given)?, sets),
            "get_size" => fileset::modes::sizes(fields(verb, given)?, sets),
            "set_size" => fileset::create::set_size(fields(verb, given)?, sets),
            "evict" => fileset::cache::evict(fields(verb, given)?, sets),
            "warm" => fileset::cache::warm(fields(verb, given)?, sets),
            "residency" => fileset::cache::residency(fields(verb, given)?, sets),

            "around" => {
                let request: wire::Around = fields(verb, given)?;
                around::switch(request.on);
                Ok(json!({}))
            }
            "sample_start" => {
                let request: wire::SampleStart = fields(verb, given)?;
                if self.sampler.is_some() {
                    return Err(Error::bad("sample_start: one is running"));
                }
                self.sampler = Some(Sampler::start(&request)?);
                Ok(json!({}))
            }
            "sample_stop" => {
                fields::<wire::Nothing>(verb, given)?;
                let sampler = self.sampler.take();
                sampler
                    .ok_or_else(|| Error::bad("sample_stop: wanted a sampler that was started"))?
                    .stop()
            }

            "files" => {
                let request = job_fields(verb, given)?;
                job::files::run(
                    request,
                    sets,
                    (&self.clock, &mut self.stretch),
                    &self.lifeline,
                )
            }
            "random" => {
                let request = job_fields(verb, given)?;
                job::random::run(
                    request,
                    sets,
                    (&self.clock, &mut self.stretch),
                    &self.lifeline,
                )
            }
            "matrix" => job::matrix::run(
                job_fields(verb, given)?,
                sets,
                (&self.clock, &mut self.stretch),
            ),
            "command" => {
                let request: (wire::Common, wire::CommandJob) = job_fields(verb, given)?;
                let foreign = request.0.user.is_some();
                let starter = &mut self.starter;
                let done = job::command::run(
                    request,
                    sets,
                    starter,
                    (&self.clock, &mut self.stretch),
                    self.isolated,
                );
                if foreign {
                    fileset::guard::inspect(sets)?;
                }
                done
            }
            "stream" => self.stream(job_fields(verb, given)?),
            _ => Err(Error::bad(format!(
                "verb: wanted one of protocol {PROTOCOL}, found {verb:?}"
            ))),
        }
    }

    fn stream(&mut self, request: (wire::Common, wire::StreamJob)) -> Result<Value> {
        let device = match &request.1.device {
            None => None,
            Some(name) => match (
                self.loops.get(&format!("/dev/{name}")),
                self.devices.get(name),
            ) {
                (Some(device), _) => Some(LabDevice::Loop(device)),
                (_, Some(device)) => Some(LabDevice::Disk(device)),
                _ => {
                    return Err(Error::bad(format!(
                        "request stream: device {name:?}: wanted one of this lab, found {:?}",
                        (self.loops.values().map(|device| &device.name))
                            .chain(self.devices.keys())
                            .collect::<Vec<_>>()
                    )))
                }
            },
        };
        job::stream::run(
            request,
            &mut self.sets,
            device,
            (&self.clock, &mut self.stretch),
            &self.lifeline,
        )
    }

    fn hello(&mut self) -> Result<Value> {
        let mut limit = open_files()?;
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the structure is ours.
        check(
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) },
            || format!("raise the limit of open files to {}", limit.rlim_max),
        )?;
        Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "protocol": PROTOCOL,
            "pid": std::process::id(),
            // SAFETY: getuid cannot fail.
            "uid": unsafe { libc::getuid() },
            "session": self.origin.session,
            "session_started": self.origin.started,
            "isolated": self.isolated,
            "privileged": privileged(),
            "clock": {
                "source": self.clock.source(),
                "hz": self.clock.hz(),
                "error": self.clock.error(),
            },
            "nofile": open_files()?.rlim_cur,
        }))
    }

    fn make_image(&mut self, request: wire::Image) -> Result<Value> {
        let file = image::make(&request)?;
        self.keep_image(Backing { file, window: None })
    }

    fn keep_image(&mut self, image: Backing) -> Result<Value> {
        let inode = stat_of(&image.file, "the image")?.st_ino;
        let number = self.next_image;
        self.next_image += 1;
        self.images.insert(number, image);
        Ok(json!({ "image": number, "inode": inode }))
    }

    fn claim(&mut self, request: &wire::DeviceClaim) -> Result<Value> {
        require_privilege("claim a disk")?;
        let device = Device::claim(request, &self.origin.proc)?;
        let answer = device.describe(&self.origin.proc)?;
        self.devices.insert(device.name.clone(), device);
        Ok(answer)
    }

    /// The first bytes of a claimed disk as something that a loop device can be attached over.
    fn window(&mut self, request: &wire::DeviceWindow) -> Result<Value> {
        let device = claimed(&mut self.devices, &request.device)?;
        let backing = Backing {
            file: device.writing(0)?,
            window: Some(Window {
                size: request.size,
                sector: device.sector(),
            }),
        };
        self.keep_image(backing)
    }

    fn free_image(&mut self, request: wire::ImageFree) -> Result<Value> {
        self.take_image(request.image).map(|_| json!({}))
    }

    fn take_image(&mut self, number: u64) -> Result<Backing> {
        self.images.remove(&number).ok_or_else(|| {
            Error::bad(format!(
                "image {number}: wanted one that is made and not attached, found {:?}",
                self.images.keys().collect::<Vec<_>>()
            ))
        })
    }

    fn attach(&mut self, request: wire::LoopAttach) -> Result<Value> {
        require_privilege("attach a loop device")?;
        let image = self.take_image(request.image)?;
        match loop_device::attach(image, request.direct_io, request.device.as_deref()) {
            Ok(device) => {
                let answer = json!({
                    "device": device.path(),
                    "name": device.name,
                    "direct_io": device.direct_io,
                    "inode": device.inode,
                });
                self.loops.insert(device.path(), device);
                Ok(answer)
            }
            Err((image, error)) => {
                self.images.insert(request.image, image);
                Err(error)
            }
        }
    }

    fn evict(&mut self, request: wire::EvictDevice) -> Result<Value> {
        let disk = request.device.strip_prefix("/dev/");
        if let Some(device) = disk.and_then(|name| self.devices.get(name)) {
            return device.evict().map(|()| json!({}));
        }
        let device = self.loops.get(&request.device).ok_or_else(|| {
            Error::bad(format!(
                "evict {}: wanted one that is attached here, found {:?}",
                request.device,
                self.loops.keys().collect::<Vec<_>>()
            ))
        })?;
        device.evict().map(|()| json!({}))
    }

    fn detach(&mut self, request: wire::LoopDetach) -> Result<Value> {
        let device = self.loops.remove(&request.device).ok_or_else(|| {
            Error::bad(format!(
                "detach {}: wanted one that is attached here, found {:?}",
                request.device,
                self.loops.keys().collect::<Vec<_>>()
            ))
        })?;
        match device.detach() {
            Ok(()) => Ok(json!({})),
            Err((kept, error)) => {
                if let Some(device) = kept {
                    self.loops.insert(request.device, device);
                }
                Err(error)
            }
        }
    }
}

fn claimed<'a>(devices: &'a mut BTreeMap<String, Device>, name: &str) -> Result<&'a mut Device> {
    let known = devices.keys().cloned().collect::<Vec<_>>();
    devices.get_mut(name).ok_or_else(|| {
        Error::bad(format!(
            "device {name:?}: wanted one that is claimed here, found {known:?}"
        ))
    })
}
