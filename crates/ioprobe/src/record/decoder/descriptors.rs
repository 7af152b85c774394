//! Which open file description each descriptor means.

use std::cell::RefCell;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::rc::Rc;

use iotrace::{Call, FileKind, Op};
use libc::c_int;

use super::super::names::First;
use super::{Decoder, Description, Descriptor, Descriptors, O_CLOEXEC};
use crate::error::Result;
use crate::trace::bpf::event::Event;

impl<W: Write> Decoder<W> {
    pub(super) fn table(&self, thread: u32) -> Rc<RefCell<Descriptors>> {
        (self.tasks.get(&thread)).map_or_else(Rc::default, |task| task.descriptors.clone())
    }

    /// Return the description that a descriptor of the calling task means.
    pub(super) fn description(&mut self, event: &Event, number: c_int) -> Option<u32> {
        if number < 0 {
            return None;
        }
        let table = self.table(event.thread);
        let known = table.borrow().get(&number).copied();
        if let Some(descriptor) = known {
            let known = &mut self.descriptions[descriptor.description as usize];
            if event.file == 0 || known.file == event.file {
                return Some(descriptor.description);
            }
            if known.file == 0 && !self.by_file.contains_key(&event.file) {
                known.file = event.file;
                self.by_file.insert(event.file, descriptor.description);
                return Some(descriptor.description);
            }
        }
        if event.file == 0 || event.result == -i64::from(libc::EBADF) {
            return None;
        }
        // It has come another way: from another process, by a call that is not recorded, or its
        // open was lost.
        let found = match self.by_file.get(&event.file).copied() {
            Some(description) => {
                self.take(number, description, &table, false);
                description
            }
            None => self.adopt_descriptor(event.process, number, event.file, &table),
        };
        if let Some(before) = known {
            self.forget(before.description);
        }
        Some(found)
    }

    /// Learn from /proc what a descriptor means.
    pub(super) fn adopt_descriptor(
        &mut self,
        process: u32,
        number: c_int,
        file: u64,
        table: &Rc<RefCell<Descriptors>>,
    ) -> u32 {
        let own = format!("/proc/{process}/fd/{number}");
        let found = fs::metadata(&own).ok();
        let path = fs::read_link(&own).map(|path| path.into_os_string().into_vec());
        let info = fs::read_to_string(format!("/proc/{process}/fdinfo/{number}"));
        let info = info.unwrap_or_default();
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim())
        };
        let position = field("pos:").and_then(|text| text.parse().ok());
        let flags = field("flags:").and_then(|text| u64::from_str_radix(text, 8).ok());
        let data = found
            .as_ref()
            .is_some_and(|found| found.is_file() || found.is_dir());
        let path = path.ok().filter(|path| data && path.starts_with(b"/"));
        let inside = path.as_deref().and_then(|path| self.names.relative(path));
        let inside = inside.map(<[u8]>::to_vec);
        let name = inside.map(|path| match self.names.look(&path) {
            Some(first) => self.names.name(&path, || first),
            // It has been removed: some other name, for one that is gone.
            None => {
                self.counts.guessed += 1;
                let size = found.as_ref().map(|found| found.len());
                self.names.name(&path, || First {
                    kind: FileKind::Regular,
                    size,
                    stored: size.unwrap_or(0),
                })
            }
        });
        let is_folder = found.is_some_and(|found| found.is_dir());
        let description = self.describe(Description {
            name,
            folder: path.filter(|_| is_folder),
            file,
            position: position.unwrap_or(0),
            descriptors: 0,
            handle: None,
        });
        let close_on_exec = flags.is_some_and(|flags| flags & O_CLOEXEC != 0);
        self.take(number, description, table, close_on_exec);
        description
    }

    pub(super) fn describe(&mut self, description: Description) -> u32 {
        let file = description.file;
        let index = match self.free.pop() {
            Some(index) => {
                self.descriptions[index as usize] = description;
                index
            }
            None => {
                self.descriptions.push(description);
                self.descriptions.len() as u32 - 1
            }
        };
        if file != 0 {
            self.by_file.insert(file, index);
        }
        index
    }

    /// Let a descriptor mean a description; returns what it meant before.
    fn take(
        &mut self,
        number: c_int,
        description: u32,
        table: &Rc<RefCell<Descriptors>>,
        close_on_exec: bool,
    ) -> Option<Descriptor> {
        self.descriptions[description as usize].descriptors += 1;
        table.borrow_mut().insert(
            number,
            Descriptor {
                description,
                close_on_exec,
            },
        )
    }

    pub(super) fn assign(
        &mut self,
        event: &Event,
        number: c_int,
        description: u32,
        close_on_exec: bool,
    ) -> Result<()> {
        let table = self.table(event.thread);
        match self.take(number, description, &table, close_on_exec) {
            Some(before) => self.released(event, before.description),
            None => Ok(()),
        }
    }

    /// A descriptor is gone. With the last one, the description is closed.
    pub(super) fn released(&mut self, event: &Event, description: u32) -> Result<()> {
        let known = &self.descriptions[description as usize];
        // What was open before and never used has no open in the trace.
        let shown = known.handle.is_some() && event.end_ns >= self.begin_ns;
        if known.descriptors <= 1 && shown {
            let op = Op {
                result: 0,
                ..self.op(event, Call::Close)
            };
            self.put_handle(event, Some(description), op)?;
        }
        self.forget(description);
        Ok(())
    }

    pub(super) fn forget(&mut self, description: u32) {
        let known = &mut self.descriptions[description as usize];
        known.descriptors = known.descriptors.saturating_sub(1);
        if known.descriptors == 0 {
            if self.by_file.get(&known.file) == Some(&description) {
                self.by_file.remove(&known.file);
            }
            self.free.push(description);
        }
    }
}
