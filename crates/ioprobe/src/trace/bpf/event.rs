//! What the recorder's programs write: events about calls, tasks, faults and requests.

/// FMODE_CREATED (include/linux/fs.h): this open made the file.
const CREATED: u32 = 1 << 20;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    Call,
    /// A new task: arguments are its number, its process, the flags of clone, and its name.
    Task,
    /// A successful execve: the first argument is the number that the task had before.
    Exec,
    Exit,
    /// A fault in a mapping: arguments are device, inode and page.
    Fault,
    Uring,
    /// A call that submits requests of libaio or returns their results: these are in `command`.
    Aio,
}

/// One event, as the programs wrote it.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    pub kind: Kind,
    /// Of the system call; of an io_uring request, its operation.
    pub number: u32,
    pub thread: u32,
    pub process: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    pub result: i64,
    pub arguments: [u64; 6],
    /// The address of the kernel's open file, by which it is the same or another; 0: unknown.
    pub file: u64,
    /// The open file's position after the call.
    pub position: u64,
    pub opened: Option<Opened>,
    pub paths: [&'a [u8]; 2],
    /// The words of an io_uring request, or of requests of libaio.
    pub command: &'a [u8],
}

/// What an open found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub device: u32,
    pub inode: u64,
    pub mode: u32,
    pub size: u64,
    pub stored: u64,
    pub created: bool,
}

impl<'a> Event<'a> {
    /// Read an event; None if it is too short or of an unknown kind.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let word = |at: i16| {
            let at = at as usize;
            Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        let long = |at: i16| {
            let at = at as usize;
            Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        };
        let kind = match word(at::KIND)? {
            0 => Kind::Call,
            1 => Kind::Task,
            2 => Kind::Exec,
            3 => Kind::Exit,
            4 => Kind::Fault,
            5 => Kind::Uring,
            6 => Kind::Aio,
            _ => return None,
        };
        let mut arguments = [0; 6];
        for (index, argument) in arguments.iter_mut().enumerate() {
            *argument = long(at::ARGUMENTS + 8 * index as i16)?;
        }
        let mut event = Event {
            kind,
            number: word(at::NUMBER)?,
            thread: word(at::NUMBERS)?,
            process: word(at::NUMBERS + 4)?,
            start_ns: long(at::START)?,
            end_ns: long(at::END)?,
            result: long(at::RESULT)? as i64,
            arguments,
            file: long(at::FILE)?,
            position: long(at::POSITION)?,
            opened: None,
            paths: [&[], &[]],
            command: &[],
        };
        if kind == Kind::Uring {
            event.command = bytes.get(at::COMMAND as usize..at::URING as usize)?;
        } else if kind == Kind::Aio {
            event.command = bytes.get(at::PATHS as usize..)?;
        } else if bytes.len() > at::SHORT as usize {
            let (first, second) = (word(at::FIRST_LENGTH)?, word(at::SECOND_LENGTH)?);
            let middle = at::PATHS as usize + first as usize;
            // The lengths include the NUL.
            let text = |from: usize, to: usize| {
                let text = bytes.get(from..to)?;
                Some(text.strip_suffix(&[0]).unwrap_or(text))
            };
            event.paths = [
                text(at::PATHS as usize, middle)?,
                text(middle, middle + second as usize)?,
            ];
            if event.result >= 0 && event.file != 0 {
                event.opened = Some(Opened {
                    device: word(at::DEVICE)?,
                    inode: long(at::INODE)?,
                    mode: word(at::INODE_MODE)? & 0xffff,
                    size: long(at::SIZE)?,
                    stored: long(at::BLOCKS)? * 512,
                    created: word(at::FILE_MODE)? & CREATED != 0,
                });
            }
        }
        Some(event)
    }

    /// Return the name that a task had when it started another one or executed a program.
    pub fn name(&self) -> String {
        let [.., low, high, _] = self.arguments;
        let bytes = [low.to_le_bytes(), high.to_le_bytes()].concat();
        let end = bytes.iter().position(|byte| *byte == 0);
        String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
    }
}

/// Places in an event. The first 104 bytes are the same for all kinds.
pub mod at {
    pub const KIND: i16 = 0;
    pub const NUMBER: i16 = 4;
    pub const NUMBERS: i16 = 8;
    pub const START: i16 = 16;
    pub const END: i16 = 24;
    pub const RESULT: i16 = 32;
    pub const ARGUMENTS: i16 = 40;
    pub const FILE: i16 = 88;
    pub const POSITION: i16 = 96;
    pub const SHORT: i16 = 104;
    pub const DEVICE: i16 = 104;
    pub const FILE_MODE: i16 = 108;
    pub const INODE: i16 = 112;
    pub const SIZE: i16 = 120;
    pub const BLOCKS: i16 = 128;
    pub const INODE_MODE: i16 = 136;
    pub const FIRST_LENGTH: i16 = 140;
    pub const SECOND_LENGTH: i16 = 144;
    pub const PATHS: i16 = 152;
    /// An io_uring request's own words, in place of the above.
    pub const COMMAND: i16 = 104;
    pub const URING: i16 = COMMAND + COMMAND_BYTES;
    pub const COMMAND_BYTES: i16 = 64;
}
