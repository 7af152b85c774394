//! One session: the state that the probe keeps between requests, and the dispatch of verbs.

mod devices;

use rustix::fs::Mode;
use rustix::process::{getrlimit, getuid, setrlimit, umask, Resource, Rlimit};
use serde_json::{json, Value};

use self::devices::Devices;
use crate::broker::Broker;
use crate::clock::{monotonic_ns, realtime_ns, Clock};
use crate::counters;
use crate::error::{Doing, Error, Result};
use crate::fileset::{self, Registry};
use crate::isolate::{privileged, Lifeline, Origin};
use crate::jobs;
use crate::jobs::replay::Replays;
use crate::jobs::stretch::Stretch;
use crate::prefault;
use crate::process::orphans;
use crate::process::start::{Inherited, Starter};
use crate::protocol::{self, fields, job_fields, Fields};
use crate::sampler::Sampler;
use crate::server;
use crate::sys::device::content;
use crate::sys::open_files;
use crate::sys::{age, files, loop_device, loop_table, mount, remove, run};
use crate::trace::block::{counting, Requests};
use crate::watch::Watch;

pub const PROTOCOL: u32 = 1;

pub struct Session {
    clock: Clock,
    stretch: Stretch,
    isolated: bool,
    lifeline: Lifeline,
    origin: Origin,
    starter: Starter,
    sets: Registry,
    replays: Replays,
    devices: Devices,
    broker: Option<Broker>,
    sampler: Option<Sampler>,
    watch: Option<Watch>,
    requests: Option<Requests>,
}

impl Session {
    pub fn new(
        isolated: bool,
        lifeline: Lifeline,
        origin: Origin,
        broker: Option<Broker>,
    ) -> Result<Self> {
        prefault::bring_own_code();
        let clock = Clock::chosen()?;
        Ok(Session {
            clock,
            stretch: Stretch::new(clock),
            isolated,
            lifeline,
            origin,
            starter: Starter::new(Inherited {
                open_files: open_files(),
                // Our own files get exactly the requested modes. Child programs get the original
                // umask back.
                umask: umask(Mode::empty()).bits(),
            }),
            sets: Registry::default(),
            replays: Replays::default(),
            devices: Devices::default(),
            broker,
            sampler: None,
            watch: None,
            requests: None,
        })
    }

    /// Perform one request. With `account_requests` on a job, also count the block requests to its
    /// devices while it runs.
    pub fn perform(&mut self, verb: &str, mut params: Fields) -> Result<Value> {
        let account_requests = params.remove("account_requests");
        if !matches!(account_requests, Some(Value::Bool(true))) {
            return match account_requests {
                None | Some(Value::Null | Value::Bool(false)) => {
                    server::judged(self.carry_out(verb, params))
                }
                Some(other) => Err(Error::bad(format!(
                    "request {verb}: account_requests: expected true or false, found {other}"
                ))),
            };
        }
        if self.requests.is_some() {
            return Err(Error::bad(format!(
                "request {verb}: account_requests: requests are already counted; stop it with requests_stop"
            )));
        }
        let devices = protocol::devices_of_job(verb, &params)?;
        let requests = Requests::begin(&devices)?;
        let mut answer = server::judged(self.carry_out(verb, params))?;
        let (found, lost) = requests.counted()?;
        answer["requests"] = found;
        answer["requests_lost"] = json!(lost);
        Ok(answer)
    }

    fn carry_out(&mut self, verb: &str, params: Fields) -> Result<Value> {
        let (sets, devices, proc) = (&mut self.sets, &mut self.devices, &self.origin.proc);
        let timing = (&self.clock, &mut self.stretch);
        match verb {
            "hello" => fields::<protocol::Nothing>(verb, params).and_then(|_| self.hello()),
            "time" => fields::<protocol::Nothing>(verb, params)
                .map(|_| json!({"monotonic_ns": monotonic_ns(), "realtime_ns": realtime_ns()})),

            "read" => files::read(fields(verb, params)?),
            "write" => files::write(fields(verb, params)?),
            "stat" => files::describe(fields(verb, params)?),
            "statfs" => files::file_system(fields(verb, params)?),
            "list" => files::list(fields(verb, params)?),
            "readlink" => files::read_link(fields(verb, params)?),
            "mkdir" => files::make(fields(verb, params)?),
            "remove" => remove::remove(fields(verb, params)?),
            "fsync" => files::sync_one(fields(verb, params)?),
            "syncfs" => files::sync_file_system(fields(verb, params)?),
            "sync" => fields::<protocol::Nothing>(verb, params).map(|_| files::sync()),
            "drop_caches" => files::drop_caches(fields(verb, params)?),
            "age" => age::age(&fields(verb, params)?),
            "use_free_space" => age::use_free_space(&fields(verb, params)?),
            "trim" => age::trim(&fields(verb, params)?),
            "mount" => mount::mount(fields(verb, params)?),
            "unmount" => mount::unmount(fields(verb, params)?),
            "set_times" => files::set_times(fields(verb, params)?),
            "end_session" => orphans::end_session(fields(verb, params)?, self.isolated),
            "image" => devices.make_image(&fields(verb, params)?),
            "image_modelled" => devices.make_modelled(verb, params, self.broker.as_ref()),
            "disk_account" => devices.account(&fields(verb, params)?),
            "disk_mark" => devices.mark(&fields(verb, params)?),
            "disk_forget" => devices.forget(&fields(verb, params)?),
            "disk_pace" => devices.pace(&fields(verb, params)?),
            "image_free" => devices.free_image(&fields(verb, params)?),
            "loop_attach" => devices.attach(&fields(verb, params)?),
            "loop_free" => {
                fields::<protocol::Nothing>(verb, params).and_then(|_| loop_table::describe_free())
            }
            "loop_status" => loop_device::describe(&fields(verb, params)?),
            "loop_remove" => loop_table::remove(&fields(verb, params)?),
            "loop_detach" => devices.detach(&fields(verb, params)?),
            "evict_device" => devices.evict(&fields(verb, params)?),
            "image_renew" => devices.renew(&fields(verb, params)?),
            "device_claim" => devices.claim(&fields(verb, params)?, proc),
            "device_users" => {
                let request: protocol::OfDevice = fields(verb, params)?;
                Ok(devices.disk(&request.device)?.users(proc))
            }
            "device_check" => {
                let request: protocol::DeviceCheck = fields(verb, params)?;
                content::look(devices.disk(&request.device)?, &request)
            }
            "device_scan" => {
                let request: protocol::DeviceRange = fields(verb, params)?;
                content::scan(devices.disk(&request.device)?, &request)
            }
            "device_zero" => {
                let request: protocol::DeviceRange = fields(verb, params)?;
                content::zero(devices.disk(&request.device)?, &request)
            }
            "device_mark" => {
                let request: protocol::DeviceMark = fields(verb, params)?;
                content::mark(devices.disk(&request.device)?, &request)
            }
            "device_marked" => {
                let request: protocol::DeviceMarked = fields(verb, params)?;
                content::marked(devices.disk(&request.device)?, &request)
            }
            "device_window" => devices.window(&fields(verb, params)?),
            "device_release" => {
                let request: protocol::OfDevice = fields(verb, params)?;
                devices.disk(&request.device)?.release();
                Ok(json!({}))
            }
            "device_reclaim" => {
                let request: protocol::OfDevice = fields(verb, params)?;
                let device = devices.disk(&request.device)?;
                device.reclaim(proc).map(|()| json!({}))
            }
            "device_close" => {
                let request: protocol::OfDevice = fields(verb, params)?;
                devices.close(&request.device)
            }
            "run" => run::run(fields(verb, params)?, &mut self.starter, self.isolated),

            "server_start" => {
                server::start(fields(verb, params)?, &mut self.starter, self.isolated)
            }
            "server_stop" => server::stop(fields(verb, params)?, self.isolated),
            "server_status" => server::status(fields(verb, params)?),
            "free_port" => server::free_port(fields(verb, params)?),

            "fileset" => fileset::create::make(fields(verb, params)?, sets),
            "fileset_verify" => fileset::verify::verify(fields(verb, params)?, sets),
            "set_mode" => fileset::create::set(fields(verb, params)?, sets),
            "get_mode" => fileset::create::get(fields(verb, params)?, sets),
            "set_atime_state" => fileset::times::set_state(fields(verb, params)?, sets),
            "get_atime_state" => fileset::times::get_state(fields(verb, params)?, sets),
            "atimes" => fileset::times::atimes(fields(verb, params)?, sets),
            "link" => fileset::links::link(fields(verb, params)?, sets),
            "get_link" => fileset::links::get(fields(verb, params)?, sets),
            "unlink" => fileset::links::unlink(fields(verb, params)?, sets),
            "get_size" => fileset::create::sizes(fields(verb, params)?, sets),
            "set_size" => fileset::create::set_size(fields(verb, params)?, sets),
            "lay" => fileset::layout::lay(fields(verb, params)?, sets),
            "extents" => fileset::extents::get(fields(verb, params)?, sets),
            "copy_anew" => fileset::copy::copy_files(fields(verb, params)?, sets),
            "paths" => fileset::copy::paths(fields(verb, params)?, sets),
            "evict" => fileset::cache::evict(fields(verb, params)?, sets),
            "warm" => fileset::cache::warm(fields(verb, params)?, sets),
            "evict_tree" => fileset::cache::evict_tree(fields(verb, params)?),
            "evict_files" => fileset::cache::evict_files(fields(verb, params)?),
            "warm_files" => fileset::cache::warm_files(fields(verb, params)?),
            "residency" => fileset::cache::residency(fields(verb, params)?, sets),

            "around" => {
                let request: protocol::Around = fields(verb, params)?;
                counters::switch(request.on);
                Ok(json!({}))
            }
            "watch_start" => {
                let request: protocol::WatchStart = fields(verb, params)?;
                let watch = Watch::start(&request)?;
                let address = watch.address().to_string();
                self.watch = Some(watch);
                Ok(json!({ "listens": address }))
            }
            "watch_stop" => {
                fields::<protocol::Nothing>(verb, params)?;
                let watch = self.watch.take();
                watch
                    .ok_or_else(|| {
                        Error::bad("watch_stop: no watch is running; start one with watch_start")
                    })?
                    .stop()
            }
            "sample_start" => {
                let request: protocol::SampleStart = fields(verb, params)?;
                if self.sampler.is_some() {
                    return Err(Error::bad(
                        "sample_start: a sampler is already running; stop it with sample_stop",
                    ));
                }
                self.sampler = Some(Sampler::start(&request)?);
                Ok(json!({}))
            }
            "sample_stop" => {
                fields::<protocol::Nothing>(verb, params)?;
                let sampler = self.sampler.take();
                sampler
                    .ok_or_else(|| {
                        Error::bad(
                            "sample_stop: no sampler is running; start one with sample_start",
                        )
                    })?
                    .stop()
            }
            "requests_start" => {
                let request: protocol::RequestsStart = fields(verb, params)?;
                if self.requests.is_some() {
                    return Err(Error::bad(
                        "requests_start: requests are already counted; stop it with requests_stop",
                    ));
                }
                self.requests = Some(Requests::begin(&request.devices)?);
                counting(true);
                Ok(json!({}))
            }
            "requests_read" => {
                fields::<protocol::Nothing>(verb, params)?;
                let requests = self.requests.as_ref().ok_or_else(|| {
                    Error::bad(
                        "requests_read: requests are not counted; start it with requests_start",
                    )
                })?;
                let (found, lost) = requests.counted()?;
                Ok(json!({ "requests": found, "requests_lost": lost }))
            }
            "requests_stop" => {
                fields::<protocol::Nothing>(verb, params)?;
                self.requests.take().map(|_| json!({})).ok_or_else(|| {
                    Error::bad(
                        "requests_stop: requests are not counted; start it with requests_start",
                    )
                })
            }

            "files" => {
                let request = job_fields(verb, params)?;
                jobs::files::run(request, sets, timing, &self.lifeline)
            }
            "random" => {
                let request = job_fields(verb, params)?;
                jobs::random::run(request, sets, timing, &self.lifeline)
            }
            "replay_prepare" => self.replays.prepare(&fields(verb, params)?),
            "replay" => {
                let request = job_fields(verb, params)?;
                jobs::replay::run(request, &mut self.replays, timing, &self.lifeline)
            }
            "matrix" => jobs::matrix::run(job_fields(verb, params)?, sets, timing),
            "rebuild" => jobs::rebuild::run(job_fields(verb, params)?, sets, timing),
            "command" => {
                let request: (protocol::Common, protocol::CommandJob) = job_fields(verb, params)?;
                let foreign = request.0.user.is_some();
                let starter = &mut self.starter;
                let done = jobs::command::run(
                    request,
                    sets,
                    starter,
                    timing,
                    (&self.lifeline, self.isolated),
                );
                if foreign {
                    fileset::inspect(sets)?;
                }
                done
            }
            "stream" => {
                let request: (protocol::Common, protocol::StreamJob) = job_fields(verb, params)?;
                let device = match &request.1.device {
                    None => None,
                    Some(name) => Some(devices.to_stream(name)?),
                };
                jobs::stream::run(request, sets, device, timing, &self.lifeline)
            }
            _ => Err(Error::bad(format!(
                "verb: not in protocol {PROTOCOL}: {verb:?}"
            ))),
        }
    }

    fn hello(&mut self) -> Result<Value> {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit {
            current: maximum,
            maximum,
        };
        setrlimit(Resource::Nofile, limit)
            .doing(|| format!("raise the limit of open files to {maximum:?}"))?;
        Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "protocol": PROTOCOL,
            "pid": std::process::id(),
            "uid": getuid().as_raw(),
            "session": self.origin.session,
            "session_started": self.origin.started,
            "isolated": self.isolated,
            "privileged": privileged(),
            "clock": {
                "source": self.clock.source(),
                "hz": self.clock.hz(),
                "error": self.clock.error(),
            },
            "nofile": open_files().rlim_cur,
        }))
    }
}
