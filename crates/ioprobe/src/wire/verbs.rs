//! The fields of every verb that is no job.

use std::collections::BTreeMap;

use super::json::{fields, requests, Reader, Request};
use super::{AtimeState, Content, EndSignal, Fields, Fill, LinkKind, Mode, QueueOrder, Selection};
use crate::error::Result;
use crate::identity::User;

requests! {
    VERBS:
    Nothing {}
    Path { path: String }
    Write { path: String, data: String }
    Stat { path: String, follow: bool = false }
    MakeFolder {
        path: String,
        mode: Mode = Mode(0o755),
        exclusive: bool = false,
        owner: Option<User> = None,
    }
    Remove { path: String, recursive: bool = false, keep: bool = false }
    SetTimes { path: String, mtime_ns: i64 }
    EndSession { session: i32, started: u64, token: Option<String> = None }
    Mount {
        source: String,
        target: String,
        r#type: String,
        options: Vec<String> = Vec::new(),
    }
    Unmount { target: String }
    DropCaches { what: u8 }
    Image { folder: String, size: u64, fill: Fill, path: Option<String> = None }
    ModelledImage {
        size: u64,
        rotating: Option<RotatingDisk> = None,
        flat: Option<FlatDisk> = None,
    }
    RotatingDisk {
        turns_per_minute: f64,
        seek_track_us: f64,
        seek_mean_us: f64,
        seek_full_us: f64,
        outer_bytes_per_s: f64,
        inner_bytes_per_s: f64,
        interface_bytes_per_s: f64,
        overhead_us: f64,
        ahead_bytes: u64,
        cache_bytes: u64,
        depth: usize,
        order: QueueOrder,
        stroke: f64,
    }
    FlatDisk {
        read_us: f64,
        write_us: f64,
        jump_us: f64,
        flush_us: f64,
        overhead_us: f64,
        read_bytes_per_s: f64,
        write_bytes_per_s: f64,
        depth: usize,
    }
    ImageFree { image: u64 }
    LoopAttach { image: u64, direct_io: bool, device: Option<String> = None }
    LoopStatus { device: String }
    LoopRemove { device: String, node: bool }
    LoopDetach { device: String }
    EvictDevice { device: String }
    DeviceClaim { path: String, node: Option<String> = None }
    OfDevice { device: String }
    DiskPace { device: String, modelled: bool }
    DeviceCheck { device: String, samples: u64 = 4096, edge_bytes: u64 = 4 << 20 }
    DeviceRange { device: String, offset: u64, length: u64 }
    DeviceMark { device: String, offset: u64, text: String }
    DeviceMarked { device: String, offset: u64 }
    DeviceWindow { device: String, size: u64 }
    Run {
        argv: Vec<String>,
        environment: Option<BTreeMap<String, String>> = None,
        cwd: Option<String> = None,
        stdin: Option<String> = None,
        timeout_s: Option<f64> = None,
        output_limit: usize = 1 << 20,
        user: Option<User> = None,
    }
    ServerStart {
        name: String,
        argv: Vec<String>,
        environment: Option<BTreeMap<String, String>> = None,
        cwd: Option<String> = None,
        user: Option<User> = None,
        ready: Ready,
        timeout_s: f64 = 60.0,
    }
    Ready {
        tcp: Option<u32> = None,
        socket: Option<String> = None,
        file: Option<String> = None,
        contains: Option<String> = None,
    }
    ServerStop { name: String, signal: EndSignal = EndSignal::Term, timeout_s: f64 = 60.0 }
    OfServer { name: String }
    EvictTree { path: String }
    MakeSet {
        set: String,
        dir: String,
        count: u32,
        size: u64,
        seed: u64,
        content: Content,
        directories: u32 = 1,
        mode: Mode = Mode(0o644),
        create: bool = true,
        empty: bool = false,
        owner: Option<User> = None,
    }
    OfSet { set: String }
    OfFiles { set: String, files: Selection = None }
    SetMode { set: String, files: Selection = None, mode: Mode }
    SetAtimeState {
        set: String,
        files: Selection = None,
        state: AtimeState,
        view: Option<String> = None,
    }
    Link {
        set: String,
        files: Selection = None,
        view: String,
        kind: LinkKind,
        chain: u32 = 4,
    }
    OfView { set: String, files: Selection = None, view: String }
    SetSize { set: String, files: Selection = None, size: u64 }
    LayFiles { set: String, files: Selection = None, extents: u64 }
    CopyFiles { set: String, files: Selection = None, keep: bool }
    Age { path: String, percent: u8, rounds: u32, seed: u64 }
    Warm {
        set: String,
        files: Selection = None,
        view: Option<String> = None,
        names: bool = false,
    }
    Around { on: bool }
    WatchStart {
        listen: String,
        devices: Vec<String> = Vec::new(),
        cards: Vec<String> = Vec::new(),
    }
    SampleStart { devices: Vec<String> = Vec::new(), period_ms: u64 = 100 }
}
