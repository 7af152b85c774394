//! The fields of jobs: those that all of them have, which are split off by name, and each one's own.

use std::collections::BTreeMap;

use super::json::{fields, requests, Reader, Request};
use super::{
    Access, AtimeCall, Content, CopyWith, Engine, Fields, MatrixTest, Operation, Order,
    RebuildLoad, Redirects, Selection, Share, StreamFlush, StreamOperation, StreamSync,
    StretchClock,
};
use crate::error::{Error, Result};
use crate::identity::User;

requests! {
    JOBS:
    Common {
        set: Option<String> = None,
        files: Selection = None,
        view: Option<String> = None,
        user: Option<User> = None,
        stretch: f64 = 0.0,
        stretch_clock: StretchClock = StretchClock::Wall,
        devices: Vec<String> = Vec::new(),
        sync_after: Option<String> = None,
        peer: Option<String> = None,
        replicates: u32 = 1,
    }
    FilesJob {
        operations: Vec<Operation>,
        buffer: usize = 1 << 16,
        order: Order = Order::File,
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
        ramp: u64 = 0,
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
        out: Option<String> = None,
        timeout_s: Option<f64> = None,
        expect_exit: i32 = 0,
        keep_output: usize = 0,
        account: bool = false,
        touches: Vec<String> = Vec::new(),
        begin_ns: Option<u64> = None,
    }
    Step { name: String, argv: Vec<String> }
    StreamJob {
        operation: StreamOperation,
        device: Option<String> = None,
        position: f64 = 0.0,
        within: Option<f64> = None,
        lead_in: u64 = 0,
        block_size: usize = 1 << 20,
        volume: Option<u64> = None,
        streams: usize = 1,
        shared: bool = false,
        copy_with: CopyWith = CopyWith::ReadWrite,
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
    PagesJob {
        address: String,
        host: String,
        pages: Vec<String>,
        delay_s: f64 = 0.0,
        clients: u32 = 1,
        warmup: u32 = 0,
        keep_alive: bool = true,
        timeout_s: f64 = 30.0,
        expect_status: u16 = 200,
        redirects: Redirects = Redirects::Refuse,
        ignore: Vec<String> = Vec::new(),
        anywhere: bool = false,
        browser: Option<String> = None,
        profile: Option<String> = None,
        histograms: bool = false,
    }
    RebuildJob {
        array: String,
        parts: u64 = 8,
        announced_at: f64 = 0.25,
        load: RebuildLoad = RebuildLoad::None,
        timeout_s: f64 = 600.0,
    }
    AtimeJob {
        calls: Vec<AtimeCall> = AtimeCall::ALL.to_vec(),
        burst: u32 = 1000,
    }
}

/// A job's fields: those that all jobs have, and its own.
pub fn job_fields<T: Request>(verb: &str, mut own: Fields) -> Result<(Common, T)> {
    let common = Common::FIELDS
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
    let common = (Common::FIELDS.iter()).filter_map(|name| given.get_key_value(*name));
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

#[cfg(test)]
mod tests {
    use super::super::json::tests::{message, object};
    use super::*;
    use serde_json::json;

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
}
