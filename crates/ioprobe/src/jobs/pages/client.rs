//! One client: a connection that never blocks, and the request that it is busy with.

use std::mem::size_of;
use std::net::SocketAddr;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_short, c_void, socklen_t};

use super::response::{Fault, Response};
use crate::clock::{monotonic_ns, Clock};
use crate::error::{errno_text, last_errno};

/// Where requests go, and how.
pub struct Route {
    pub address: SocketAddr,
    pub keep_alive: bool,
    pub timeout_ns: u64,
    pub most_body: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Until this moment (CLOCK_MONOTONIC) it does nothing.
    Waiting(u64),
    Connecting,
    Sending,
    Receiving,
    Finished,
}

/// How far a request has come.
pub enum Step {
    UnderWay,
    /// The response is whole; ticks since the request began.
    Answered(u64),
}

pub struct Client {
    pub phase: Phase,
    /// Which of the pages is asked for.
    pub page: usize,
    /// Requests that are still to be made, the present one included.
    pub left: u64,
    pub deadline_ns: u64,
    pub response: Response,
    pub connections: u64,
    socket: Option<OwnedFd>,
    /// The connection has carried a response before: the server may have closed it since.
    reused: bool,
    started: u64,
    sent: usize,
}

impl Client {
    pub fn new(route: &Route) -> Self {
        Client {
            phase: Phase::Finished,
            page: 0,
            left: 0,
            deadline_ns: u64::MAX,
            response: Response::new(route.most_body),
            connections: 0,
            socket: None,
            reused: false,
            started: 0,
            sent: 0,
        }
    }

    /// Starts with this page at this moment, over a connection of its own.
    pub fn assign(&mut self, page: usize, requests: u64, due_ns: u64) {
        self.socket = None;
        self.connections = 0;
        self.page = page;
        self.left = requests;
        self.phase = Phase::Waiting(due_ns);
    }

    /// The time of the request begins here, with the connection where there is none.
    pub fn begin(&mut self, request: &[u8], route: &Route, clock: &Clock) -> Result<(), Fault> {
        self.deadline_ns = monotonic_ns().saturating_add(route.timeout_ns);
        self.response.begin();
        self.sent = 0;
        self.started = clock.ticks();
        self.reused = self.socket.is_some();
        if self.reused {
            self.phase = Phase::Sending;
        } else {
            self.connect(route)?;
        }
        self.send(request, route)
    }

    fn connect(&mut self, route: &Route) -> Result<(), Fault> {
        self.socket = None;
        self.reused = false;
        self.connections += 1;
        let (socket, result) = connected(&route.address)?;
        self.socket = Some(socket);
        self.phase = match result {
            0 => Phase::Sending,
            libc::EINPROGRESS => Phase::Connecting,
            errno => return Err(no_connection(errno)),
        };
        Ok(())
    }

    /// What poll is to wait for; a negative descriptor is one that it passes over.
    pub fn watched(&self) -> libc::pollfd {
        let events: c_short = match self.phase {
            Phase::Connecting | Phase::Sending => libc::POLLOUT,
            Phase::Receiving => libc::POLLIN,
            Phase::Waiting(_) | Phase::Finished => 0,
        };
        libc::pollfd {
            fd: if events == 0 { -1 } else { self.descriptor() },
            events,
            revents: 0,
        }
    }

    fn descriptor(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Goes as far as it can without waiting.
    pub fn go_on(
        &mut self,
        request: &[u8],
        route: &Route,
        buffer: &mut [u8],
        clock: &Clock,
    ) -> Result<Step, Fault> {
        if self.phase == Phase::Connecting {
            match pending_error(self.descriptor()) {
                0 => self.phase = Phase::Sending,
                errno => return Err(no_connection(errno)),
            }
        }
        if self.phase == Phase::Sending {
            self.send(request, route)?;
        }
        if self.phase != Phase::Receiving {
            return Ok(Step::UnderWay);
        }
        loop {
            // SAFETY: the buffer is valid for its length.
            let n = unsafe {
                libc::recv(
                    self.descriptor(),
                    buffer.as_mut_ptr().cast::<c_void>(),
                    buffer.len(),
                    0,
                )
            };
            match n {
                -1 => match last_errno() {
                    libc::EAGAIN => return Ok(Step::UnderWay),
                    libc::EINTR => {}
                    _ if self.was_stale() => return self.again(request, route),
                    errno => {
                        return Err(format!("broke the connection off: {}", errno_text(errno)))
                    }
                },
                0 if self.was_stale() => return self.again(request, route),
                0 => {
                    self.response.closed()?;
                    return Ok(self.answered(route, clock));
                }
                n => {
                    self.response.take(&buffer[..n as usize])?;
                    if self.response.is_done() {
                        return Ok(self.answered(route, clock));
                    }
                }
            }
        }
    }

    fn answered(&mut self, route: &Route, clock: &Clock) -> Step {
        let ticks = clock.ticks().saturating_sub(self.started);
        if !(route.keep_alive && self.response.keeps_open()) {
            self.socket = None;
        }
        Step::Answered(ticks)
    }

    fn send(&mut self, request: &[u8], route: &Route) -> Result<(), Fault> {
        while self.phase == Phase::Sending {
            let rest = &request[self.sent..];
            // SAFETY: the slice is valid for its length.
            let n = unsafe {
                libc::send(
                    self.descriptor(),
                    rest.as_ptr().cast::<c_void>(),
                    rest.len(),
                    libc::MSG_NOSIGNAL,
                )
            };
            match n {
                -1 => match last_errno() {
                    libc::EAGAIN => return Ok(()),
                    libc::EINTR => {}
                    _ if self.was_stale() => {
                        self.sent = 0;
                        self.connect(route)?;
                    }
                    errno => {
                        return Err(format!("broke the connection off: {}", errno_text(errno)))
                    }
                },
                n => {
                    self.sent += n as usize;
                    if self.sent == request.len() {
                        self.phase = Phase::Receiving;
                    }
                }
            }
        }
        Ok(())
    }

    /// A server may close a connection that nobody uses, just as the next request is on its way: that is no failure, and the
    /// request is made once more over another one (RFC 9112, 9.3.1). What that takes is in its time.
    fn was_stale(&self) -> bool {
        self.reused && self.response.received == 0
    }

    fn again(&mut self, request: &[u8], route: &Route) -> Result<Step, Fault> {
        self.sent = 0;
        self.connect(route)?;
        self.send(request, route)?;
        Ok(Step::UnderWay)
    }
}

fn no_connection(errno: c_int) -> Fault {
    format!("takes no connection: {}", errno_text(errno))
}

/// A socket on its way to the address, and what connect(2) said.
fn connected(address: &SocketAddr) -> Result<(OwnedFd, c_int), Fault> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: the descriptor is new and ours; the structures are ours and of the size that is given.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let fd = match libc::socket(family, kind, 0) {
            -1 => return Err(format!("cannot be reached: {}", errno_text(last_errno()))),
            fd => OwnedFd::from_raw_fd(fd),
        };
        let on: c_int = 1;
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NODELAY,
            (&on as *const c_int).cast(),
            size_of::<c_int>() as socklen_t,
        );
        let result = match address {
            SocketAddr::V4(v4) => {
                let mut name: libc::sockaddr_in = std::mem::zeroed();
                name.sin_family = libc::AF_INET as libc::sa_family_t;
                name.sin_port = v4.port().to_be();
                name.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                libc::connect(
                    fd.as_raw_fd(),
                    (&name as *const libc::sockaddr_in).cast(),
                    size_of::<libc::sockaddr_in>() as socklen_t,
                )
            }
            SocketAddr::V6(v6) => {
                let mut name: libc::sockaddr_in6 = std::mem::zeroed();
                name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                name.sin6_port = v6.port().to_be();
                name.sin6_addr.s6_addr = v6.ip().octets();
                name.sin6_scope_id = v6.scope_id();
                libc::connect(
                    fd.as_raw_fd(),
                    (&name as *const libc::sockaddr_in6).cast(),
                    size_of::<libc::sockaddr_in6>() as socklen_t,
                )
            }
        };
        let errno = if result == 0 { 0 } else { last_errno() };
        Ok((fd, errno))
    }
}

fn pending_error(fd: RawFd) -> c_int {
    let (mut errno, mut length): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
    // SAFETY: both structures are ours.
    unsafe {
        match libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&mut errno as *mut c_int).cast(),
            &mut length,
        ) {
            0 => errno,
            _ => last_errno(),
        }
    }
}
