//! The probe as process 1 of a guest: brings up the little that a kernel needs, then serves the
//! conductor's port.
//!
//! Nothing else runs in a guest: no shell, no init system, no daemon that could interfere. Modules
//! are loaded in the order of a list that was created with the initramfs, so nothing has to be
//! searched.

use crate::sys;
use rustix::io::Errno;
use rustix::mount::{mount_change, MountFlags, MountPropagationFlags};
use rustix::system::{finit_module, RebootCommand};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::io::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};

use crate::error::{Doing, Error, Result};
use crate::sys::{c_text, open};

/// Names of ports on the virtio bus, which QEMU is given too: the port of the protocol, and one on
/// which a guest that has not hung sends a heartbeat every second.
const PORT: &str = "iotrial";
const PULSE: &str = "iotrial.pulse";
/// Option for the probe that serves here: it shares its mounts below /run with the kernel's own
/// threads.
pub const OF_GUEST: &str = "--of-guest";
const SHARED: &str = "/run";
const PULSE_EVERY: Duration = Duration::from_secs(1);
/// One line per module: its path and, after a space, its parameters.
const MODULES: &str = "/modules";
const PORTS: &str = "/sys/class/virtio-ports";
const PORT_WITHIN: Duration = Duration::from_secs(20);

/// Serve as process 1, and power the guest off when the conductor has hung up. Does not return.
pub fn run() -> ! {
    if std::process::id() != 1 {
        eprintln!("ioprobe: --init: only works as process 1 of a guest");
        std::process::exit(2);
    }
    match bring_up().and_then(serve) {
        Ok(status) => println!("ioprobe: init: the probe ended with {status}"),
        Err(error) => println!("ioprobe: init: {error}"),
    }
    rustix::fs::sync();
    let _ = rustix::system::reboot(RebootCommand::PowerOff);
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn bring_up() -> Result<OwnedFd> {
    for (kind, target) in [
        ("devtmpfs", "/dev"),
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("tmpfs", "/run"),
        ("tmpfs", "/tmp"),
    ] {
        fs::create_dir_all(target).doing(|| format!("make {target}"))?;
        mount(kind, target)?;
    }
    share(SHARED)?;
    let list = fs::read_to_string(MODULES).doing(|| format!("read {MODULES}"))?;
    for line in list.lines().filter(|line| !line.is_empty()) {
        let (path, parameters) = line.split_once(' ').unwrap_or((line, ""));
        load(path, parameters)?;
    }
    port(PORT)
}

fn mount(kind: &str, target: &str) -> Result<()> {
    rustix::mount::mount(kind, target, kind, MountFlags::empty(), None)
        .doing(|| format!("mount {kind} on {target}"))
}

/// Make mounts below the target shared: they appear in all mount namespaces.
fn share(target: &str) -> Result<()> {
    mount_change(target, MountPropagationFlags::SHARED)
        .doing(|| format!("share the mounts of {target}"))
}

/// Load a module. One that exists already is fine: a kernel may have it built in. So is one without
/// its hardware: an emulated processor has no AES instructions.
fn load(path: &str, parameters: &str) -> Result<()> {
    let file = open(path, libc::O_RDONLY, 0)?;
    let text = c_text(parameters)?;
    match finit_module(&file, &text, 0) {
        Err(Errno::EXIST | Errno::NODEV) => Ok(()),
        loaded => loaded.doing(|| format!("load module {path}")),
    }
}

/// Open a port of the conductor as soon as it appears on the bus.
fn port(wanted: &str) -> Result<OwnedFd> {
    let until = Instant::now() + PORT_WITHIN;
    loop {
        for entry in fs::read_dir(PORTS).into_iter().flatten().flatten() {
            let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            if name.trim_end() == wanted {
                let node = format!("/dev/{}", entry.file_name().to_string_lossy());
                return open(&node, libc::O_RDWR, 0);
            }
        }
        if Instant::now() > until {
            return Err(Error::verify(format!(
                "find port {wanted} in {PORTS}: not found within {PORT_WITHIN:?}"
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Start the probe itself to answer from the port, and reap orphans until the probe has ended.
fn serve(port: OwnedFd) -> Result<c_int> {
    let own = "/proc/self/exe";
    let input = port.try_clone().doing(|| "open the port twice")?;
    let child = Command::new(own)
        .args(["--isolate", OF_GUEST])
        .stdin(input)
        .stdout(port)
        .spawn()
        .doing(|| format!("start {own}"))?;
    let pid = child.id() as pid_t;
    let mut pulse = File::from(self::port(PULSE)?);
    std::thread::spawn(move || {
        while pulse.write_all(b".").is_ok() {
            std::thread::sleep(PULSE_EVERY);
        }
    });
    loop {
        match sys::wait(-1, 0) {
            Err(errno) => return Err(Error::errno("wait for the probe", errno)),
            Ok(Some((ended, status))) if ended == pid => return Ok(status),
            Ok(_) => {}
        }
    }
}
