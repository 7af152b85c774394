//! All clients at once, in one thread: who is due begins, who has something to read reads, who is late is a failure.
//!
//! No second thread, for the probe has one (see `process::limit`). A response's time ends with the read that made it whole; what
//! its body is compared by is worked out after that, and belongs to no response's time but, with several clients, to the waiting
//! of the others: some 30 us for a page of 30 KB.

use std::collections::BTreeMap;

use serde_json::{json, Value};

use super::client::{Client, Phase, Route, Step};
use super::mask::{mark, Pattern};
use crate::clock::{monotonic_ns, Clock};
use crate::error::{last_errno, Error, Result};
use crate::recorder::LatencyRecorder;

/// Bytes read at once.
const BUFFER: usize = 256 << 10;
/// Failures that are told one by one; all are counted.
const MOST_TOLD: usize = 16;

/// What the pages are, and what is expected of them.
pub struct Pages {
    /// As the study names them, and as they are sent.
    pub names: Vec<String>,
    pub requests: Vec<Vec<u8>>,
    pub expect_status: u16,
    pub count_redirects: bool,
    pub ignore: Vec<Pattern>,
}

/// One page, over all its requests.
#[derive(Clone, Default)]
pub struct Page {
    pub ticks: u64,
    pub count: u64,
    pub bytes: u64,
    pub mark: Option<u64>,
    /// It was not the same each time.
    pub varied: bool,
}

/// What came of a load.
pub struct Tally {
    pub pages: Vec<Page>,
    pub recorder: LatencyRecorder,
    pub received: u64,
    pub connections: u64,
    pub redirects: u64,
    pub statuses: BTreeMap<u16, u64>,
    pub failed: u64,
    failures: Vec<Value>,
    /// Ended before its time: the server could not be talked to.
    pub broken_off: bool,
}

impl Tally {
    pub fn new(pages: usize) -> Self {
        Tally {
            pages: vec![Page::default(); pages],
            recorder: LatencyRecorder::new(),
            received: 0,
            connections: 0,
            redirects: 0,
            statuses: BTreeMap::new(),
            failed: 0,
            failures: Vec::new(),
            broken_off: false,
        }
    }

    pub fn failures(&self) -> &[Value] {
        &self.failures
    }

    pub fn fail(&mut self, page: &str, problem: String, timed_out: bool) {
        self.failed += 1;
        if self.failures.len() < MOST_TOLD {
            self.failures
                .push(json!({"page": page, "problem": problem, "timed_out": timed_out}));
        }
    }

    /// Counts a whole response.
    fn count(&mut self, pages: &Pages, client: &Client, ticks: u64) {
        let response = &client.response;
        let bytes = response.body.len() as u64;
        let page = &mut self.pages[client.page];
        let found = mark(&response.body, &pages.ignore);
        page.varied |= page.mark.is_some_and(|known| known != found);
        page.mark = Some(found);
        self.received += response.received;
        let redirect = (300..400).contains(&response.status) && response.status != 304;
        self.count_one(client.page, ticks, bytes);
        self.judge(pages, client.page, response.status, redirect);
    }

    /// Counts a page that a browser has loaded: by its status, how many redirects it took, and its bytes.
    pub fn count_loaded(
        &mut self,
        pages: &Pages,
        page: usize,
        ticks: u64,
        (status, redirects, bytes): (u16, u64, u64),
    ) {
        self.count_one(page, ticks, bytes);
        if redirects > 0 && !pages.count_redirects {
            let problem = format!("the server redirected {redirects} times");
            self.fail(&pages.names[page], problem, false);
        }
        self.redirects += redirects;
        self.judge(pages, page, status, false);
    }

    fn count_one(&mut self, page: usize, ticks: u64, bytes: u64) {
        let page = &mut self.pages[page];
        page.ticks += ticks;
        page.count += 1;
        page.bytes += bytes;
        self.recorder.record(ticks);
    }

    fn judge(&mut self, pages: &Pages, page: usize, status: u16, redirect: bool) {
        *self.statuses.entry(status).or_insert(0) += 1;
        self.redirects += u64::from(redirect);
        if status == pages.expect_status || (redirect && pages.count_redirects) {
            return;
        }
        let words = match redirect {
            true => " (a redirect, which is not followed)",
            false => "",
        };
        let wanted = pages.expect_status;
        let problem = format!("the server answered {status}{words}, wanted {wanted}");
        self.fail(&pages.names[page], problem, false);
    }
}

pub struct Load<'a> {
    pages: &'a Pages,
    route: &'a Route,
    clock: &'a Clock,
    clients: Vec<Client>,
    buffer: Vec<u8>,
}

impl<'a> Load<'a> {
    pub fn new(pages: &'a Pages, route: &'a Route, clock: &'a Clock, clients: u32) -> Self {
        Load {
            pages,
            route,
            clock,
            clients: (0..clients).map(|_| Client::new(route)).collect(),
            buffer: vec![0; BUFFER],
        }
    }

    /// Each client requests all pages so many times, `delay_ns` after the end of the response before. They begin at different
    /// places of the list, evenly apart, so that they are not all busy with the same page.
    pub fn perform(&mut self, passes: u32, delay_ns: u64, tally: &mut Tally) -> Result<()> {
        let (pages, clients) = (self.pages.names.len(), self.clients.len());
        if passes == 0 {
            return Ok(());
        }
        let now = monotonic_ns();
        for (n, client) in self.clients.iter_mut().enumerate() {
            let requests = pages as u64 * u64::from(passes);
            client.assign(n * pages / clients, requests, now);
        }
        while !tally.broken_off && self.begin_those_due(tally) {
            let mut polls: Vec<libc::pollfd> = self.clients.iter().map(Client::watched).collect();
            wait(&mut polls, self.next_moment())?;
            let now = monotonic_ns();
            for (n, poll) in polls.iter().enumerate() {
                if poll.revents != 0 {
                    self.go_on(n, delay_ns, tally);
                }
                let client = &self.clients[n];
                let busy = !matches!(client.phase, Phase::Waiting(_) | Phase::Finished);
                if busy && client.deadline_ns <= now {
                    let seconds = self.route.timeout_ns as f64 / 1e9;
                    let problem = format!("the server gave no whole response within {seconds} s");
                    tally.fail(&self.pages.names[client.page], problem, true);
                    tally.broken_off = true;
                }
            }
        }
        tally.connections = self.clients.iter().map(|client| client.connections).sum();
        Ok(())
    }

    /// Whether anybody has anything left to do.
    fn begin_those_due(&mut self, tally: &mut Tally) -> bool {
        let now = monotonic_ns();
        for client in &mut self.clients {
            match client.phase {
                Phase::Waiting(due) if due <= now => {
                    let request = &self.pages.requests[client.page];
                    if let Err(fault) = client.begin(request, self.route, self.clock) {
                        let problem = format!("the server {fault}");
                        tally.fail(&self.pages.names[client.page], problem, false);
                        tally.broken_off = true;
                    }
                }
                _ => {}
            }
        }
        self.clients
            .iter()
            .any(|client| client.phase != Phase::Finished)
    }

    fn go_on(&mut self, n: usize, delay_ns: u64, tally: &mut Tally) {
        let client = &mut self.clients[n];
        let request = &self.pages.requests[client.page];
        match client.go_on(request, self.route, &mut self.buffer, self.clock) {
            Ok(Step::UnderWay) => {}
            Ok(Step::Answered(ticks)) => {
                let now = monotonic_ns();
                tally.count(self.pages, client, ticks);
                client.left -= 1;
                client.page = (client.page + 1) % self.pages.names.len();
                client.phase = match client.left {
                    0 => Phase::Finished,
                    _ => Phase::Waiting(now.saturating_add(delay_ns)),
                };
            }
            Err(fault) => {
                tally.fail(
                    &self.pages.names[client.page],
                    format!("the server {fault}"),
                    false,
                );
                tally.broken_off = true;
            }
        }
    }

    /// When something is to be done although nothing has come.
    fn next_moment(&self) -> u64 {
        let moments = self.clients.iter().map(|client| match client.phase {
            Phase::Waiting(due) => due,
            Phase::Finished => u64::MAX,
            _ => client.deadline_ns,
        });
        moments.min().unwrap_or(u64::MAX)
    }
}

/// Until one of them can go on, or that moment has come.
fn wait(polls: &mut [libc::pollfd], until_ns: u64) -> Result<()> {
    let left = until_ns.saturating_sub(monotonic_ns());
    let limit = libc::timespec {
        tv_sec: (left / 1_000_000_000).min(1_000_000) as libc::time_t,
        tv_nsec: (left % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the slice is valid for its length, the other structures are ours.
    let n = unsafe {
        libc::ppoll(
            polls.as_mut_ptr(),
            polls.len() as libc::nfds_t,
            &limit,
            std::ptr::null(),
        )
    };
    if n == -1 && last_errno() != libc::EINTR {
        return Err(Error::last_os("wait for responses"));
    }
    Ok(())
}
