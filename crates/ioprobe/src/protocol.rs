//! The requests of the probe's protocol (docs/probe-protocol.md), as types.
//!
//! Unknown and missing fields are errors: a field that is silently ignored is a treatment that was
//! never applied. null is the same as an absent field.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use strum::VariantArray;

use crate::error::{Error, Result};
use crate::identity::User;

pub type Fields = Map<String, Value>;
/// The selected files of a set; None selects all.
pub type Selection = Option<Vec<u32>>;

/// No verb is longer than this. Errors repeat the verb, so its length is limited.
const LONGEST_VERB: usize = 64;

/// Split a line into id, verb and the verb's own fields. The id is set as soon as it is parsed, so
/// that errors carry it.
pub fn request(line: &[u8], id: &mut Value) -> Result<(String, Fields)> {
    let wanted = |found: &dyn ToString| {
        let found = shortened(&found.to_string());
        Err(Error::bad(format!(
            "request: expected a JSON object: {found}"
        )))
    };
    let mut fields = match serde_json::from_slice(line) {
        Ok(Value::Object(fields)) => fields,
        Ok(other) => return wanted(&format!("found {other}")),
        Err(cause) => return wanted(&cause),
    };
    *id = fields.remove("id").unwrap_or(Value::Null);
    match fields.remove("verb") {
        Some(Value::String(verb)) if verb.len() <= LONGEST_VERB => Ok((verb, fields)),
        Some(other) => Err(Error::bad(format!(
            "request: verb: expected a string, found {}",
            shortened(&other.to_string())
        ))),
        None => Err(Error::bad("request: missing field `verb`")),
    }
}

/// Parse the fields of a verb into the verb's type.
pub fn fields<T: DeserializeOwned>(verb: &str, mut params: Fields) -> Result<T> {
    params.retain(|_, value| !value.is_null());
    serde_path_to_error::deserialize(Value::Object(params)).map_err(|cause| {
        let mut text = shortened(&cause.to_string());
        for (rust, words) in NUMBERS {
            text = text.replace(&format!("expected {rust}"), &format!("expected {words}"));
        }
        Error::bad(format!("request {verb}: {text}"))
    })
}

/// Plain words for Rust's number types in error messages.
const NUMBERS: [(&str, &str); 8] = [
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number of at least 0"),
    ("usize", "a whole number of at least 0"),
    ("i32", "a whole number"),
    ("i64", "a whole number"),
    ("f64", "a number"),
];

/// Shorten input that an error message repeats: keep its beginning and its end.
fn shortened(text: &str) -> String {
    const HEAD: usize = 200;
    const TAIL: usize = 600;
    let length = text.chars().count();
    if length <= HEAD + TAIL {
        return text.to_string();
    }
    let head: String = text.chars().take(HEAD).collect();
    let tail: String = text.chars().skip(length - TAIL).collect();
    format!("{head} ... {tail}")
}

/// The fields common to all jobs.
const COMMON: [&str; 10] = [
    "set",
    "files",
    "view",
    "user",
    "stretch",
    "stretch_clock",
    "devices",
    "sync_after",
    "peer",
    "replicates",
];

/// Split a job's fields into the common ones and its own, and parse both.
pub fn job_fields<T: DeserializeOwned>(verb: &str, own: Fields) -> Result<(Common, T)> {
    let (common, own) = own
        .into_iter()
        .partition(|(name, _)| COMMON.contains(&name.as_str()));
    let common: Common = fields(verb, common)?;
    if !(common.stretch.is_finite() && (0.0..=100.0).contains(&common.stretch)) {
        return Err(Error::bad(format!(
            "request {verb}: stretch: expected between 0 and 100, found {}",
            common.stretch
        )));
    }
    if common.replicates == 0 {
        return Err(Error::bad(format!(
            "request {verb}: replicates: expected at least 1, found 0"
        )));
    }
    Ok((common, fields(verb, own)?))
}

/// Return the devices of any job. A request without devices is an error.
pub fn devices_of_job(verb: &str, params: &Fields) -> Result<Vec<String>> {
    let mut devices = Fields::new();
    devices.extend(
        params
            .get_key_value("devices")
            .map(|(k, v)| (k.clone(), v.clone())),
    );
    let common: Common = fields(verb, devices)?;
    if common.devices.is_empty() {
        return Err(Error::bad(format!(
            "request {verb}: account_requests: needs a job with devices"
        )));
    }
    Ok(common.devices)
}

/// Serialize an answer or a part of one.
pub fn value(answer: impl Serialize) -> Result<Value> {
    serde_json::to_value(answer).map_err(|cause| Error::verify(format!("make an answer: {cause}")))
}

/// Return the name of an enum variant as it appears in requests and answers.
pub fn word(member: impl Serialize) -> String {
    match serde_json::to_value(member) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

// Default values of fields.

fn of<const N: u32, T: TryFrom<u32> + Default>() -> T {
    T::try_from(N).unwrap_or_default()
}

fn yes() -> bool {
    true
}

fn quarter() -> f64 {
    0.25
}

fn all<T: VariantArray + Clone>() -> Vec<T> {
    T::VARIANTS.to_vec()
}

impl Content {
    fn random() -> Self {
        Content::Random
    }
}

/// A file mode, in octal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Mode(pub u32);

impl Mode {
    fn of_folder() -> Self {
        Mode(0o755)
    }

    fn of_file() -> Self {
        Mode(0o644)
    }
}

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let octal = !text.is_empty() && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        match u32::from_str_radix(&text, 8) {
            Ok(mode) if octal && mode <= 0o7777 => Ok(Mode(mode)),
            _ => Err(format!(
                "expected a mode in octal such as \"0644\", found {text:?}"
            )),
        }
    }
}

pub fn mode_text(mode: u32) -> String {
    format!("{:04o}", mode & 0o7777)
}

/// How much of each page that a stream writes is random: `zeros`, `random` or e.g. `50 % random`.
/// The rest is zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Share {
    pub percent: u8,
}

impl TryFrom<String> for Share {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let digits = |text: &str| {
            let plain = text.bytes().all(|digit| digit.is_ascii_digit());
            text.parse().ok().filter(|_| plain)
        };
        let percent = match text.as_str() {
            "zeros" => Some(0),
            "random" => Some(100),
            share => share.strip_suffix(" % random").and_then(digits),
        };
        match percent {
            Some(percent) if percent <= 100 => Ok(Share { percent }),
            _ => Err(format!(
                "expected \"zeros\", \"random\" or a share such as \"50 % random\", found {text:?}"
            )),
        }
    }
}

/// How the blocks of an image are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    Allocate,
    Write,
}

/// The content of a set's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    Text,
    Random,
    Zeros,
    Words,
    C,
}

/// The state of the access time, which decides what relatime does at the next read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtimeState {
    Stale,
    Fresh,
    DayOld,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    Regular,
    SymlinkAbsolute,
    SymlinkRelative,
    SymlinkChain,
    Hardlink,
}

/// The signal that stops a server. Servers differ in what each signal means to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "UPPERCASE")]
pub enum EndSignal {
    #[default]
    Term,
    Int,
    Quit,
}

/// The time of a job that the injected slowdown of the positive control extends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum StretchClock {
    #[default]
    Wall,
    Cpu,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    #[default]
    #[serde(rename = "by-file")]
    File,
    #[serde(rename = "by-operation")]
    Operation,
    #[serde(rename = "by-phase")]
    Phase,
}

/// The I/O engine of the `random` job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    #[default]
    Psync,
    Mmap,
    IoUring,
}

/// When the operations of a replay start: after the recorded pauses, without any, or at the recorded
/// times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Timing {
    #[default]
    Closed,
    FlatOut,
    Open,
}

/// The system calls of a replay: those that were recorded, or io_uring where it can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum ReplayCalls {
    #[default]
    Recorded,
    IoUring,
}

/// The order in which the `random` job visits blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    #[default]
    Random,
    Sequential,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    Open,
    OpenWrite,
    OpenTruncate,
    Create,
    Read,
    ReadToEnd,
    Sendfile,
    WriteByte,
    WriteAll,
    Fsync,
    Close,
    Stat,
    Fstat,
    Lstat,
    Readlink,
    Unlink,
    Getdents,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamOperation {
    Read,
    Write,
    Rewrite,
    Copy,
}

/// How to copy a file within a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum CopyWith {
    #[default]
    ReadWrite,
    CopyFileRange,
}

/// The load on an array during its rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum RebuildLoad {
    #[default]
    None,
    Read,
    Write,
}

/// Whether each write waits for the disk: O_SYNC or O_DSYNC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum StreamSync {
    #[default]
    None,
    Sync,
    Dsync,
}

/// The flush after the last write of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum StreamFlush {
    #[default]
    None,
    Fsync,
    Fdatasync,
}

/// The tests of the matrix, in the order in which they run.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, VariantArray,
)]
#[serde(rename_all = "kebab-case")]
pub enum MatrixTest {
    Write,
    Rewrite,
    Read,
    Reread,
    RandomRead,
    RandomWrite,
    BackwardRead,
    RecordRewrite,
    StrideRead,
    Fwrite,
    Frewrite,
    Fread,
    Freread,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    pub path: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    pub path: String,
    pub data: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stat {
    pub path: String,
    #[serde(default)]
    pub follow: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MakeFolder {
    pub path: String,
    #[serde(default = "Mode::of_folder")]
    pub mode: Mode,
    #[serde(default)]
    pub exclusive: bool,
    pub owner: Option<User>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    pub path: String,
    #[serde(default)]
    pub recursive: bool,
    #[serde(default)]
    pub keep: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetTimes {
    pub path: String,
    pub mtime_ns: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndSession {
    pub session: i32,
    pub started: u64,
    pub token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    pub source: String,
    pub target: String,
    pub r#type: String,
    #[serde(default)]
    pub options: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unmount {
    pub target: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropCaches {
    pub what: u8,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    pub folder: String,
    pub size: u64,
    pub fill: Fill,
    pub path: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageFree {
    pub image: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopAttach {
    pub image: u64,
    pub direct_io: bool,
    pub device: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopStatus {
    pub device: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopRemove {
    pub device: String,
    pub node: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopDetach {
    pub device: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvictDevice {
    pub device: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceClaim {
    pub path: String,
    pub node: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfDevice {
    pub device: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskPace {
    pub device: String,
    pub modelled: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskMark {
    pub device: String,
    pub text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceCheck {
    pub device: String,
    #[serde(default = "of::<4096, _>")]
    pub samples: u64,
    #[serde(default = "of::<{ 4 << 20 }, _>")]
    pub edge_bytes: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceRange {
    pub device: String,
    pub offset: u64,
    pub length: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceMark {
    pub device: String,
    pub offset: u64,
    pub text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceMarked {
    pub device: String,
    pub offset: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceWindow {
    pub device: String,
    pub size: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub argv: Vec<String>,
    pub environment: Option<BTreeMap<String, String>>,
    pub cwd: Option<String>,
    pub stdin: Option<String>,
    pub timeout_s: Option<f64>,
    #[serde(default = "of::<{ 1 << 20 }, _>")]
    pub output_limit: usize,
    pub user: Option<User>,
    /// Supplementary groups of `user`.
    #[serde(default)]
    pub groups: Vec<libc::gid_t>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerStart {
    pub name: String,
    pub argv: Vec<String>,
    pub environment: Option<BTreeMap<String, String>>,
    pub cwd: Option<String>,
    pub user: Option<User>,
    /// None: it is ready as soon as it runs.
    pub ready: Option<Ready>,
    /// None: it must not end by itself.
    pub rounds: Option<Rounds>,
    #[serde(default = "of::<60, _>")]
    pub timeout_s: f64,
}

/// How often a program that may end by itself, with status 0, is started.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Rounds {
    Once,
    Repeat,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    pub tcp: Option<u32>,
    pub socket: Option<String>,
    pub file: Option<String>,
    pub contains: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerStop {
    pub name: String,
    #[serde(default)]
    pub signal: EndSignal,
    /// Wait for the end of a round first.
    #[serde(default)]
    pub after_round: bool,
    #[serde(default = "of::<60, _>")]
    pub timeout_s: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfServer {
    pub name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvictTree {
    pub path: String,
}

/// Files by their paths, outside any set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paths {
    pub paths: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MakeSet {
    pub set: String,
    pub dir: String,
    pub count: u32,
    pub size: u64,
    pub seed: u64,
    pub content: Content,
    #[serde(default = "of::<1, _>")]
    pub directories: u32,
    #[serde(default = "Mode::of_file")]
    pub mode: Mode,
    #[serde(default = "yes")]
    pub create: bool,
    #[serde(default)]
    pub empty: bool,
    pub owner: Option<User>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfSet {
    pub set: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfFiles {
    pub set: String,
    pub files: Selection,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetMode {
    pub set: String,
    pub files: Selection,
    pub mode: Mode,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetAtimeState {
    pub set: String,
    pub files: Selection,
    pub state: AtimeState,
    pub view: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub set: String,
    pub files: Selection,
    pub view: String,
    pub kind: LinkKind,
    #[serde(default = "of::<4, _>")]
    pub chain: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfView {
    pub set: String,
    pub files: Selection,
    pub view: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetSize {
    pub set: String,
    pub files: Selection,
    pub size: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayFiles {
    pub set: String,
    pub files: Selection,
    pub extents: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyFiles {
    pub set: String,
    pub files: Selection,
    pub keep: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Age {
    pub path: String,
    pub percent: u8,
    pub rounds: u32,
    pub seed: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warm {
    pub set: String,
    pub files: Selection,
    pub view: Option<String>,
    #[serde(default)]
    pub names: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Around {
    pub on: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchStart {
    pub listen: String,
    #[serde(default)]
    pub devices: Vec<String>,
    #[serde(default)]
    pub cards: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleStart {
    #[serde(default)]
    pub devices: Vec<String>,
    #[serde(default = "of::<100, _>")]
    pub period_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestsStart {
    /// Whole devices, as in /sys/block.
    pub devices: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Common {
    pub set: Option<String>,
    pub files: Selection,
    pub view: Option<String>,
    pub user: Option<User>,
    #[serde(default)]
    pub stretch: f64,
    #[serde(default)]
    pub stretch_clock: StretchClock,
    #[serde(default)]
    pub devices: Vec<String>,
    pub sync_after: Option<String>,
    pub peer: Option<String>,
    #[serde(default = "of::<1, _>")]
    pub replicates: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesJob {
    pub operations: Vec<Operation>,
    #[serde(default = "of::<{ 1 << 16 }, _>")]
    pub buffer: usize,
    #[serde(default)]
    pub order: Order,
    #[serde(default)]
    pub histograms: bool,
    pub stretch_of: Option<Operation>,
    /// The socket of the disk that logs its writes: tell it which files are durable. If empty,
    /// the answer tells.
    pub acknowledge: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomJob {
    #[serde(default)]
    pub engine: Engine,
    #[serde(default = "of::<4096, _>")]
    pub block: u64,
    #[serde(default)]
    pub order: Access,
    #[serde(default)]
    pub write_share: f64,
    #[serde(default)]
    pub direct: bool,
    #[serde(default = "of::<1, _>")]
    pub depth: u32,
    pub batch: Option<u32>,
    #[serde(default)]
    pub ramp: u64,
    pub operations: Option<u64>,
    pub time_s: Option<f64>,
    pub rate: Option<f64>,
    #[serde(default = "of::<1, _>")]
    pub seed: u64,
    #[serde(default)]
    pub histograms: bool,
    #[serde(default)]
    pub series: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayPrepare {
    /// The trace's file, which is opened without following links.
    pub trace: String,
    /// The folder of the recreated files; its parent must exist.
    pub folder: String,
    #[serde(default)]
    pub fragments: bool,
    pub owner: Option<User>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayJob {
    pub folder: String,
    #[serde(default)]
    pub timing: Timing,
    #[serde(default = "of::<1, _>")]
    pub speed: f64,
    #[serde(default)]
    pub calls: ReplayCalls,
    #[serde(default)]
    pub histograms: bool,
}

/// Where the standard output of programs goes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stdout {
    /// Through a pipe that is emptied meanwhile.
    #[default]
    Pipe,
    /// To /dev/null.
    Null,
    /// To the standard output of the process that started the probe.
    Inherit,
    /// To this file, which is made or emptied before each run.
    File(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandJob {
    pub steps: Vec<Step>,
    pub environment: Option<BTreeMap<String, String>>,
    pub cwd: Option<String>,
    pub stdin: Option<String>,
    pub out: Option<String>,
    pub timeout_s: Option<f64>,
    #[serde(default)]
    pub expect_exit: i32,
    #[serde(default)]
    pub keep_output: usize,
    /// Where the standard output goes without `keep_output`.
    #[serde(default)]
    pub stdout: Stdout,
    #[serde(default)]
    pub keep_files: Vec<String>,
    /// Files to read before the timed part, and to keep in memory until it has ended.
    #[serde(default)]
    pub hold: Vec<String>,
    #[serde(default)]
    pub account: bool,
    #[serde(default)]
    pub touches: Vec<String>,
    /// A file system, as MAJOR:MINOR of its files: they too are inside, and those read are named.
    #[serde(default)]
    pub touches_device: Option<String>,
    /// Files changed since then were made for this run: ns since 1970.
    #[serde(default)]
    pub touches_since_ns: i64,
    /// The socket of the disk that logs its writes: tell it what the programs acknowledge.
    pub acknowledge: Option<String>,
    /// With `acknowledge`, instead of `stdin`: parts of the standard input. Each but the first is
    /// written after an acknowledgement.
    #[serde(default)]
    pub dialog: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub name: String,
    pub argv: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamJob {
    pub operation: StreamOperation,
    pub device: Option<String>,
    #[serde(default)]
    pub position: f64,
    pub within: Option<f64>,
    #[serde(default)]
    pub lead_in: u64,
    #[serde(default = "of::<{ 1 << 20 }, _>")]
    pub block_size: usize,
    pub volume: Option<u64>,
    #[serde(default = "of::<1, _>")]
    pub streams: usize,
    #[serde(default)]
    pub shared: bool,
    #[serde(default)]
    pub copy_with: CopyWith,
    pub seconds: Option<f64>,
    #[serde(default)]
    pub direct: bool,
    #[serde(default)]
    pub sync: StreamSync,
    #[serde(default)]
    pub flush: StreamFlush,
    #[serde(default = "yes")]
    pub truncate: bool,
    #[serde(default)]
    pub data: Share,
    pub seed: Option<u64>,
    #[serde(default)]
    pub pause_s: f64,
    #[serde(default = "yes")]
    pub evict: bool,
    #[serde(default)]
    pub beside: bool,
    #[serde(default)]
    pub histograms: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixJob {
    #[serde(default = "all")]
    pub tests: Vec<MatrixTest>,
    pub file_size: u64,
    pub record_size: usize,
    #[serde(default)]
    pub direct: bool,
    #[serde(default)]
    pub sync: bool,
    #[serde(default)]
    pub fsync: bool,
    #[serde(default)]
    pub close: bool,
    #[serde(default)]
    pub cold: bool,
    #[serde(default = "Content::random")]
    pub content: Content,
    #[serde(default)]
    pub seed: u64,
    #[serde(default = "of::<17, _>")]
    pub stride: u32,
    #[serde(default)]
    pub histograms: bool,
    pub stretch_of: Option<MatrixTest>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RebuildJob {
    pub array: String,
    #[serde(default = "of::<8, _>")]
    pub parts: u64,
    #[serde(default = "quarter")]
    pub announced_at: f64,
    #[serde(default)]
    pub load: RebuildLoad,
    #[serde(default = "of::<600, _>")]
    pub timeout_s: f64,
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    pub fn object(value: Value) -> Fields {
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
        let error = |params| message(fields::<Path>("read", object(params)));
        assert_eq!(
            error(json!({"path": "/x", "pth": 1})),
            "request read: pth: unknown field `pth`, expected `path`"
        );
        for missing in [json!({}), json!({"path": null})] {
            assert_eq!(error(missing), "request read: missing field `path`");
        }
        assert_eq!(
            error(json!({"path": 3})),
            "request read: path: invalid type: integer `3`, expected a string"
        );
        let range = json!({"set": "s", "directories": -1});
        assert_eq!(
            message(fields::<MakeSet>("fileset", object(range))),
            "request fileset: directories: invalid value: integer `-1`, expected a whole number from 0 to 4294967295"
        );
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
    fn the_list_of_common_fields_is_that_of_their_type() {
        let error = message(fields::<Common>("files", object(json!({"?": 1}))));
        let known = COMMON.map(|name| format!("`{name}`")).join(", ");
        assert!(
            error.ends_with(&format!("expected one of {known}")),
            "{error}"
        );
    }

    #[test]
    fn null_is_what_a_field_is_that_was_left_out() {
        let text = json!({"set": "s", "files": null, "devices": null, "operations": ["open"]});
        let (common, own) = job_fields::<FilesJob>("files", object(text)).unwrap();
        assert_eq!((common.files, own.buffer), (None, 65_536));
    }

    #[test]
    fn modes_are_octal_text() {
        let mode = |text: &str| Mode::try_from(text.to_string()).ok().map(|m| m.0);
        assert_eq!(mode("0444"), Some(0o444));
        assert_eq!(mode("1777"), Some(0o1777));
        assert_eq!([mode("9"), mode(""), mode("+7"), mode("17777")], [None; 4]);
        assert_eq!(mode_text(0o100_444), "0444");
    }

    #[test]
    fn a_share_is_a_whole_number_of_percent() {
        let share = |text: &str| Share::try_from(text.to_string()).ok().map(|s| s.percent);
        assert_eq!(
            [share("zeros"), share("random"), share("7 % random")],
            [Some(0), Some(100), Some(7)]
        );
        for wrong in [
            "",
            "50",
            "50%",
            "+5 % random",
            "101 % random",
            "256 % random",
            " % random",
        ] {
            assert_eq!(share(wrong), None, "{wrong}");
        }
    }
}
