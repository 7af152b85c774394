//! How a server is known to be ready: it takes a connection, or a file says so.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::error::{Doing, Error, Result};
use crate::protocol::Ready;

/// On this machine a connection is made or refused at once.
const PATIENCE: Duration = Duration::from_millis(100);

/// `bad_request` unless exactly one way is asked for.
pub fn check(wanted: &Ready) -> Result<()> {
    let port = match wanted.tcp {
        Some(port) => u16::try_from(port).ok().filter(|port| *port > 0).map(|_| 1),
        None => Some(0),
    };
    let ways =
        port.map(|tcp| tcp + u32::from(wanted.socket.is_some()) + u32::from(wanted.file.is_some()));
    match ways {
        Some(1) if wanted.contains.is_none() || wanted.file.is_some() => Ok(()),
        _ => Err(Error::bad(
            "request server_start: ready: wanted one of tcp (a port from 1 to 65535), socket and file (with contains)",
        )),
    }
}

pub fn is_ready(wanted: &Ready) -> bool {
    match (wanted.tcp, &wanted.socket, &wanted.file) {
        (Some(port), _, _) => {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16));
            TcpStream::connect_timeout(&address, PATIENCE).is_ok()
        }
        (_, Some(path), _) => UnixStream::connect(path).is_ok(),
        (_, _, Some(path)) => {
            let text = std::fs::read(path);
            let wanted = wanted.contains.as_deref().unwrap_or_default();
            text.is_ok_and(|text| String::from_utf8_lossy(&text).contains(wanted))
        }
        _ => false,
    }
}

/// A port of this machine's loopback that nobody listens on at this moment.
pub fn free_port() -> Result<u16> {
    let doing = || "find a free port on 127.0.0.1";
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing(doing)?;
    Ok(listener.local_addr().doing(doing)?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Ready {
        Ready {
            tcp: None,
            socket: None,
            file: None,
            contains: None,
        }
    }

    #[test]
    fn one_way_is_asked_for_and_no_more() {
        assert!(check(&nothing()).is_err());
        let one = |port| Ready {
            tcp: Some(port),
            ..nothing()
        };
        assert!(check(&one(80)).is_ok());
        assert!(check(&one(0)).is_err());
        assert!(check(&one(65_536)).is_err());
        let two = Ready {
            socket: Some("/s".to_string()),
            ..one(80)
        };
        assert!(check(&two).is_err());
        let no_file = Ready {
            contains: Some("x".to_string()),
            ..one(80)
        };
        assert!(check(&no_file).is_err());
    }

    #[test]
    fn a_port_that_is_listened_on_is_ready() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let wanted = Ready {
            tcp: Some(u32::from(port)),
            ..nothing()
        };
        assert!(is_ready(&wanted));
        drop(listener);
        assert!(!is_ready(&wanted));
    }
}
