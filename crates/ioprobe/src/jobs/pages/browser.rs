//! A real browser that loads the pages, with their style sheets, scripts and images: headless Chromium, over its own protocol.
//!
//! One process tree serves a run. Each client is a profile of its own in it (a browser context: its own cookies and caches), so
//! that six clients are six readers. A page's time goes from the order to open it to its load event; what it answered is asked
//! for afterwards. Whatever a page refers to on another machine is not fetched: it is sent to a proxy that is not there.

use std::ffi::CString;
use std::os::unix::io::{AsRawFd, OwnedFd};

use libc::pid_t;
use serde_json::{json, Value};

use super::client::Route;
use super::devtools::DevTools;
use super::load::{Pages, Tally};
use crate::clock::{monotonic_ns, Clock};
use crate::error::{Error, Result};
use crate::identity::User;
use crate::process::limit::kill_group;
use crate::process::program::Environment;
use crate::process::start::{Starter, Surroundings};
use crate::process::stragglers;
use crate::protocol::Remove;
use crate::sys::remove;
use crate::sys::{c_text, check, make_folder, memory_file};

/// The pipes have to be descriptors 3 and 4.
const SHELL: &str = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null";
const FLAGS: [&str; 14] = [
    "--headless",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--mute-audio",
    // Port 9 is discard; requests to this machine pass a proxy by.
    "--proxy-server=127.0.0.1:9",
];
/// What is asked of a page that has been loaded: status, redirects, bytes of the body, resources, and how many of these failed.
const ASKED: &str = "(() => { const n = performance.getEntriesByType('navigation')[0], \
    r = performance.getEntriesByType('resource'); return [n.responseStatus, n.redirectCount, n.encodedBodySize, r.length, \
    r.filter(one => one.responseStatus >= 400).length]; })()";
const START_NS: u64 = 60_000_000_000;

/// How a browser is started.
pub struct Start<'a> {
    pub program: &'a str,
    /// A folder that is made for it, and taken away again.
    pub profile: &'a str,
    pub user: Option<User>,
    pub isolated: bool,
}

pub struct Browser<'a> {
    start: Start<'a>,
    pid: pid_t,
    tools: DevTools,
    tabs: Vec<Tab>,
    stderr: OwnedFd,
    pub resources: u64,
}

enum Phase {
    Waiting(u64),
    /// Until both the answer to the order and the load event have come.
    Opening,
    Asking(u64),
    Finished,
}

struct Tab {
    session: String,
    phase: Phase,
    page: usize,
    left: u64,
    deadline_ns: u64,
    started: u64,
    ordered: u64,
    /// What the page is known by, once it is answered.
    loader: Option<String>,
    /// What was loaded last, and when.
    loaded: Option<(String, u64)>,
    ticks: u64,
}

impl<'a> Browser<'a> {
    /// Starts it, with a profile of its own for each client; untimed.
    pub fn open(
        start: Start<'a>,
        route: &Route,
        clients: u32,
        starter: &mut Starter,
    ) -> Result<Self> {
        take_away(start.profile)?; // one that could not be started has left its own
        make_folder(start.profile, 0o700)?;
        if let Some(user) = start.user {
            let path = c_text(start.profile)?;
            check(
                // SAFETY: the text ends with NUL.
                unsafe { libc::lchown(path.as_ptr(), user.uid, user.gid) },
                || format!("give {} to user {}", start.profile, user.uid),
            )?;
        }
        let (tools, ends) = DevTools::new()?;
        let stderr = memory_file(&CString::default())?;
        let environment = Environment::new(Some(&[("HOME", start.profile)].map(owned).into()))?;
        let mut argv: Vec<String> = ["/bin/sh", "-c", SHELL, start.program]
            .iter()
            .chain(&FLAGS)
            .map(ToString::to_string)
            .collect();
        argv.push(format!("--user-data-dir={}", start.profile));
        if !route.address.ip().is_loopback() {
            argv.push(format!("--proxy-bypass-list={}", route.address.ip()));
        }
        // SAFETY: geteuid cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        if start.user.map_or(root, |user| user.uid == 0) {
            argv.push("--no-sandbox".to_string()); // as root it has none
        }
        let program = environment.program(&argv)?;
        let around = Surroundings {
            environment: environment.laid_out()?,
            folder: Some(c_text("/")?),
            user: start.user,
            traced: false,
            stdin: ends.reading.as_raw_fd(),
            stdout: ends.writing.as_raw_fd(),
            stderr: stderr.as_raw_fd(),
        };
        let pid = starter.start(&program, &around)?;
        drop(ends);
        let mut browser = Browser {
            start,
            pid,
            tools,
            tabs: Vec::new(),
            stderr,
            resources: 0,
        };
        match (0..clients).try_for_each(|_| browser.open_tab()) {
            Ok(()) => Ok(browser),
            Err(error) => {
                let said = browser.last_words();
                browser.close()?;
                Err(Error::verify(format!("start a browser: {error}{said}")))
            }
        }
    }

    fn open_tab(&mut self) -> Result<()> {
        let until = monotonic_ns() + START_NS;
        let tools = &mut self.tools;
        let context = tools.call("Target.createBrowserContext", json!({}), None, until)?;
        let given = json!({"url": "about:blank", "browserContextId": context["browserContextId"]});
        let target = tools.call("Target.createTarget", given, None, until)?;
        let given = json!({"targetId": target["targetId"], "flatten": true});
        let attached = tools.call("Target.attachToTarget", given, None, until)?;
        let session = attached["sessionId"].as_str().unwrap_or("").to_string();
        tools.call("Page.enable", json!({}), Some(&session), until)?;
        let given = json!({"enabled": true});
        tools.call(
            "Page.setLifecycleEventsEnabled",
            given,
            Some(&session),
            until,
        )?;
        self.tabs.push(Tab {
            session,
            phase: Phase::Finished,
            page: 0,
            left: 0,
            deadline_ns: u64::MAX,
            started: 0,
            ordered: 0,
            loader: None,
            loaded: None,
            ticks: 0,
        });
        Ok(())
    }

    /// As `Load::perform`: each client loads all pages so many times, `delay_ns` after the load event of the one before.
    pub fn perform(
        &mut self,
        (pages, route): (&Pages, &Route),
        (passes, delay_ns): (u32, u64),
        clock: &Clock,
        tally: &mut Tally,
    ) -> Result<()> {
        if passes == 0 {
            return Ok(());
        }
        let (number, clients) = (pages.names.len(), self.tabs.len());
        let now = monotonic_ns();
        for (n, tab) in self.tabs.iter_mut().enumerate() {
            tab.page = n * number / clients;
            tab.left = number as u64 * u64::from(passes);
            tab.phase = Phase::Waiting(now);
        }
        while !tally.broken_off {
            self.begin_those_due(pages, route, clock)?;
            let moments = self.tabs.iter().filter_map(|tab| match tab.phase {
                Phase::Waiting(due) => Some(due),
                Phase::Finished => None,
                Phase::Opening | Phase::Asking(_) => Some(tab.deadline_ns),
            });
            let until = match moments.min() {
                Some(moment) => moment,
                None => break,
            };
            if let Some(message) = self.tools.next(until)? {
                let ticks = clock.ticks();
                self.heard(&message, ticks, (pages, delay_ns), tally)?;
            }
            let now = monotonic_ns();
            for tab in &self.tabs {
                let busy = matches!(tab.phase, Phase::Opening | Phase::Asking(_));
                if busy && tab.deadline_ns <= now {
                    let seconds = route.timeout_ns as f64 / 1e9;
                    let problem = format!("was not loaded within {seconds} s");
                    tally.fail(&pages.names[tab.page], problem, true);
                    tally.broken_off = true;
                }
            }
        }
        Ok(())
    }

    fn begin_those_due(&mut self, pages: &Pages, route: &Route, clock: &Clock) -> Result<()> {
        let now = monotonic_ns();
        for tab in &mut self.tabs {
            if matches!(tab.phase, Phase::Waiting(due) if due <= now) {
                let url = format!("http://{}{}", route.address, pages.names[tab.page]);
                tab.phase = Phase::Opening;
                tab.deadline_ns = now.saturating_add(route.timeout_ns);
                tab.loader = None;
                tab.loaded = None;
                tab.started = clock.ticks();
                let given = json!({ "url": url });
                tab.ordered = self
                    .tools
                    .send("Page.navigate", given, Some(&tab.session))?;
            }
        }
        Ok(())
    }

    fn heard(
        &mut self,
        message: &Value,
        ticks: u64,
        (pages, delay_ns): (&Pages, u64),
        tally: &mut Tally,
    ) -> Result<()> {
        let session = message["sessionId"].as_str().unwrap_or("");
        let tab = match self.tabs.iter_mut().find(|tab| tab.session == session) {
            Some(tab) => tab,
            None => return Ok(()),
        };
        let page = &pages.names[tab.page];
        if message["method"] == "Page.lifecycleEvent" && message["params"]["name"] == "load" {
            if let Some(loader) = message["params"]["loaderId"].as_str() {
                tab.loaded = Some((loader.to_string(), ticks));
            }
        } else if message["id"] == tab.ordered && matches!(tab.phase, Phase::Opening) {
            if let Some(problem) = message["result"]["errorText"].as_str() {
                tally.fail(page, format!("was not loaded: {problem:.100}"), false);
                tally.broken_off = true;
                return Ok(());
            }
            tab.loader = message["result"]["loaderId"].as_str().map(String::from);
        }
        match (&tab.phase, &tab.loader, &tab.loaded) {
            (Phase::Opening, Some(own), Some((loaded, at))) if own == loaded => {
                tab.ticks = at.saturating_sub(tab.started);
                let given = json!({"expression": ASKED, "returnByValue": true});
                let id = self
                    .tools
                    .send("Runtime.evaluate", given, Some(&tab.session))?;
                tab.phase = Phase::Asking(id);
            }
            (Phase::Asking(id), _, _) if message["id"] == *id => {
                let told = &message["result"]["result"]["value"];
                let number = |place: usize| told[place].as_u64().unwrap_or(0);
                let status = number(0) as u16;
                tally.count_loaded(pages, tab.page, tab.ticks, (status, number(1), number(2)));
                self.resources += number(3);
                if number(4) > 0 {
                    let problem =
                        format!("{} of what it shows was refused by the server", number(4));
                    tally.fail(page, problem, false);
                }
                tab.left -= 1;
                tab.page = (tab.page + 1) % pages.names.len();
                tab.phase = match tab.left {
                    0 => Phase::Finished,
                    _ => Phase::Waiting(monotonic_ns().saturating_add(delay_ns)),
                };
            }
            _ => {}
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let mut text = vec![0_u8; 1000];
        // SAFETY: the vector is valid for its length.
        let n = unsafe {
            libc::pread(
                self.stderr.as_raw_fd(),
                text.as_mut_ptr().cast(),
                text.len(),
                0,
            )
        };
        match String::from_utf8_lossy(&text[..n.max(0) as usize]).trim() {
            "" => String::new(),
            said => format!("; it said: {said}"),
        }
    }

    /// Ends it with all its processes, and takes its profile away.
    pub fn close(self) -> Result<()> {
        kill_group(self.pid);
        stragglers::sweep(self.start.isolated, true)?;
        take_away(self.start.profile)
    }
}

/// As a program's environment has it.
fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_string(), value.to_string())
}

fn take_away(profile: &str) -> Result<()> {
    let request = Remove {
        path: profile.to_string(),
        recursive: true,
        keep: false,
    };
    remove::remove(request).map(drop)
}
