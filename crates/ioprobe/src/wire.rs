//! What requests look like on the wire, and nothing that acts.
//!
//! Unknown and missing fields are errors: a field that is silently ignored is a treatment that was never applied. Jobs
//! share fields, which are split off by name first.

mod json;
mod share;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use self::json::{excerpt, words, Reader, Request};
pub use self::json::{fields, FromJson};
pub use self::share::Share;
use crate::error::{Error, Result};
use crate::identity::User;

pub type Fields = Map<String, Value>;
/// A longer text is the name of nothing, and errors repeat it.
const LONGEST_VERB: usize = 64;
/// Which files of a set: all, or these.
pub type Selection = Option<Vec<u32>>;

/// Splits a line into id, verb and the verb's own fields. The id is set as soon as it is known, so that errors carry it.
pub fn request(line: &[u8], id: &mut Value) -> Result<(String, Fields)> {
    let mut fields = match serde_json::from_slice(line) {
        Ok(Value::Object(fields)) => fields,
        Ok(other) => {
            return Err(Error::bad(format!(
                "request: wanted a JSON object, found {}",
                excerpt(&other.to_string())
            )))
        }
        Err(cause) => {
            return Err(Error::bad(format!(
                "request: wanted a JSON object: {cause}"
            )))
        }
    };
    *id = fields.remove("id").unwrap_or(Value::Null);
    match fields.remove("verb") {
        Some(Value::String(verb)) if verb.len() <= LONGEST_VERB => Ok((verb, fields)),
        Some(other) => Err(Error::bad(format!(
            "request: verb: wanted a text, found {}",
            excerpt(&other.to_string())
        ))),
        None => Err(Error::bad("request: missing field `verb`")),
    }
}

/// Each line is a type, its fields, and what a field is that the request leaves out.
macro_rules! requests {
    (@default) => { None };
    (@default $default:expr) => { Some($default) };
    ($($name:ident { $($field:ident: $type:ty $(= $default:expr)?),* $(,)? })*) => {
        $(
            #[derive(Debug)]
            pub struct $name { $(pub $field: $type),* }

            impl Request for $name {
                fn read(_reader: &mut Reader) -> std::result::Result<Self, String> {
                    Ok($name {
                        $($field: _reader.take(
                            stringify!($field).trim_start_matches("r#"),
                            requests!(@default $($default)?),
                        )?),*
                    })
                }
            }
        )*
    };
}

requests! {
    Nothing {}
    Path { path: String }
    Write { path: String, data: String }
    Stat { path: String, follow: bool = false }
    MakeFolder { path: String, mode: Mode = Mode(0o755), exclusive: bool = false }
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
    ImageFree { image: u64 }
    LoopAttach { image: u64, direct_io: bool, device: Option<String> = None }
    LoopStatus { device: String }
    LoopRemove { device: String, node: bool }
    LoopDetach { device: String }
    EvictDevice { device: String }
    DeviceClaim { path: String, node: Option<String> = None }
    OfDevice { device: String }
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
    Warm {
        set: String,
        files: Selection = None,
        view: Option<String> = None,
        names: bool = false,
    }
    Around { on: bool }
    SampleStart { devices: Vec<String> = Vec::new(), period_ms: u64 = 100 }
    Common {
        set: Option<String> = None,
        files: Selection = None,
        view: Option<String> = None,
        user: Option<User> = None,
        stretch: f64 = 0.0,
        stretch_clock: StretchClock = StretchClock::Wall,
        devices: Vec<String> = Vec::new(),
        sync_after: Option<String> = None,
        replicates: u32 = 1,
    }
    FilesJob {
        operations: Vec<Operation>,
        buffer: usize = 1 << 16,
        order: Order = Order::ByFile,
        histograms: bool = false,
        stretch_of: Option<Operation> = None,
    }
    RandomJob {
        engine: Engine = Engine::Psync,
        block: u64 = 4096,
        order: Access = Access::Random,
        write_share: f64 = 0.0,
        direct: bool = false,
        depth: u32 = 1,
        batch: Option<u32> = None,
        operations: Option<u64> = None,
        time_s: Option<f64> = None,
        rate: Option<f64> = None,
        seed: u64 = 1,
        histograms: bool = false,
        series: bool = false,
    }
    CommandJob {
        steps: Vec<Step>,
        environment: Option<BTreeMap<String, String>> = None,
        cwd: Option<String> = None,
        stdin: Option<String> = None,
        timeout_s: Option<f64> = None,
        expect_exit: i32 = 0,
        keep_output: usize = 0,
        account: Accounting = Accounting::No,
    }
    Step { name: String, argv: Vec<String> }
    StreamJob {
        operation: StreamOperation,
        device: Option<String> = None,
        block_size: usize = 1 << 20,
        volume: Option<u64> = None,
        seconds: Option<f64> = None,
        direct: bool = false,
        sync: StreamSync = StreamSync::None,
        flush: StreamFlush = StreamFlush::None,
        truncate: bool = true,
        data: Share = Share::ZEROS,
        seed: Option<u64> = None,
        pause_s: f64 = 0.0,
        evict: bool = true,
        beside: bool = false,
        histograms: bool = false,
    }
    MatrixJob {
        tests: Vec<MatrixTest> = MatrixTest::ALL.to_vec(),
        file_size: u64,
        record_size: usize,
        direct: bool = false,
        sync: bool = false,
        fsync: bool = false,
        close: bool = false,
        cold: bool = false,
        content: Content = Content::Random,
        seed: u64 = 0,
        stride: u32 = 17,
        histograms: bool = false,
        stretch_of: Option<MatrixTest> = None,
    }
}

const COMMON: [&str; 9] = [
    "set",
    "files",
    "view",
    "user",
    "stretch",
    "stretch_clock",
    "devices",
    "sync_after",
    "replicates",
];

/// A job's fields: those that all jobs have, and its own.
pub fn job_fields<T: Request>(verb: &str, mut own: Fields) -> Result<(Common, T)> {
    let common = COMMON
        .iter()
        .filter_map(|name| own.remove_entry(*name))
        .collect();
    let common: Common = fields(verb, common)?;
    if !(common.stretch.is_finite() && (0.0..=100.0).contains(&common.stretch)) {
        return Err(Error::bad(format!(
            "request {verb}: stretch: wanted between 0 and 100, found {}",
            common.stretch
        )));
    }
    if common.replicates == 0 {
        return Err(Error::bad(format!(
            "request {verb}: replicates: wanted at least 1, found 0"
        )));
    }
    Ok((common, fields(verb, own)?))
}

/// The devices of a job, whichever it is; what is no job has none.
pub fn devices_of_job(verb: &str, given: &Fields) -> Result<Vec<String>> {
    let common = COMMON.iter().filter_map(|name| given.get_key_value(*name));
    let common: Common = fields(
        verb,
        common
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )?;
    if common.devices.is_empty() {
        return Err(Error::bad(format!(
            "request {verb}: account_requests: wanted a job with devices, found none"
        )));
    }
    Ok(common.devices)
}

words! {
    /// How an image gets its blocks.
    Fill {
        Allocate = "allocate",
        Write = "write",
    }
    /// What the files of a set hold.
    Content {
        Text = "text",
        Random = "random",
        Zeros = "zeros",
    }
    /// What relatime will do at the next read.
    AtimeState {
        Stale = "stale",
        Fresh = "fresh",
        DayOld = "day-old",
    }
    LinkKind {
        Regular = "regular",
        SymlinkAbsolute = "symlink-absolute",
        SymlinkRelative = "symlink-relative",
        SymlinkChain = "symlink-chain",
        Hardlink = "hardlink",
    }
    /// Which time of a job the positive control stretches.
    StretchClock {
        Wall = "wall",
        Cpu = "cpu",
    }
    /// Whether and how system calls are counted.
    Accounting {
        No = "no",
        Auto = "auto",
        Bpf = "bpf",
        Perf = "perf",
    }
    Order {
        ByFile = "by-file",
        ByOperation = "by-operation",
    }
    /// How the `random` job reaches the kernel.
    Engine {
        Psync = "psync",
        Mmap = "mmap",
        IoUring = "io_uring",
    }
    /// In which order the `random` job visits blocks.
    Access {
        Random = "random",
        Sequential = "sequential",
    }
    Operation {
        Open = "open",
        OpenWrite = "open-write",
        OpenTruncate = "open-truncate",
        Create = "create",
        Read = "read",
        ReadToEnd = "read-to-end",
        WriteByte = "write-byte",
        Fsync = "fsync",
        Close = "close",
        Stat = "stat",
        Lstat = "lstat",
        Readlink = "readlink",
        Unlink = "unlink",
        Getdents = "getdents",
    }
}

words! {
    StreamOperation {
        Read = "read",
        Write = "write",
    }
    /// O_SYNC or O_DSYNC: whether every write waits for the disk.
    StreamSync {
        None = "none",
        Sync = "sync",
        Dsync = "dsync",
    }
    /// What follows the last write of a stream.
    StreamFlush {
        None = "none",
        Fsync = "fsync",
        Fdatasync = "fdatasync",
    }
}

words! {
    /// The tests of the matrix in their order.
    MatrixTest {
        Write = "write",
        Rewrite = "rewrite",
        Read = "read",
        Reread = "reread",
        RandomRead = "random-read",
        RandomWrite = "random-write",
        BackwardRead = "backward-read",
        RecordRewrite = "record-rewrite",
        StrideRead = "stride-read",
        Fwrite = "fwrite",
        Frewrite = "frewrite",
        Fread = "fread",
        Freread = "freread",
    }
}

impl MatrixTest {
    pub const ALL: [MatrixTest; 13] = [
        MatrixTest::Write,
        MatrixTest::Rewrite,
        MatrixTest::Read,
        MatrixTest::Reread,
        MatrixTest::RandomRead,
        MatrixTest::RandomWrite,
        MatrixTest::BackwardRead,
        MatrixTest::RecordRewrite,
        MatrixTest::StrideRead,
        MatrixTest::Fwrite,
        MatrixTest::Frewrite,
        MatrixTest::Fread,
        MatrixTest::Freread,
    ];
}

impl Request for User {
    fn read(reader: &mut Reader) -> std::result::Result<Self, String> {
        Ok(User {
            uid: reader.take("uid", None)?,
            gid: reader.take("gid", None)?,
        })
    }
}

/// A file mode in octal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

impl FromJson for Mode {
    const WANTED: &'static str = "a mode in octal such as \"0644\"";

    fn from_json(value: &Value) -> Option<Self> {
        let text = value.as_str()?;
        let octal = !text.is_empty() && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        let mode = u32::from_str_radix(text, 8).ok()?;
        (octal && mode <= 0o7777).then_some(Mode(mode))
    }
}

pub fn mode_text(mode: u32) -> String {
    format!("{:04o}", mode & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Fields {
        match value {
            Value::Object(fields) => fields,
            other => panic!("{other}"),
        }
    }

    fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_a_missing_and_a_wrong_field_are_errors_that_name_it() {
        let error = message(fields::<Path>(
            "read",
            object(json!({"path": "/x", "pth": 1})),
        ));
        assert_eq!(
            error,
            "request read: wanted the fields path, found also pth"
        );
        let error = message(fields::<Path>("read", object(json!({}))));
        assert_eq!(error, "request read: missing field path");
        let error = message(fields::<Path>("read", object(json!({"path": 3}))));
        assert_eq!(error, "request read: path: wanted a text, found 3");
        let error = message(fields::<Nothing>("sync", object(json!({"x": 1}))));
        assert_eq!(error, "request sync: wanted no fields, found also x");
    }

    #[test]
    fn a_job_splits_into_common_and_own_fields_and_refuses_the_rest() {
        let text = json!({"set": "s", "operations": ["read-to-end"], "stretch": 0.06});
        let (common, own) = job_fields::<FilesJob>("files", object(text)).unwrap();
        assert_eq!((common.stretch, common.replicates), (0.06, 1));
        assert_eq!(own.operations, [Operation::ReadToEnd]);
        let text = json!({"set": "s", "operations": [], "strech": 1});
        assert!(message(job_fields::<FilesJob>("files", object(text))).contains("strech"));
    }

    #[test]
    fn null_is_what_a_field_is_that_was_left_out() {
        let text = json!({"set": "s", "files": null, "devices": null, "operations": ["open"]});
        let (common, own) = job_fields::<FilesJob>("files", object(text)).unwrap();
        assert_eq!((common.files, own.buffer), (None, 65_536));
    }

    #[test]
    fn modes_are_octal_text() {
        let mode = |text: &str| Mode::from_json(&json!(text)).map(|m| m.0);
        assert_eq!(mode("0444"), Some(0o444));
        assert_eq!(mode("1777"), Some(0o1777));
        assert_eq!([mode("9"), mode(""), mode("+7"), mode("17777")], [None; 4]);
        assert_eq!(mode_text(0o100_444), "0444");
    }
}
