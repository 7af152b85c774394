//! Counters of this machine, a file server, while another machine works on its files: the changes
//! between two marks that the other machine sets.
//!
//! The work and its timed part belong to another probe. Just before the timed part, that probe
//! sends a mark over the network and continues when it is answered; just after it, it sends
//! another. What it does outside of that, such as verifying what was written, is in neither
//! machine's counters.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{json, Map, Value};

use crate::counters::devices::{Activity, Counters};
use crate::counters::{self, Moment};
use crate::error::{Doing, Error, Result};
use crate::protocol::WatchStart;

const BEGUN: u8 = b'<';
const ENDED: u8 = b'>';
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
const CARDS: &str = "/sys/class/net";
const OF_CARD: [&str; 4] = ["rx_bytes", "rx_packets", "tx_bytes", "tx_packets"];

/// The working probe's connection to the file server.
pub struct Peer(TcpStream);

impl Peer {
    /// Signal that the timed part is about to begin. Returns when the mark has been answered.
    pub fn begin(address: &str) -> Result<Self> {
        let doing = || format!("notify {address} that the work starts");
        let wanted: SocketAddr = address
            .parse()
            .map_err(|_| Error::bad(format!("peer: expected IP:PORT, found {address:?}")))?;
        let stream = TcpStream::connect_timeout(&wanted, ANSWERS_WITHIN).doing(doing)?;
        stream.set_nodelay(true).doing(doing)?;
        stream.set_read_timeout(Some(ANSWERS_WITHIN)).doing(doing)?;
        let mut peer = Peer(stream);
        peer.say(BEGUN).doing(doing)?;
        Ok(peer)
    }

    /// Signal the end of the timed part.
    pub fn end(&mut self) -> Result<()> {
        self.say(ENDED)
            .doing(|| "notify the server that the work has ended")
    }

    fn say(&mut self, mark: u8) -> std::io::Result<()> {
        self.0.write_all(&[mark])?;
        self.0.read_exact(&mut [0])
    }
}

/// Listens for marks until it is stopped.
pub struct Watch {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    found: Arc<Mutex<Option<Value>>>,
    /// The connection on which marks arrive. A peer that has died sends no notice.
    open: Arc<Mutex<Option<TcpStream>>>,
    thread: JoinHandle<Result<()>>,
}

impl Watch {
    pub fn start(request: &WatchStart) -> Result<Self> {
        let doing = || format!("listen on {}", request.listen);
        let listener = TcpListener::bind(&request.listen).doing(doing)?;
        let address = listener.local_addr().doing(doing)?;
        let mut counted = Counted::open(request)?;
        let over = Arc::new(AtomicBool::new(false));
        let found = Arc::new(Mutex::new(None));
        let open = Arc::new(Mutex::new(None));
        let (ending, recording, opened) = (over.clone(), found.clone(), open.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.doing(|| "accept a connection")?;
                *locked(&opened) = Some(stream.try_clone().doing(|| "duplicate a connection")?);
                if ending.load(Ordering::SeqCst) {
                    break;
                }
                let counts = counted.between_marks(&mut stream)?;
                *locked(&recording) = Some(counts);
            }
            Ok(())
        });
        Ok(Watch {
            address,
            over,
            found,
            open,
            thread,
        })
    }

    /// Return the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Return what happened between the last two marks, in the form of a job's answer.
    pub fn stop(self) -> Result<Value> {
        self.over.store(true, Ordering::SeqCst);
        if let Some(stream) = locked(&self.open).take() {
            // Nothing more arrives on it, or it is closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Connect, to wake up the thread if it is waiting for a connection.
        drop(TcpStream::connect_timeout(&self.address, ANSWERS_WITHIN));
        self.thread
            .join()
            .map_err(|_| Error::verify("watch: its thread stopped unexpectedly".to_string()))??;
        let found = locked(&self.found).take();
        found.ok_or_else(|| {
            Error::verify(
                "watch: the start and end marks of the timed part did not arrive".to_string(),
            )
        })
    }
}

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// The counters, with the memory to read them into.
struct Counted {
    devices: Counters,
    cards: Vec<Card>,
}

struct Reading {
    devices: Vec<Activity>,
    cards: Vec<[u64; OF_CARD.len() + 1]>,
    moment: Moment,
}

impl Counted {
    fn open(request: &WatchStart) -> Result<Self> {
        Ok(Counted {
            devices: Counters::open(&request.devices)?,
            cards: request
                .cards
                .iter()
                .map(|name| Card::find(name))
                .collect::<Result<_>>()?,
        })
    }

    fn between_marks(&mut self, stream: &mut TcpStream) -> Result<Value> {
        let before = self.at(stream, BEGUN)?;
        let after = self.at(stream, ENDED)?;
        let mut cards = Map::new();
        for (place, card) in self.cards.iter().enumerate() {
            let names = OF_CARD.iter().chain(&["interrupts"]);
            let more = before.cards[place].iter().zip(&after.cards[place]);
            let counts: Map<String, Value> = names
                .zip(more)
                .map(|(name, (before, after))| (name.to_string(), json!(after - before)))
                .collect();
            cards.insert(card.name.clone(), Value::Object(counts));
        }
        Ok(json!({
            "devices": self.devices.between(&before.devices, &after.devices),
            "around": counters::between(&before.moment, &after.moment),
            "cards": cards,
        }))
    }

    /// Wait for this mark, read all counters, and answer the mark.
    fn at(&mut self, stream: &mut TcpStream, wanted: u8) -> Result<Reading> {
        let mut mark = [0];
        stream.read_exact(&mut mark).doing(|| "wait for a mark")?;
        if mark != [wanted] {
            return Err(Error::verify(format!(
                "watch: expected the mark {:?}, found {:?}",
                char::from(wanted),
                char::from(mark[0])
            )));
        }
        let moment = counters::before();
        let mut devices = self.devices.room();
        self.devices.read(&mut devices)?;
        let cards = self.cards.iter().map(Card::read).collect::<Result<_>>()?;
        stream.write_all(&mark).doing(|| "answer a mark")?;
        Ok(Reading {
            devices,
            cards,
            moment,
        })
    }
}

/// A network card: its name, and the names of its interrupts.
struct Card {
    name: String,
    called: Vec<String>,
}

impl Card {
    fn find(name: &str) -> Result<Self> {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(Error::bad(format!(
                "cards: expected a name from {CARDS}, found {name:?}"
            )));
        }
        let link = fs::read_link(format!("{CARDS}/{name}/device"))
            .doing(|| format!("look up the card {name}"))?;
        let device = link
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        Ok(Card {
            name: name.to_string(),
            called: device.into_iter().chain([name.to_string()]).collect(),
        })
    }

    fn read(&self) -> Result<[u64; OF_CARD.len() + 1]> {
        let mut found = [0; OF_CARD.len() + 1];
        for (place, name) in OF_CARD.iter().enumerate() {
            let path = format!("{CARDS}/{}/statistics/{name}", self.name);
            let text = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
            found[place] = text.trim().parse().map_err(|_| {
                Error::verify(format!("read {path}: expected a number, found {text:?}"))
            })?;
        }
        let path = "/proc/interrupts";
        let text = fs::read_to_string(path).doing(|| format!("read {path}"))?;
        found[OF_CARD.len()] = interrupts(&text, &self.called);
        Ok(found)
    }
}

/// Sum up all interrupt lines named after one of these: "virtio1-input.0", "wire-rx-0", "wire".
fn interrupts(text: &str, called: &[String]) -> u64 {
    let is_called = |word: &str, name: &String| {
        word.strip_prefix(name.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    text.lines()
        .filter(|line| {
            let mut words = line.split_whitespace();
            words.any(|word| called.iter().any(|name| is_called(word, name)))
        })
        .flat_map(|line| {
            line.split_whitespace()
                .skip(1)
                .map_while(|word| word.parse::<u64>().ok())
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_those_of_a_card_and_of_no_other() {
        let text = "           CPU0       CPU1\n 24:  3  4  PCI-MSIX-0000:00:01.0   0-edge      virtio1-config\n \
                    25:  10  20  PCI-MSIX-0000:00:01.0   1-edge      virtio1-input.0\n 26:  100  0  PCI-MSIX  virtio10-input.0\n \
                    27:  5  5  PCI-MSIX  wire-rx-0\nNMI:  1  1  Non-maskable interrupts\n";
        assert_eq!(interrupts(text, &["virtio1".into(), "wire".into()]), 47);
        assert_eq!(interrupts(text, &["lo".into()]), 0);
    }

    #[test]
    fn what_is_between_the_marks_is_reported_and_nothing_without_them() {
        let request = WatchStart {
            devices: Vec::new(),
            cards: Vec::new(),
            listen: "127.0.0.1:0".to_string(),
        };
        let watch = Watch::start(&request).unwrap();
        let address = watch.address().to_string();
        let mut peer = Peer::begin(&address).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        peer.end().unwrap();
        drop(peer);
        let counts = watch.stop().unwrap();
        let lasted = counts["around"]["lasted_ns"].as_u64().unwrap();
        assert!(lasted >= 20_000_000, "{lasted}");
        assert_eq!(counts["devices"], json!({}));

        let silent = Watch::start(&request).unwrap();
        let peer = Peer::begin(&silent.address().to_string()).unwrap();
        assert!(silent.stop().is_err()); // returns even though the peer never sent the second mark
        drop(peer);

        let nothing = Watch::start(&request).unwrap().stop();
        assert!(nothing
            .unwrap_err()
            .to_string()
            .contains("start and end marks"));
        assert!(Peer::begin("here").is_err());
    }
}
