//! The block devices of a session: images, loop devices over them, and claimed disks. Dropping one
//! releases it.

use std::collections::BTreeMap;
use std::os::unix::io::OwnedFd;

use serde_json::{json, Value};
use simdisk::{Description, Disk};

use crate::broker::Broker;
use crate::error::{Error, Result};
use crate::isolate::require_privilege;
use crate::jobs::stream::LabDevice;
use crate::protocol;
use crate::sys::device::Device;
use crate::sys::image;
use crate::sys::loop_device::{self, Backing, LoopDevice, Window};
use crate::sys::stat_of;

#[derive(Default)]
pub struct Devices {
    /// Created but not attached, by the number given in the answer.
    images: BTreeMap<u64, Backing>,
    last_image: u64,
    /// By path.
    loops: BTreeMap<String, LoopDevice>,
    /// Claimed, by name.
    disks: BTreeMap<String, Device>,
}

impl Devices {
    pub fn make_image(&mut self, request: &protocol::Image) -> Result<Value> {
        let file = image::make(request)?;
        self.keep_image(Backing {
            file,
            window: None,
            disk: None,
        })
    }

    /// Create an image on a simulated disk, which holds its data in memory.
    pub fn make_modelled(
        &mut self,
        verb: &str,
        params: protocol::Fields,
        broker: Option<&Broker>,
    ) -> Result<Value> {
        let request: Description = protocol::fields(verb, params.clone())?;
        request.check()?;
        let broker = broker.ok_or_else(|| {
            Error::unsupported("make a simulated disk: the probe must be started with --isolate")
        })?;
        let (file, disk) = broker.disk(params, request.size)?;
        let pid = disk.pid;
        let mut answer = self.keep_image(Backing {
            file,
            window: None,
            disk: Some(disk),
        })?;
        answer["server"] = json!(pid);
        Ok(answer)
    }

    /// Return the statistics that the simulated disk under a loop device keeps.
    pub fn account(&self, request: &protocol::OfDevice) -> Result<Value> {
        Ok(self.modelled("disk_account", &request.device)?.account()?)
    }

    /// Set whether a simulated disk takes as long as its model says.
    pub fn pace(&self, request: &protocol::DiskPace) -> Result<Value> {
        let disk = self.modelled("disk_pace", &request.device)?;
        disk.set_pace(request.modelled)?;
        Ok(json!({}))
    }

    /// Put a mark into the log of a simulated disk.
    pub fn mark(&self, request: &protocol::DiskMark) -> Result<Value> {
        self.modelled("disk_mark", &request.device)?
            .mark(&request.text)?;
        Ok(json!({}))
    }

    /// Drop what was written to a simulated disk over an image, and what is cached of it.
    pub fn forget(&self, request: &protocol::OfDevice) -> Result<Value> {
        let disk = self.modelled("disk_forget", &request.device)?;
        if let Some(device) = self.loops.get(&format!("/dev/{}", request.device)) {
            device.evict()?;
        }
        disk.forget()?;
        Ok(json!({}))
    }

    fn modelled(&self, verb: &str, device: &str) -> Result<&Disk> {
        let found = self.loops.get(&format!("/dev/{device}"));
        found.and_then(LoopDevice::disk).ok_or_else(|| {
            Error::bad(format!(
                "{verb}: device {device:?} is not on a simulated disk"
            ))
        })
    }

    fn keep_image(&mut self, image: Backing) -> Result<Value> {
        let inode = stat_of(&image.file, "the image")?.st_ino;
        self.last_image += 1;
        self.images.insert(self.last_image, image);
        Ok(json!({ "image": self.last_image, "inode": inode }))
    }

    pub fn free_image(&mut self, request: &protocol::ImageFree) -> Result<Value> {
        self.take_image(request.image).map(|_| json!({}))
    }

    fn take_image(&mut self, number: u64) -> Result<Backing> {
        self.images.remove(&number).ok_or_else(|| {
            Error::bad(format!(
                "image {number}: no such unattached image; unattached images: {:?}",
                self.images.keys().collect::<Vec<_>>()
            ))
        })
    }

    pub fn attach(&mut self, request: &protocol::LoopAttach) -> Result<Value> {
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

    pub fn detach(&mut self, request: &protocol::LoopDetach) -> Result<Value> {
        let path = &request.device;
        let device = match self.loops.remove(path) {
            Some(device) => device,
            None => return Err(self.not_attached("detach", path)),
        };
        match device.detach() {
            Ok(()) => Ok(json!({})),
            Err((kept, error)) => {
                if let Some(device) = kept {
                    self.loops.insert(path.clone(), device);
                }
                Err(error)
            }
        }
    }

    pub fn evict(&self, request: &protocol::EvictDevice) -> Result<Value> {
        let path = &request.device;
        let disk = path.strip_prefix("/dev/");
        match (
            disk.and_then(|name| self.disks.get(name)),
            self.loops.get(path),
        ) {
            (Some(device), _) => device.evict()?,
            (_, Some(device)) => device.evict()?,
            _ => return Err(self.not_attached("evict", path)),
        }
        Ok(json!({}))
    }

    pub fn renew(&self, request: &protocol::EvictDevice) -> Result<Value> {
        match self.loops.get(&request.device) {
            Some(device) => device.renew()?,
            None => return Err(self.not_attached("renew", &request.device)),
        }
        Ok(json!({}))
    }

    fn not_attached(&self, doing: &str, path: &str) -> Error {
        Error::bad(format!(
            "{doing} {path}: not attached by this probe; attached: {:?}",
            self.loops.keys().collect::<Vec<_>>()
        ))
    }

    pub fn claim(&mut self, request: &protocol::DeviceClaim, proc: &OwnedFd) -> Result<Value> {
        require_privilege("claim a disk")?;
        let device = Device::claim(request, proc)?;
        let answer = device.describe(proc)?;
        self.disks.insert(device.name.clone(), device);
        Ok(answer)
    }

    /// Return a claimed disk.
    pub fn disk(&mut self, name: &str) -> Result<&mut Device> {
        let known = self.disks.keys().cloned().collect::<Vec<_>>();
        self.disks.get_mut(name).ok_or_else(|| {
            Error::bad(format!(
                "device {name:?}: not claimed by this probe; claimed: {known:?}"
            ))
        })
    }

    pub fn close(&mut self, name: &str) -> Result<Value> {
        self.disk(name)?;
        self.disks.remove(name);
        Ok(json!({}))
    }

    /// Make the first bytes of a claimed disk an image that a loop device can be attached to.
    pub fn window(&mut self, request: &protocol::DeviceWindow) -> Result<Value> {
        let device = self.disk(&request.device)?;
        let backing = Backing {
            file: device.writing(0)?,
            window: Some(Window {
                size: request.size,
                sector: device.sector(),
            }),
            disk: None,
        };
        self.keep_image(backing)
    }

    /// Return the device that a job may stream from. Only devices of this session are allowed.
    pub fn to_stream(&self, name: &str) -> Result<LabDevice<'_>> {
        match (
            self.loops.get(&format!("/dev/{name}")),
            self.disks.get(name),
        ) {
            (Some(device), _) => Ok(LabDevice::Loop(device)),
            (_, Some(device)) => Ok(LabDevice::Disk(device)),
            _ => Err(Error::bad(format!(
                "request stream: device {name:?}: not in this lab; its devices: {:?}",
                (self.loops.values().map(|device| &device.name))
                    .chain(self.disks.keys())
                    .collect::<Vec<_>>()
            ))),
        }
    }
}
