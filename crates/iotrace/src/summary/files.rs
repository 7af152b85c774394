//! Totals by file, and a coarse map of where in the file the bytes went.
//!
//! A file takes some 72 bytes, and its map some 600. Names are kept up to 64 MiB in total, maps of the
//! busiest 16,384 to 32,768 files.

use std::collections::HashMap;

use serde::Serialize;

use super::spread::{Quantiles, Spread};
use crate::{FileKind, FileRecord};

const MOST_NAME_BYTES: usize = 64 << 20;
const MOST_MAPS: usize = 1 << 15;
pub const HOTTEST: usize = 10;
const CELLS: usize = 32;
const FIRST_CELL: u64 = 4096;

#[derive(Debug, Serialize)]
pub struct FileTotals {
    /// Regular files that the trace knows of, and those that were read or written.
    pub known: u64,
    pub used: u64,
    pub read_only: u64,
    pub written: u64,
    /// Did not exist before.
    pub created: u64,
    /// Of the regular files before the recording.
    pub bytes_before: u64,
    #[serde(skip)]
    pub synced: u64,
    /// Of the used files: the larger of the size before and the end of the last access.
    pub sizes: Option<Quantiles>,
    pub directories: u64,
    pub hottest: Vec<HotFile>,
}

#[derive(Debug, Serialize)]
pub struct HotFile {
    pub id: u32,
    /// Null where too many names would have to be kept. Bytes that are not UTF-8 are replaced.
    pub path: Option<String>,
    pub size: u64,
    pub existed: bool,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub operations: u64,
    pub syncs: u64,
    pub map: Option<Map>,
}

/// Bytes read and written in each of up to 32 cells of a file, from its beginning.
#[derive(Clone, Debug, Serialize)]
pub struct Map {
    pub cell_bytes: u64,
    pub read: Vec<u64>,
    pub written: Vec<u64>,
}

#[derive(Default)]
struct OneFile {
    regular: bool,
    existed: bool,
    changed: bool,
    size: u64,
    end: u64,
    read_bytes: u64,
    written_bytes: u64,
    operations: u32,
    syncs: u32,
    name: (u32, u16),
}

pub struct Files {
    files: Vec<OneFile>,
    names: Vec<u8>,
    maps: HashMap<u32, Box<Map>>,
    maps_left_out: bool,
    directories: u64,
}

impl Files {
    pub fn new() -> Self {
        Files {
            files: Vec::new(),
            names: Vec::new(),
            maps: HashMap::new(),
            maps_left_out: false,
            directories: 0,
        }
    }

    /// Add a file. Identifiers are dense.
    pub fn add(&mut self, file: &FileRecord) {
        self.directories += u64::from(file.kind == FileKind::Directory);
        let kept = self.names.len() + file.path.len() <= MOST_NAME_BYTES;
        let name = match u16::try_from(file.path.len()) {
            Ok(length) if kept => {
                let start = self.names.len() as u32;
                self.names.extend_from_slice(&file.path);
                (start, length)
            }
            _ => (u32::MAX, 0),
        };
        self.files.push(OneFile {
            regular: file.kind == FileKind::Regular,
            existed: file.size.is_some(),
            size: file.size.unwrap_or(0),
            name,
            ..OneFile::default()
        });
    }

    /// Count bytes that were read or written.
    pub fn access(&mut self, id: u32, offset: u64, bytes: u64, written: bool) {
        let Some(file) = self.files.get_mut(id as usize) else {
            return;
        };
        let end = offset.saturating_add(bytes);
        file.operations = file.operations.saturating_add(1);
        file.end = file.end.max(end);
        let total = if written {
            &mut file.written_bytes
        } else {
            &mut file.read_bytes
        };
        *total = total.saturating_add(bytes);
        if self.maps.len() >= MOST_MAPS && !self.maps.contains_key(&id) {
            self.drop_maps();
        }
        let map = self.maps.entry(id).or_insert_with(|| Box::new(Map::new()));
        map.add(offset, bytes, written);
    }

    /// Count bytes that were copied to a file, if nobody knows where in it.
    pub fn copied(&mut self, id: u32, bytes: u64) {
        if let Some(file) = self.files.get_mut(id as usize) {
            file.operations = file.operations.saturating_add(1);
            file.written_bytes = file.written_bytes.saturating_add(bytes);
        }
    }

    /// Note that a file was truncated or removed.
    pub fn changed(&mut self, id: Option<u32>) {
        if let Some(file) = id.and_then(|id| self.files.get_mut(id as usize)) {
            file.changed = true;
        }
    }

    pub fn synced(&mut self, id: u32) {
        if let Some(file) = self.files.get_mut(id as usize) {
            file.syncs = file.syncs.saturating_add(1);
        }
    }

    /// Drop the maps of the half of the files with fewer bytes so far.
    fn drop_maps(&mut self) {
        let mut by_bytes: Vec<(u64, u32)> = (self.maps.keys())
            .map(|&id| (self.files[id as usize].bytes(), id))
            .collect();
        by_bytes.sort_unstable();
        for (_, id) in &by_bytes[..by_bytes.len() / 2] {
            self.maps.remove(id);
        }
        self.maps_left_out = true;
    }

    pub fn finish(mut self, limits: &mut Vec<String>) -> FileTotals {
        if self.maps_left_out {
            limits.push(format!(
                "more than {MOST_MAPS} files: the map of a hot file may lack its first accesses"
            ));
        }
        let mut sizes = Spread::new();
        let mut totals = FileTotals {
            known: 0,
            used: 0,
            read_only: 0,
            written: 0,
            created: 0,
            bytes_before: 0,
            synced: 0,
            sizes: None,
            directories: self.directories,
            hottest: Vec::new(),
        };
        for file in &self.files {
            totals.known += u64::from(file.regular);
            totals.synced += u64::from(file.syncs > 0);
            if file.regular {
                totals.bytes_before = totals.bytes_before.saturating_add(file.size);
                totals.created += u64::from(!file.existed);
            }
            if file.bytes() > 0 {
                totals.used += 1;
                totals.written += u64::from(file.written_bytes > 0);
                totals.read_only += u64::from(file.written_bytes == 0 && !file.changed);
                sizes.record(file.size.max(file.end));
            }
        }
        totals.sizes = sizes.quantiles();
        totals.hottest = self.hottest();
        totals
    }

    fn hottest(&mut self) -> Vec<HotFile> {
        let mut ranked: Vec<(u64, u32)> = Vec::with_capacity(HOTTEST + 1);
        for (id, file) in self.files.iter().enumerate() {
            let bytes = file.bytes();
            if bytes == 0 || (ranked.len() == HOTTEST && ranked[HOTTEST - 1].0 >= bytes) {
                continue;
            }
            let place = ranked.partition_point(|one| one.0 >= bytes);
            ranked.insert(place, (bytes, id as u32));
            ranked.truncate(HOTTEST);
        }
        (ranked.into_iter())
            .map(|(_, id)| {
                let file = &self.files[id as usize];
                let (start, length) = (file.name.0 as usize, usize::from(file.name.1));
                let path = (self.names.get(start..start + length))
                    .map(|name| String::from_utf8_lossy(name).into_owned());
                HotFile {
                    id,
                    path,
                    size: file.size.max(file.end),
                    existed: file.existed,
                    read_bytes: file.read_bytes,
                    written_bytes: file.written_bytes,
                    operations: u64::from(file.operations),
                    syncs: u64::from(file.syncs),
                    map: self.maps.get(&id).map(|map| map.trimmed()),
                }
            })
            .collect()
    }
}

impl OneFile {
    fn bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.written_bytes)
    }
}

impl Map {
    fn new() -> Self {
        Map {
            cell_bytes: FIRST_CELL,
            read: vec![0; CELLS],
            written: vec![0; CELLS],
        }
    }

    fn add(&mut self, offset: u64, bytes: u64, written: bool) {
        let end = offset.saturating_add(bytes);
        if bytes == 0 {
            return;
        }
        while (end - 1) / self.cell_bytes >= CELLS as u64 {
            for cells in [&mut self.read, &mut self.written] {
                for place in 0..CELLS / 2 {
                    cells[place] = cells[2 * place].saturating_add(cells[2 * place + 1]);
                }
                cells[CELLS / 2..].fill(0);
            }
            self.cell_bytes = self.cell_bytes.saturating_mul(2);
        }
        let cells = if written {
            &mut self.written
        } else {
            &mut self.read
        };
        let mut at = offset;
        while at < end {
            let place = at / self.cell_bytes;
            let until = end.min((place + 1).saturating_mul(self.cell_bytes));
            cells[place as usize] = cells[place as usize].saturating_add(until - at);
            at = until;
        }
    }

    /// Without the cells after the last one in use.
    fn trimmed(&self) -> Map {
        let used = |cells: &[u64]| {
            cells
                .iter()
                .rposition(|bytes| *bytes > 0)
                .map_or(0, |at| at + 1)
        };
        let length = used(&self.read).max(used(&self.written));
        Map {
            cell_bytes: self.cell_bytes,
            read: self.read[..length].to_vec(),
            written: self.written[..length].to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::file;

    #[test]
    fn a_map_doubles_its_cells_and_keeps_every_byte_in_its_place() {
        let mut map = Map::new();
        map.add(100, 5000, false);
        map.add(1 << 20, 10, true);
        let found = map.trimmed();
        // 1 MiB is the first byte of cell 16 of 64 KiB.
        assert_eq!(found.cell_bytes, 65536);
        assert_eq!(found.read[0], 5000);
        assert_eq!((found.written.len(), found.written[16]), (17, 10));
    }

    #[test]
    fn the_largest_offset_ends_and_loses_nothing() {
        let mut map = Map::new();
        map.add(0, 7, true);
        map.add(u64::MAX - 3, 3, true);
        assert_eq!(map.written.iter().sum::<u64>(), 10);
    }

    #[test]
    fn the_hottest_files_come_first() {
        let mut files = Files::new();
        for id in 0..30 {
            files.add(&file(id, &format!("f{id}"), Some(10)));
            files.access(id, 0, u64::from(id * 7 % 30), id % 2 == 0);
        }
        let totals = files.finish(&mut Vec::new());
        let found: Vec<u64> = totals
            .hottest
            .iter()
            .map(|one| one.read_bytes + one.written_bytes)
            .collect();
        assert_eq!(found, [29, 28, 27, 26, 25, 24, 23, 22, 21, 20]);
        assert_eq!((totals.known, totals.used), (30, 29));
        assert!(totals
            .hottest
            .iter()
            .all(|one| one.path == Some(format!("f{}", one.id))));
    }

    #[test]
    fn many_files_keep_the_maps_of_the_busiest() {
        let mut files = Files::new();
        for id in 0..MOST_MAPS as u32 + 10 {
            files.add(&file(id, "x", None));
            files.access(id, 0, if id == 3 { 1 << 30 } else { 100 }, true);
        }
        assert!(files.maps.len() <= MOST_MAPS);
        let mut limits = Vec::new();
        let totals = files.finish(&mut limits);
        assert_eq!(limits.len(), 1);
        assert!(totals.hottest[0].map.is_some());
        assert_eq!(totals.created, MOST_MAPS as u64 + 10);
    }
}
