//! What a request for the matrix may ask, and what its tests have in common.

use super::pattern::STAMP;
use crate::error::{Error, Result};
use crate::protocol::{word, Common, MatrixJob, MatrixTest};

const LARGEST_RECORD: usize = 1 << 30;
const MOST_RECORDS: u64 = 1 << 26;
/// What the kernel asks of direct I/O: whole logical blocks.
const BLOCK: usize = 512;

/// The number of records; or what cannot work.
pub fn check_request(common: &Common, own: &MatrixJob) -> Result<u32> {
    let wanted = |fits: bool, field: &str, wanted: &str, found: String| {
        if fits {
            return Ok(());
        }
        Err(Error::bad(format!(
            "request matrix: {field}: wanted {wanted}, found {found}"
        )))
    };
    let (file, record) = (own.file_size, own.record_size);
    let strange = common.files.is_some() || common.view.is_some() || common.user.is_some();
    wanted(
        !strange,
        "files, view, user",
        "none, because the file is the job's own",
        "one of them".to_string(),
    )?;
    let mut seen = own.tests.clone();
    seen.sort_unstable();
    seen.dedup();
    wanted(
        !seen.is_empty() && seen.len() == own.tests.len(),
        "tests",
        "at least one, each once",
        format!("{:?}", own.tests.iter().map(word).collect::<Vec<_>>()),
    )?;
    wanted(
        (STAMP..=LARGEST_RECORD).contains(&record),
        "record_size",
        &format!("{STAMP} to {LARGEST_RECORD} bytes"),
        record.to_string(),
    )?;
    wanted(
        file >= record as u64 && file % record as u64 == 0,
        "file_size",
        &format!("a multiple of the record size {record}"),
        file.to_string(),
    )?;
    let records = file / record as u64;
    wanted(
        records <= MOST_RECORDS,
        "file_size",
        &format!("at most {MOST_RECORDS} records"),
        records.to_string(),
    )?;
    wanted(
        !own.direct || record % BLOCK == 0,
        "record_size",
        &format!("a multiple of {BLOCK} with direct"),
        record.to_string(),
    )?;
    wanted(own.stride > 0, "stride", "at least 1", "0".to_string())?;
    match own.stretch_of {
        Some(test) if !own.tests.contains(&test) => Err(Error::bad(format!(
            "request matrix: stretch_of: wanted one of the tests, found {}",
            word(test)
        ))),
        _ => Ok(records as u32),
    }
}

pub fn makes_the_file(test: MatrixTest) -> bool {
    matches!(test, MatrixTest::Write | MatrixTest::Fwrite)
}

pub fn writes(test: MatrixTest) -> bool {
    use MatrixTest::{Frewrite, Fwrite, RandomWrite, RecordRewrite, Rewrite, Write};
    matches!(
        test,
        Write | Rewrite | RandomWrite | RecordRewrite | Fwrite | Frewrite
    )
}

pub fn is_stdio(test: MatrixTest) -> bool {
    test >= MatrixTest::Fwrite
}

/// What reads a file that no test has just read.
pub fn starts_cold(test: MatrixTest) -> bool {
    !writes(test) && !matches!(test, MatrixTest::Reread | MatrixTest::Freread)
}

/// What begins, untimed, by reading one record and going back.
pub fn reads_one_before(test: MatrixTest) -> bool {
    matches!(test, MatrixTest::Read | MatrixTest::Reread)
}
