//! One HTTP/1.1 response as it comes in, piece by piece: its status, its body, and whether the connection can be used again.
//!
//! Framing is RFC 9112: a length, chunks, or everything until the server closes. What a server says is believed only so far as
//! it can be kept: heads, lines and bodies have a longest length, and two lengths that contradict each other are a fault. A
//! request for another encoding is never made, so a body is taken as it is.

/// Bytes of all header lines together, and of all trailers.
const MOST_HEAD: usize = 64 << 10;
/// Bytes of the line before a chunk.
const MOST_LINE: usize = 4 << 10;
/// Interim responses (1xx) before the one that counts.
const MOST_INTERIM: u32 = 16;

/// What is wrong with a response, in words that follow "the server".
pub type Fault = String;
type Outcome<T> = std::result::Result<T, Fault>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Status,
    Headers,
    Length(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    UntilClosed,
    Done,
}

pub struct Response {
    state: State,
    line: Vec<u8>,
    head: usize,
    interim: u32,
    most_body: usize,
    length: Option<u64>,
    chunked: bool,
    version_1_1: bool,
    close: bool,
    keep: bool,
    pub status: u16,
    pub body: Vec<u8>,
    /// Bytes that came, head and framing included.
    pub received: u64,
}

impl Response {
    pub fn new(most_body: usize) -> Self {
        Response {
            state: State::Status,
            line: Vec::with_capacity(256),
            head: 0,
            interim: 0,
            most_body,
            length: None,
            chunked: false,
            version_1_1: false,
            close: false,
            keep: false,
            status: 0,
            body: Vec::new(),
            received: 0,
        }
    }

    /// Ready for the next one; memory is kept.
    pub fn begin(&mut self) {
        let (mut line, mut body) = (
            std::mem::take(&mut self.line),
            std::mem::take(&mut self.body),
        );
        line.clear();
        body.clear();
        *self = Response {
            line,
            body,
            ..Response::new(self.most_body)
        };
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the next request may go over the same connection.
    pub fn keeps_open(&self) -> bool {
        self.is_done() && !self.close && (self.version_1_1 || self.keep)
    }

    /// Takes what has come; nothing may come behind the end.
    pub fn take(&mut self, mut bytes: &[u8]) -> Outcome<()> {
        self.received += bytes.len() as u64;
        while !bytes.is_empty() {
            match self.state {
                State::Length(left) | State::Chunk(left) => {
                    let n = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    self.keep_body(&bytes[..n])?;
                    bytes = &bytes[n..];
                    let left = left - n as u64;
                    self.state = match (self.state, left) {
                        (State::Chunk(_), 0) => State::ChunkEnd,
                        (State::Chunk(_), left) => State::Chunk(left),
                        (_, 0) => State::Done,
                        (_, left) => State::Length(left),
                    };
                }
                State::UntilClosed => {
                    self.keep_body(bytes)?;
                    return Ok(());
                }
                State::Done => {
                    return Err(format!(
                        "sent {} bytes more than it had announced",
                        bytes.len()
                    ))
                }
                _ => bytes = self.take_line(bytes)?,
            }
        }
        Ok(())
    }

    /// The server has closed the connection.
    pub fn closed(&mut self) -> Outcome<()> {
        match self.state {
            State::UntilClosed => self.state = State::Done,
            State::Done => {}
            State::Length(left) => {
                let wanted = self.body.len() as u64 + left;
                return Err(format!(
                    "closed the connection after {} of {wanted} bytes of the body",
                    self.body.len()
                ));
            }
            _ if self.received == 0 => {
                return Err("closed the connection without a response".into())
            }
            _ => {
                return Err(format!(
                    "closed the connection in the middle of a response, after {} bytes",
                    self.received
                ))
            }
        }
        Ok(())
    }

    fn keep_body(&mut self, bytes: &[u8]) -> Outcome<()> {
        if self.body.len() + bytes.len() > self.most_body {
            return Err(format!(
                "sent a body of more than {} bytes, which is the limit",
                self.most_body
            ));
        }
        self.body.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes as much as belongs to the present line, and what the line says where it is whole.
    fn take_line<'a>(&mut self, bytes: &'a [u8]) -> Outcome<&'a [u8]> {
        let in_head = matches!(self.state, State::Status | State::Headers | State::Trailers);
        let (piece, rest) = match bytes.iter().position(|b| *b == b'\n') {
            Some(at) => (&bytes[..=at], &bytes[at + 1..]),
            None => (bytes, &bytes[bytes.len()..]),
        };
        self.line.extend_from_slice(piece);
        if in_head {
            self.head += piece.len();
            if self.head > MOST_HEAD {
                return Err(format!("sent a head of more than {MOST_HEAD} bytes"));
            }
        } else if self.line.len() > MOST_LINE {
            return Err(format!(
                "sent a line of more than {MOST_LINE} bytes before a chunk"
            ));
        }
        if piece.last() == Some(&b'\n') {
            let mut line = std::mem::take(&mut self.line);
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            let understood = self.understand(&line);
            line.clear();
            self.line = line;
            understood?;
        }
        Ok(rest)
    }

    fn understand(&mut self, line: &[u8]) -> Outcome<()> {
        match self.state {
            State::Status => self.status_line(line),
            State::Headers if line.is_empty() => self.end_of_head(),
            State::Headers => self.header(line),
            State::ChunkSize => self.chunk_size(line),
            State::ChunkEnd if line.is_empty() => {
                self.state = State::ChunkSize;
                Ok(())
            }
            State::ChunkEnd => Err("sent a chunk that is longer than it had announced".into()),
            State::Trailers => {
                if line.is_empty() {
                    self.state = State::Done;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn status_line(&mut self, line: &[u8]) -> Outcome<()> {
        let wrong = || format!("sent no status line of HTTP/1.1, but {}", excerpt(line));
        let text = std::str::from_utf8(line.get(..12).ok_or_else(wrong)?).map_err(|_| wrong())?;
        let (version, code) = text.split_once(' ').ok_or_else(wrong)?;
        self.version_1_1 = match version {
            "HTTP/1.1" => true,
            "HTTP/1.0" => false,
            _ => return Err(wrong()),
        };
        if !code.bytes().all(|b| b.is_ascii_digit()) || !matches!(line.get(12), None | Some(b' ')) {
            return Err(wrong());
        }
        self.status = code.parse().map_err(|_| wrong())?;
        if !(100..=599).contains(&self.status) {
            return Err(wrong());
        }
        self.state = State::Headers;
        Ok(())
    }

    fn header(&mut self, line: &[u8]) -> Outcome<()> {
        let colon = match line.iter().position(|b| *b == b':') {
            Some(at) if at > 0 => at,
            _ => return Err(format!("sent a header without a name: {}", excerpt(line))),
        };
        let name = line[..colon].to_ascii_lowercase();
        let value = String::from_utf8_lossy(&line[colon + 1..])
            .trim()
            .to_ascii_lowercase();
        match &name[..] {
            b"content-length" => {
                let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
                let length = match value.parse::<u64>() {
                    Ok(length) if digits => length,
                    _ => return Err(format!("sent a length that is no number: {value:.40?}")),
                };
                if self.length.is_some_and(|other| other != length) {
                    return Err("sent two lengths that contradict each other".into());
                }
                self.length = Some(length);
            }
            b"transfer-encoding" => {
                if value != "chunked" {
                    return Err(format!(
                        "sent a transfer encoding that nobody asked for: {value:.40?}"
                    ));
                }
                self.chunked = true;
            }
            b"connection" => {
                self.close |= value.split(',').any(|word| word.trim() == "close");
                self.keep |= value.split(',').any(|word| word.trim() == "keep-alive");
            }
            _ => {}
        }
        Ok(())
    }

    fn end_of_head(&mut self) -> Outcome<()> {
        if self.chunked && self.length.is_some() {
            return Err("sent a length and chunks, which contradict each other".into());
        }
        self.state = match self.status {
            101 => return Err("changed the protocol, which nobody asked for".into()),
            100..=199 => {
                self.interim += 1;
                if self.interim > MOST_INTERIM {
                    return Err(format!("sent more than {MOST_INTERIM} interim responses"));
                }
                self.length = None;
                self.chunked = false;
                State::Status
            }
            204 | 304 => State::Done,
            _ if self.chunked => State::ChunkSize,
            _ => match self.length {
                Some(0) => State::Done,
                Some(length) => State::Length(length),
                None => {
                    self.close = true;
                    State::UntilClosed
                }
            },
        };
        Ok(())
    }

    fn chunk_size(&mut self, line: &[u8]) -> Outcome<()> {
        let wrong = || format!("sent a chunk without a size: {}", excerpt(line));
        let text = std::str::from_utf8(line).map_err(|_| wrong())?;
        let digits = text.split(';').next().unwrap_or("").trim();
        if digits.is_empty() || digits.len() > 15 || !digits.bytes().all(|b| b.is_ascii_hexdigit())
        {
            return Err(wrong());
        }
        let size = u64::from_str_radix(digits, 16).map_err(|_| wrong())?;
        self.state = match size {
            0 => {
                self.head = 0;
                State::Trailers
            }
            size => State::Chunk(size),
        };
        Ok(())
    }
}

/// The beginning of what came, as it may stand in a message.
fn excerpt(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().take(40).collect();
    format!("{text:?}")
}

#[cfg(test)]
mod tests;
